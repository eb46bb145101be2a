"""What a call did, as far as it can be seen without a GPU: fakes stand for its counters, determinism is real."""

import array
import gc
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from types import FrameType, SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from pytest_gpubench import BadRequest, DeviceFacts, UnfairComparison
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.results.observed import AllocatedMemory, Observed
from pytest_gpubench.structure import is_deterministic, observation, observe
from pytest_gpubench.timing.base import Call, Prepared
from pytest_gpubench.timing.calls import Backward, make_arguments, make_call

pytestmark = pytest.mark.usefixtures("quick_collection")

GPU = Device(torch.device("cuda", 0), DeviceFacts(type="cuda", name="NVIDIA H200", host="here"))


def call_of(function: Callable[..., object], *args: object, backward: Backward = "forward") -> Call:
    return make_call(function, make_arguments(args), backward)


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[int | str]:
    """Return the debug modes set: the first was there before."""
    found: list[int | str] = [2]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: found[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", found.append)
    return found


@dataclass
class Allocator:
    """Torch's counters, as the functions under test move them."""

    in_use: int = 1000
    peak: int = 5000
    number: int = 7
    total: int = 9000
    resets: list[object] = field(default_factory=list)

    def take(self, size: int) -> None:
        self.in_use += size
        self.number += 1
        self.total += size
        self.peak = max(self.peak, self.in_use)

    def free(self, size: int) -> None:
        self.in_use -= size

    def stats(self, device: object = None) -> dict[str, int]:
        return {
            "allocation.all.allocated": self.number,
            "allocated_bytes.all.allocated": self.total,
            "allocated_bytes.all.current": self.in_use,
            "allocated_bytes.all.peak": self.peak,
        }

    def reset(self, device: object = None) -> None:
        self.resets.append(device)
        self.peak = self.in_use


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    found = Allocator()
    monkeypatch.setattr(torch.cuda, "memory_stats", found.stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", found.reset)
    return found


class Held:
    """Memory that is given back when nobody holds it any more."""

    def __init__(self, allocator: Allocator, size: int) -> None:
        self.allocator, self.size = allocator, size
        allocator.take(size)

    def __del__(self) -> None:
        self.allocator.free(self.size)


@pytest.fixture
def runtime() -> "Counter[str]":
    """What the call is recorded to ask the CUDA runtime for."""
    return Counter()


@pytest.fixture
def watched(
    allocator: Allocator, modes: list[int | str], runtime: "Counter[str]", monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], object]], Observed]:
    """Return what observes a function, on a GPU whose profiler records one wait and one launch too many."""
    recorded = itertools.cycle([Counter(), runtime])  # of nothing, and of the call

    def traced(device: Device, function: Callable[[], object]) -> observation.Trace:
        function()
        calls = Counter({"cudaDeviceSynchronize": 1, "cudaLaunchKernel": 1}) + next(recorded)
        return observation.Trace(calls, Counter({"add": 2}))

    monkeypatch.setattr(observation, "traced", traced)

    def watch(function: Callable[[], object]) -> Observed:
        found = observe(make_call(function), GPU)
        assert found is not None
        return found

    return watch


Watched = Callable[[Callable[[], object]], Observed]


# where the host waits


WAITING = (
    'import warnings\ndef call(): warnings.warn("called a synchronizing CUDA operation (Triggered at F.cpp:148.)")'
)


def waiting_in(filename: str) -> Callable[[], None]:
    """Return a function of a file, which makes torch wait."""
    namespace: dict[str, Any] = {}
    exec(compile(WAITING, filename, "exec"), namespace)
    return namespace["call"]  # type: ignore[no-any-return]


def wait_as_torch_does() -> None:
    warnings.warn("called a synchronizing CUDA operation (Triggered internally at F.cpp:148.)", stacklevel=1)


def test_a_warning_of_torch_is_a_wait_at_the_users_line(watched: Watched) -> None:
    [found] = watched(wait_as_torch_does).waits
    assert found.what.startswith('warnings.warn("called a synchronizing')
    assert found.where.startswith("tests/structure/test_structure.py:")
    assert str(found) == f"{found.what} ({found.where})"


def test_every_wait_counts_however_often_it_is_warned_of(watched: Watched) -> None:
    """Python shows a warning once a line, unless told otherwise; other warnings are no waits."""

    def wait() -> None:
        for _ in range(3):
            wait_as_torch_does()
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(watched(wait).waits) == 3


@pytest.mark.parametrize(
    ("filename", "where"),
    [
        (str(torch.__file__).replace("__init__", "nn/functional"), "tests/structure/test_structure.py:"),
        ("/tmp/torchinductor_me/ab/cab.py", "tests/structure/test_structure.py:"),
        (str(observation.__file__), "tests/structure/test_structure.py:"),
        ("/some/where/mytorch/kernels.py", "/some/where/mytorch/kernels.py:2"),
    ],
)
def test_frames_of_libraries_are_skipped(watched: Watched, filename: str, where: str) -> None:
    [found] = watched(lambda: waiting_in(filename)()).waits
    assert found.where.startswith(where)


def test_synchronise_called_from_python_is_seen(watched: Watched) -> None:
    """The debug mode does not see these; that of a stream it does. Where there is no GPU they raise."""
    stream = torch.Stream(0, 0, 1)

    def wait() -> None:
        with suppress(RuntimeError):
            torch._C._accelerator_synchronizeDevice(0)
        with suppress(RuntimeError):
            torch.Event().synchronize()
        with suppress(RuntimeError):
            stream.synchronize()

    assert [found.what.split("(")[0] for found in watched(wait).waits] == [
        "torch._C._accelerator_synchronizeDevice",
        "torch.Event",
    ]


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_everything_is_as_it_was(watched: Watched, modes: list[int | str], error: type[BaseException] | None) -> None:
    shown, filters, profile = warnings.showwarning, list(warnings.filters), sys.getprofile()

    def call() -> None:
        assert sys.getprofile() is not profile
        if error:
            raise error

    with pytest.raises(error) if error else nullcontext():
        watched(call)
    assert modes == [2, "warn", 2]
    assert (warnings.showwarning, list(warnings.filters), sys.getprofile()) == (shown, filters, profile)


def test_a_profile_that_somebody_else_takes_goes_on(watched: Watched) -> None:
    seen: list[str] = []

    def somebody_else(frame: FrameType, event: str, arg: object) -> None:
        seen.append(event)

    def call() -> None:
        assert sys.getprofile() is somebody_else

    sys.setprofile(somebody_else)
    try:
        watched(call)
        assert sys.getprofile() is somebody_else
    finally:
        sys.setprofile(None)
    assert seen


# what the runtime was asked for


def test_waits_and_allocations_of_the_runtime(watched: Watched, runtime: "Counter[str]") -> None:
    """A wait that is recorded as a call and as a wait is one; copies on a stream do not wait."""
    runtime.update(
        {
            "cudaStreamSynchronize": 2,
            "Stream Sync": 2,
            "Event Sync": 1,
            "Stream Wait Event": 4,
            "cudaStreamWaitEvent": 4,
            "cudaMemcpy": 1,
            "cudaMemcpyAsync": 5,
            "cudaMemcpy2DAsync": 1,
            "cudaMemcpyPeerAsync": 1,
            "cudaLaunchKernel": 9,
        }
    )
    runtime.update(["cudaMalloc", "cudaMallocAsync", "cudaFree", "cudaMallocHost", "cudaFreeHost"])
    found = watched(lambda: None)
    assert found.driver_allocations == {"cudaMalloc": 1, "cudaMallocAsync": 1, "cudaFree": 1}
    assert found.runtime_waits == {"cudaStreamSynchronize": 2, "cudaEventSynchronize": 1, "cudaMemcpy": 1}


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaMalloc_v3020", "cudaMalloc_ptsz", "cudaMalloc_v7000_ptsz"])
def test_versions_of_functions_are_left_out(name: str) -> None:
    assert observation.SYMBOL_VERSION.sub("", name) == "cudaMalloc"


# memory


def test_what_a_call_takes_at_once_with_its_outputs(watched: Watched, allocator: Allocator) -> None:
    """Inputs and earlier peaks do not count; what is freed in between does not add up."""

    def two_temporaries() -> Held:
        for _ in range(2):
            temporary = Held(allocator, 30)
            del temporary
        return Held(allocator, 100)

    found = watched(two_temporaries)
    assert found.memory == AllocatedMemory(allocations=3, allocated_bytes=160, peak_bytes=100, kept_bytes=0)
    assert allocator.in_use == 1000
    assert allocator.resets == [GPU.torch_device]


def test_what_is_kept_once_and_for_all_is_no_leak(watched: Watched, allocator: Allocator) -> None:
    workspace: list[Held] = []

    def lazy() -> None:
        if not workspace:
            workspace.append(Held(allocator, 64))

    found = watched(lazy)
    assert found.memory is not None
    assert (found.memory.kept_bytes, found.memory.peak_bytes) == (0, 64)


@pytest.mark.parametrize("leaks", [False, True])
def test_garbage_in_cycles_is_no_leak_and_that_of_before_hides_none(
    leaks: bool, watched: Watched, allocator: Allocator
) -> None:
    kept: list[object] = []

    def make_cycle(size: int) -> None:
        cycle: list[object] = [Held(allocator, size)]
        cycle.append(cycle)

    def leak() -> None:
        kept.append(Held(allocator, 64))
        gc.collect()

    gc.disable()
    try:
        make_cycle(500)
        found = watched(leak if leaks else lambda: make_cycle(64))
    finally:
        gc.enable()
    assert found.memory is not None
    assert found.memory.kept_bytes == 64 * leaks


def test_what_is_prepared_is_not_what_the_call_takes(watched: Watched, allocator: Allocator) -> None:
    def prepare() -> Prepared:
        inputs = Held(allocator, 500)
        return Prepared(lambda: (inputs, Held(allocator, 10))[1])

    found = observe(Call("f", prepare, prepare), GPU)
    assert found is not None
    assert found.memory == AllocatedMemory(allocations=1, allocated_bytes=10, peak_bytes=10, kept_bytes=0)


def test_kernels_and_compilations_are_observed(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = SimpleNamespace(jit_cache_hook=None, jit_post_compile_hook=None)
    monkeypatch.setitem(sys.modules, "triton.knobs", SimpleNamespace(runtime=hooks))

    def compiling() -> None:
        about = {"key": "a", "fn": SimpleNamespace(name="kernel")}
        hooks.jit_cache_hook(**about)
        hooks.jit_post_compile_hook(**about)

    found = watched(compiling)
    assert (found.kernels, found.compilations) == ({"add": 2}, 1)


def test_an_allocator_that_does_not_count(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: object) -> dict[str, int]:
        raise RuntimeError("pluggable allocator does not yet support getDeviceStats")

    monkeypatch.setattr(torch.cuda, "memory_stats", refuse)
    assert watched(lambda: None).memory is None
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {})
    assert watched(lambda: None).memory is None


def test_on_a_cpu_there_is_nothing_to_say() -> None:
    assert observe(call_of(lambda: 1 / 0), cpu_device()) is None


# whether it repeats itself


X = torch.arange(6.0)


class Other:
    """Give another number each time."""

    def __init__(self) -> None:
        self.number = 0.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.number += 1
        out = x.clone()
        out[3] += self.number
        return out


OBJECTS = iter([object() for _ in range(99)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: {"a": x + 1, "b": [x.sum().item(), None, "text"]},
        lambda x: x / 0 * 0,
        lambda x: torch.nn.functional.dropout(x),
        lambda x: x.to(torch.bfloat16).to(torch.complex64),
        lambda x: x[:0],
        lambda x: x.expand(3, 6).t(),
        lambda x: object(),
        lambda x: x.numpy(),
        lambda x: numpy.array([next(OBJECTS)]),
        lambda x: numpy.array([(next(OBJECTS),)], dtype=[("a", "O")]),
        lambda x: x.to_sparse(),
        lambda x: x.mul_(2),
        lambda x: x.add_(torch.rand(6)),
    ],
)
def test_what_repeats_itself(function: Callable[..., object]) -> None:
    """NaN is itself, random numbers begin at the same place, and what is overwritten is put back."""
    assert is_deterministic(call_of(function, X.clone())) == []


KINDS = (torch.float16, torch.int16)


@pytest.mark.parametrize(
    ("made_with", "names"),
    [
        (lambda other: other, ["out"]),
        (lambda other: lambda x: other(x).numpy(), ["out"]),
        (lambda other: lambda x: numpy.array([(other(x)[3].item(),)], dtype=[("Offset", "f4")]), ["out"]),
        (lambda other: lambda x: array.array("d", [other.number, other(x)[0]]), ["out"]),
        (lambda other: lambda x: (x, other(x)), ["out[1]"]),
        (lambda other: lambda x: {"loss": other(x).sum().item()}, ["out['loss']"]),
        (lambda other: lambda x: x.copy_(other(X)), ["out", "args[0]"]),
        (lambda other: lambda x: x.copy_(other(X)).sum().isnan().item(), ["args[0]"]),
        (lambda other: lambda x: x[: int(other(X)[3]) % 2], ["out"]),
        (lambda other: lambda x: x[:1] * (-1) ** int(other(X)[3]), ["out"]),
        (lambda other: lambda x: torch.zeros(2, dtype=KINDS[int(other(X)[3]) % 2]), ["out"]),
    ],
)
def test_what_does_not(made_with: Callable[[Other], Callable[..., object]], names: list[str]) -> None:
    """One element of one output is enough, and so is the sign of a zero, a shape or a dtype."""
    assert is_deterministic(call_of(made_with(Other()), X.clone())) == names


def test_one_different_call_of_many_is_found_if_it_is_among_them() -> None:
    def rarely(x: torch.Tensor, calls: list[int] = []) -> torch.Tensor:  # noqa: B006
        calls.append(1)
        return x + (len(calls) == 8)

    assert is_deterministic(call_of(rarely, X), reps=4) == []
    assert is_deterministic(call_of(rarely, X), reps=4) == ["out"]


class Scale(torch.autograd.Function):
    """Multiply; the gradient of the second factor is another in each call where there is noise."""

    calls = 0

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor, noise: float) -> torch.Tensor:
        context.noise = noise
        return x * weight

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        Scale.calls += 1
        return gradient, gradient + context.noise * Scale.calls, None


def scaled(x: torch.Tensor, weight: torch.Tensor, noise: float) -> torch.Tensor:
    return Scale.apply(x, weight, noise)  # type: ignore[no-any-return, no-untyped-call]


def leaf() -> torch.Tensor:
    return X.clone().requires_grad_()


Make = Callable[[float, Backward], Call]


def of_given(noise: float, backward: Backward) -> Call:
    weight = leaf()
    return call_of(lambda x: scaled(x, weight, noise), leaf(), backward=backward)


def of_a_module(noise: float, backward: Backward) -> Call:
    """The only leaf is a module's: what setup makes takes no gradient."""
    weight = torch.nn.Parameter(X.clone())
    return make_call(lambda x: scaled(x, weight, noise), make_arguments(setup=lambda: (X.clone(),)), backward)


@pytest.mark.parametrize("backward", ["backward", "both"])
@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("make", [of_given, of_a_module])
def test_gradients_are_outputs_of_a_backward_pass(make: Make, backward: Backward, noise: float) -> None:
    assert is_deterministic(make(noise, backward)) == (["parameter 0.grad"] if noise else [])


@pytest.mark.parametrize(
    ("backward", "name"), [("backward", "parameter 1.grad"), ("both", "args[1].grad")], ids=["backward", "both"]
)
@pytest.mark.parametrize("timed_before", [False, True])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_gradients_of_what_setup_makes_are_compared(
    backward: Backward, name: str, timed_before: bool, noise: float
) -> None:
    """Though in each call they are of other tensors."""
    call = make_call(scaled, make_arguments(setup=lambda: (leaf(), leaf(), noise)), backward)
    if timed_before:
        call.prepare()()
    assert is_deterministic(call) == ([name] if noise else [])


@pytest.mark.parametrize("backward", ["backward", "both"])
def test_leaves_by_turns_have_no_gradient_at_first_and_parameters_keep_their_names(backward: Backward) -> None:
    """Whatever the graph's nodes are hashed as, in each call another."""
    turns = itertools.cycle([leaf() for _ in range(3)])
    weights = [torch.full((6,), float(place), requires_grad=True) for place in range(8)]
    by_turns = make_call(torch.sin, make_arguments(setup=lambda: (next(turns),)), backward)
    of_many = call_of(lambda x: sum(x * weight**2 for weight in weights), X, backward=backward)
    assert (is_deterministic(by_turns), is_deterministic(of_many)) == ([], [])


def test_setup_that_draws_from_torch_is_fair_and_any_other_is_not() -> None:
    arguments = make_arguments(setup=lambda: (torch.rand(5),))
    assert is_deterministic(make_call(torch.sin, arguments)) == []
    numbers = iter(range(100))
    arguments = make_arguments(setup=lambda: (torch.full((5,), float(next(numbers))),))
    with pytest.raises(UnfairComparison, match=r"'sin' was to be called again .* args\[0\] holds others each time"):
        is_deterministic(make_call(torch.sin, arguments))
    with pytest.raises(BadRequest, match="there is nothing to compare"):
        is_deterministic(call_of(lambda: None))


def test_how_often_it_is_called_and_random_numbers_go_on_where_they_were() -> None:
    """Once to find what it overwrites, then as often as was asked."""
    calls = []

    def counting(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * torch.rand(6)

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    is_deterministic(call_of(counting, X), reps=3)
    assert len(calls) == 4
    assert torch.equal(torch.rand(3), expected)
