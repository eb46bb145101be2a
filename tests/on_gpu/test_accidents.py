"""Candidates that are right where they are checked first, and not where they are timed; and their honest likes."""

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from pytest_gpubench import GpuBench, IncompleteRecords, InvalidResult, KernelsDiffer, UnfairComparison, WrongResult
from pytest_gpubench.gpu.persisting import load_driver, persisting_bytes
from tests.on_gpu.doubling import double, double_into, torch_double

LIMIT_PERSISTING_L2_CACHE_SIZE = 6

pytestmark = pytest.mark.filterwarnings("ignore:Please use the new API settings:UserWarning")

SMALL, BLOCK = 2**20, 1024
REMEMBERED = "returns what it had computed before: when the values of its inputs changed, in the same memory"


@triton.jit  # type: ignore[untyped-decorator]
def _slow(x, out, seen, count, MEMO: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute for long; with MEMO, only where the block's first elements are not those of the last call."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(x + at, mask=at < count, other=0.0)
    mark = tl.sum(tl.load(x + program * BLOCK + tl.arange(0, 32)))
    known = tl.load(seen + program)
    if (mark != known) | (program * 0 >= MEMO):
        value = given
        for _ in range(256):
            value = value * 0.9 + given * 0.05
        tl.store(out + at, value, mask=at < count)
        tl.store(seen + program, mark)


@triton.jit  # type: ignore[untyped-decorator]
def gpu_bench_read_flush(x, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Double, under the name of another kernel."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < count), mask=at < count)


@triton.jit  # type: ignore[untyped-decorator]
def cudaDeviceSynchronize(x, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Double, under the name of a call of the host."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < count), mask=at < count)


def launch(kernel: Any, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    return out


def replay(compute: Callable[..., torch.Tensor], token: Callable[[], object]) -> Callable[..., torch.Tensor]:
    """Return a function that computes once."""
    kept: list[torch.Tensor] = []

    def replaying(*args: torch.Tensor) -> torch.Tensor:
        token()
        if not kept:
            kept.append(compute(*args).clone())
        return kept[0]

    return replaying


# inputs


@pytest.mark.parametrize("call", [1, 6, 40])
def test_inputs_overwritten_in_a_timed_call(
    gpu_bench: GpuBench, x: torch.Tensor, token: Callable[[], object], call: int
) -> None:
    calls: list[int] = []

    def zeroing(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == call:
            double_into(x, torch.zeros_like(x))
        return x + x

    errors = (WrongResult, UnfairComparison, KernelsDiffer)
    with pytest.raises(errors, match=r"args\[0\]: the candidate overwrites it|changed args\[0\]|same kernels"):
        gpu_bench.compare(zeroing, torch_double, (x,))


def unusual(kind: str, device: torch.device) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    if kind == "integers":
        return (lambda x: x.sort().values), (torch.randint(2**31 - 1, (SMALL,), dtype=torch.int32, device=device),)
    if kind == "bools":
        return (lambda x: ~x), (torch.rand(SMALL, device=device) > 0.3,)
    if kind == "float8":
        return (lambda x: x.float() * 2), (torch.randn(SMALL, device=device).to(torch.float8_e4m3fn),)
    if kind == "expanded":
        return torch.matmul, (torch.randn(512, 1, device=device).expand(512, 512),) * 2
    if kind == "infinite":
        return torch.log, (torch.rand(SMALL, device=device).where(torch.rand(SMALL, device=device) > 0.1, 0.0),)
    with torch.inference_mode():
        return torch.matmul, (torch.randn(512, 512, device=device),) * 2


@pytest.mark.parametrize("kind", ["integers", "bools", "float8", "expanded", "infinite", "inference"])
@pytest.mark.parametrize("honest", [True, False])
def test_a_replay_for_unusual_inputs(gpu_bench: GpuBench, token: Callable[[], object], kind: str, honest: bool) -> None:
    reference, args = unusual(kind, gpu_bench.device)
    if honest:
        gpu_bench.compare({"honest": lambda *args: reference(*args)}, reference, args, reps=20)
        return
    with pytest.raises(InvalidResult, match=REMEMBERED):
        gpu_bench.compare(replay(reference, token), reference, args, reps=20)


@pytest.mark.parametrize("honest", [True, False])
def test_a_replay_where_setup_fills_one_buffer_again(
    gpu_bench: GpuBench, x: torch.Tensor, token: Callable[[], object], honest: bool
) -> None:
    buffer = x.clone()

    def refill() -> None:
        buffer.copy_(x)

    if honest:
        gpu_bench.compare({"in place": lambda x: x.mul_(2)}, torch_double, (buffer,), setup=refill, reps=20)
        return
    with pytest.raises(InvalidResult, match=REMEMBERED):
        gpu_bench.compare(replay(torch_double, token), torch_double, (buffer,), setup=refill, reps=20)


# results that others made, or nobody


def test_a_function_of_torch_that_a_candidate_wraps(
    gpu_bench: GpuBench, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = torch.mul

    def wrapping(x: torch.Tensor) -> torch.Tensor:
        monkeypatch.setattr(torch, "mul", lambda *args: original(*args))
        return x + x

    with pytest.raises(InvalidResult, match=r"^torch\.mul was replaced while the functions were compared"):
        gpu_bench.compare(wrapping, lambda x: torch.mul(x, 2), (x,), reps=20)


@pytest.mark.parametrize("memo", [True, False])
def test_a_kernel_that_knows_its_input_again(gpu_bench: GpuBench, x: torch.Tensor, memo: bool) -> None:
    out, blocks = torch.empty_like(x), triton.cdiv(SMALL, BLOCK)

    def slow(out: torch.Tensor, x: torch.Tensor, seen: torch.Tensor, memo: bool) -> torch.Tensor:
        _slow[(blocks,)](x, out, seen, SMALL, MEMO=int(memo), BLOCK=BLOCK)
        return out

    own, others = (torch.full((blocks,), float("nan"), device=x.device) for _ in range(2))

    def candidate(x: torch.Tensor) -> torch.Tensor:
        return slow(out, x, own, memo)

    def reference(x: torch.Tensor) -> torch.Tensor:
        return slow(torch.empty_like(x), x, others, False)

    comparison = gpu_bench.compare(candidate, reference, (x,), reps=40)
    assert comparison.speedup < 1.2, "what it remembers in its closure is put back before each rep"


# names


def test_work_between_the_reps_under_the_name_of_the_flush(
    gpu_bench: GpuBench, x: torch.Tensor, token: Callable[[], object]
) -> None:
    out = launch(gpu_bench_read_flush, x, torch.empty_like(x))

    def deferring(x: torch.Tensor) -> torch.Tensor:
        token()
        result = out[:]
        weakref.finalize(result, launch, gpu_bench_read_flush, x, out).atexit = False
        return result

    with pytest.raises(IncompleteRecords, match=r"outside of every rep \(gpu_bench_read_flush\)"):
        gpu_bench.compare(deferring, torch_double, (x,), reps=20)


@pytest.mark.parametrize("kernel", [gpu_bench_read_flush, cudaDeviceSynchronize])
@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_no_kernel_is_left_out_for_its_name(gpu_bench: GpuBench, x: torch.Tensor, kernel: Any, cache: Any) -> None:
    timing = gpu_bench.measure(lambda: (launch(kernel, x, torch.empty_like(x)), x + x), reps=20, cache=cache)
    assert [each.launches for each in timing.kernels] == [1, 1]
    assert timing.kernels[0].name == kernel.__name__


# caches and hosts


def test_cache_set_aside_in_the_candidates_calls_and_given_back_in_the_references(
    gpu_bench: GpuBench, x: torch.Tensor
) -> None:
    driver = load_driver()

    def limit(size: int) -> None:
        assert not driver.cuCtxSetLimit(LIMIT_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(size))

    def reference(x: torch.Tensor) -> torch.Tensor:
        limit(0)
        return x * 2

    def carving(x: torch.Tensor) -> torch.Tensor:
        limit(8 * 2**20)
        return x + x

    before = persisting_bytes(driver)
    with pytest.raises(InvalidResult, match="of the L2 cache were set aside for persisting data"):
        gpu_bench.compare(carving, reference, (x,), reps=20)
    limit(before)


def test_a_gpu_that_waits_for_the_host_is_flagged(gpu_bench: GpuBench) -> None:
    a, w = (torch.randn(64, 64, device=gpu_bench.device) / 32 for _ in range(2))

    def steps(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        value = a
        for _ in range(40):
            value = torch.tanh(value @ w + a)
        return value

    def on_the_host(a: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return steps(a.cpu(), w.cpu()).to(a.device)

    comparison = gpu_bench.compare(on_the_host, steps, (a, w), rtol=1e-3, atol=1e-3, reps=20)
    assert "idle" in comparison.timing.flags
    assert "idle" not in comparison.reference.flags


# gradients


class Remembering(torch.autograd.Function):
    kept: list[torch.Tensor] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return double(x.detach())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        if not Remembering.kept:
            Remembering.kept.append(grad * 2)
        return Remembering.kept[0].clone()


@pytest.mark.parametrize("backward", ["backward", "both"])
def test_a_gradient_that_is_remembered(gpu_bench: GpuBench, x: torch.Tensor, backward: Any) -> None:
    Remembering.kept.clear()
    x.requires_grad_()
    gpu_bench.compare({"honest": lambda x: x + x}, torch_double, (x,), backward=backward, reps=20)
    with pytest.raises(InvalidResult, match="returns what it had computed before"):
        gpu_bench.compare({"mine": Remembering.apply}, torch_double, (x,), backward=backward, reps=20)
