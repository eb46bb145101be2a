"""Calls as data on the real thing: proved, replayed by another process, and timed in turn with today's."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.replay.baselines import keep
from pytest_gpubench.replay.builder import find_builder
from pytest_gpubench.replay.capture import CapturedCall, capture_call
from pytest_gpubench.replay.elf import sections
from pytest_gpubench.replay.images import sha256_of
from pytest_gpubench.replay.isolated import compare_isolated
from pytest_gpubench.replay.proof import prove
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.stored import StoredPair
from pytest_gpubench.results.store import Storage
from pytest_gpubench.results.store.calls import CallStore
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.measurement import Plan
from tests.on_gpu.hosts import RealHost
from tests.on_gpu.nvcc import compiled
from tests.on_gpu.replay_kernels import CALLS, OTHERS, mix, mix_kernel, normal, warm_call
from tests.replay.on_cpu import with_node
from tests.results.measured import alone, present, record, run


def proved(call: Call) -> CapturedCall:
    device, cuda = find_device("cuda"), find_builder()
    captured = capture_call(call, device, cuda, libraries=True)
    prove(call, captured, device, cuda)
    return captured


REPLAYED = """
import sys
import torch
from pathlib import Path
from pytest_gpubench.correctness.leaves import tensors_of
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.replay.addresses import input_memory
from pytest_gpubench.replay.baselines import read_captured
from pytest_gpubench.replay.builder import find_builder
from pytest_gpubench.replay.capture import outputs_of
from pytest_gpubench.replay.proof import give
from pytest_gpubench.replay.replayed import memory_for, replaying
from pytest_gpubench.results.store import Storage
from pytest_gpubench.results.store.calls import CallStore
from tests.on_gpu.replay_kernels import CALLS, warm_call

device, cuda = find_device("cuda"), find_builder()
pad = torch.empty(12345678, device="cuda")  # so that nothing lies where it lay
for name, saved in zip(CALLS, sys.argv[2:], strict=True):
    data = read_captured(saved, CallStore(Path(sys.argv[1])))
    call = warm_call(*CALLS[name], seed=77)
    inputs = input_memory(call.inputs(), device.torch_device)
    memory = memory_for(data.data.regions, device.torch_device)
    with (
        cuda.loaded(data.data, data.images) as modules,
        replaying(data.data, modules, memory, cuda, device) as replayed,
    ):
        prepared = call.prepare()
        give(replayed, inputs)
        expected = {each: tensor.clone() for each, tensor in tensors_of(outputs_of(call, prepared()))}
        replayed.launch()
        for each, tensor in replayed.outputs():
            same = torch.equal(tensor, expected[each])
            near = torch.allclose(tensor, expected[each], rtol=1e-4, atol=1e-2)
            print(name, each, "equal" if same else "near" if near else "WRONG", sep=": ")
"""


def test_another_process_replays_what_was_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other inputs, elsewhere in memory: bit for bit, but for atomics, and code that was compiled again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = CallStore(tmp_path)
    names = [keep(proved(warm_call(*each)), store) for each in CALLS.values()]
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", REPLAYED, str(tmp_path), *names]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = [line.split(": ") for line in done.stdout.splitlines()]
    assert {name for name, _, _ in found} == set(CALLS)
    wrong = [
        line
        for line in found
        if line[2] != "equal" and (line[0].split(",")[0] not in ("sums", "compiled") or line[2] != "near")
    ]
    assert wrong == []


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("eager, both", "largest")])
def test_the_same_call_elsewhere_is_the_same_data(name: str) -> None:
    """But for kernels of torch that leave bytes unset in their parameters: they are timed though nothing changed."""
    first, second = (proved(warm_call(*CALLS[name], seed=seed)) for seed in (1, 2))
    assert (first.data, first.images) == (second.data, second.images)


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_replayed_says_why(name: str) -> None:
    make, function, reason = OTHERS[name]
    with pytest.raises(NotReplayable, match=reason):
        proved(warm_call(make, function, "forward"))


CODE = """
#include <cuda_runtime.h>
__device__ float factor = 2;
__global__ void scale(float *x, const float *table, int n) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) x[at] *= table ? *table : factor;
}
extern "C" int set_factor(float value) { return cudaMemcpyToSymbol(factor, &value, sizeof value); }
extern "C" int make_table(void **table) { return cudaMalloc(table, 512); }
extern "C" int launch(void *x, void *table, int n, void *stream) {
  scale<<<n / 256, 256, 0, (cudaStream_t)stream>>>((float *)x, (float *)table, n);
  return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return ctypes.CDLL(str(compiled(CODE, tmp_path_factory.mktemp("code"))))


@pytest.mark.parametrize(
    ("factor", "has_table", "reason"),
    [
        (2.0, False, ""),
        (3.0, False, "factor, a variable of a kernel's module, was written, or holds an address"),
        (2.0, True, "it uses memory that torch has not allocated"),
    ],
)
def test_what_no_parameter_leads_to_is_as_it_was_loaded(
    code: ctypes.CDLL, factor: float, has_table: bool, reason: str
) -> None:
    table = ctypes.c_void_p()
    assert not has_table or code.make_table(ctypes.byref(table)) == 0
    assert code.set_factor(ctypes.c_float(factor)) == 0

    def scaled(x: torch.Tensor) -> torch.Tensor:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        assert code.launch(ctypes.c_void_p(x.data_ptr()), table, x.numel(), stream) == 0
        return x

    call = warm_call(normal((1 << 20,)), scaled)
    if reason:
        with pytest.raises(NotReplayable, match=reason):
            proved(call)
    else:
        proved(call)


def elsewhere(call: CapturedCall) -> CapturedCall:
    """Return a call whose kernels write far beyond its memory."""
    (node,) = call.data.graph.nodes
    return with_node(call, pointers=tuple(msgspec.structs.replace(each, distance=2**44) for each in node.pointers))


def with_image(call: CapturedCall, image: bytes) -> CapturedCall:
    kernel = present(call.data.graph.nodes[0].kernel)
    changed = with_node(call, kernel=msgspec.structs.replace(kernel, image=sha256_of(image)))
    return CapturedCall(changed.data, {sha256_of(image): image})


def overwritten(image: bytes) -> bytes:
    """Return an image whose kernel is no instructions."""
    (code,) = [contents for name, _, contents in sections(image) if name.startswith(b".text.")]
    return image.replace(code, b"\xff" * len(code))


HOSTILE: dict[str, Callable[[CapturedCall], CapturedCall]] = {
    "memory of others": elsewhere,
    "overwritten image": lambda call: with_image(call, overwritten(next(iter(call.images.values())))),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_call_breaks_nothing_but_its_own_process(what: str) -> None:
    today = proved(warm_call(*CALLS["mix"]))
    plan = Plan("cold", None, None, 0.005, 1.0)
    pair = StoredPair(HOSTILE[what](today), today, parse_tolerance("median:2%"), Settings(), plan)
    with pytest.raises(NotReplayable) as found:
        compare_isolated(pair, print)
    print(what, found.value)
    assert float(torch.ones(1000, device="cuda").sum()) == 1000


def longer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute 4 % of it twice."""
    out = mix(x, y)
    mix_kernel[(x.numel() // 1024 * 4 // 100,)](x, y, out, x.numel(), BLOCK=1024)
    return out


SUITE = """
import os, torch
from tests.on_gpu.replay_kernels import mix, mix_kernel, normal
EXTRA = int(os.environ.get("EXTRA", "0"))

def changed(x, y):
    blocks = x.numel() // 1024
    kept, more = blocks + min(0, blocks * EXTRA // 100), max(0, blocks * EXTRA // 100)
    out = torch.empty(kept * 1024, device=x.device)
    mix_kernel[(kept,)](x, y, out, kept * 1024, BLOCK=1024)
    if more:
        mix_kernel[(more,)](x, y, out, kept * 1024, BLOCK=1024)
    return out

def test_it(gpu_bench):
    gpu_bench(changed, *normal((1 << 24,), (1 << 24,))(3))
"""


@pytest.mark.parametrize(
    ("extra", "status", "said"),
    [
        ("0", 0, "same code"),
        ("4", 1, "of its replayed time, wanted at most 1.02x"),
        ("-4", 0, "does not compute what the saved call does"),
    ],
)
def test_a_baseline_that_runs(extra: str, status: int, said: str, tmp_path: Path) -> None:
    """The same code passes without being timed; 4 % more blocks fail, and of 4 % fewer it says that they are wrong."""
    host = RealHost(tmp_path)
    host.write(SUITE)
    saved, output = host.run("--gpu-bench-sessions=1", "--gpu-bench-save=main")
    assert saved == 0, output
    compared, output = host.run(
        "--gpu-bench-sessions=1", "--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:2%", EXTRA=extra
    )
    assert compared == status, output
    assert said in " ".join(output.split())


def test_the_calls_of_saved_runs_are_searched_and_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight runs, the last three of which have 4 % more blocks, found without the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    inputs = normal((1 << 24,), (1 << 24,))
    calls = [keep(proved(warm_call(inputs, function, "forward")), CallStore(tmp_path)) for function in (mix, longer)]
    for number in range(1, 9):
        item = msgspec.structs.replace(alone("mix", 60.0), call=calls[number > 5])
        Storage(tmp_path).save_each(run(record(item, nodeid="test_it")), f"run{number}")

    def tool(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "pytest_gpubench", *words, "--storage", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    timed = tool("replay", "run1", "test_it")
    assert (timed.returncode, "mix takes " in timed.stdout) == (0, True), timed.stderr
    found = tool("bisect", "run1", "run8", "--replay", "test_it", "--fail-slower", "2%")
    assert found.returncode == 1, found.stderr
    assert "[mix] is slower since run 0006 (" in found.stdout
