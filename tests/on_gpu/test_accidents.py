"""Candidates that change inputs, wrap torch, know their inputs again, or whose kernels have names of others."""

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from pytest_gpubench import GpuBench, InvalidResult, KernelsDiffer, UnfairComparison, WrongResult
from tests.on_gpu.doubling import double_into, torch_double

pytestmark = pytest.mark.filterwarnings("ignore:Please use the new API settings:UserWarning")

SMALL, BLOCK = 2**20, 1024


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


@pytest.mark.parametrize("call", [1, 6, 40])
def test_inputs_overwritten_in_a_timed_call(gpu_bench: GpuBench, x: torch.Tensor, call: int) -> None:
    calls: list[int] = []

    def zeroing(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == call:
            double_into(x, torch.zeros_like(x))
        return x + x

    errors = (WrongResult, UnfairComparison, KernelsDiffer)
    with pytest.raises(errors, match=r"args\[0\]: the candidate overwrites it|changed args\[0\]|same kernels"):
        gpu_bench.compare(zeroing, torch_double, (x,))


def test_a_function_of_torch_that_a_candidate_wraps(
    gpu_bench: GpuBench, x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = torch.mul

    def wrapping(x: torch.Tensor) -> torch.Tensor:
        monkeypatch.setattr(torch, "mul", lambda *args: original(*args))
        return x + x

    with pytest.raises(InvalidResult, match=r"^torch\.mul was replaced while the functions were compared"):
        gpu_bench.compare(wrapping, lambda x: torch.mul(x, 2), (x,), reps=20)


def test_a_kernel_that_knows_its_input_again(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    out, blocks = torch.empty_like(x), triton.cdiv(SMALL, BLOCK)
    own, others = (torch.full((blocks,), float("nan"), device=x.device) for _ in range(2))

    def slow(out: torch.Tensor, x: torch.Tensor, seen: torch.Tensor, memo: bool) -> torch.Tensor:
        _slow[(blocks,)](x, out, seen, SMALL, MEMO=int(memo), BLOCK=BLOCK)
        return out

    comparison = gpu_bench.compare(
        lambda x: slow(out, x, own, True), lambda x: slow(torch.empty_like(x), x, others, False), (x,), reps=40
    )
    assert comparison.speedup < 1.2, "what it remembers in its closure is put back before each rep"


@pytest.mark.parametrize("kernel", [gpu_bench_read_flush, cudaDeviceSynchronize])
@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_no_kernel_is_left_out_for_its_name(gpu_bench: GpuBench, x: torch.Tensor, kernel: Any, cache: Any) -> None:
    timing = gpu_bench.measure(lambda: (launch(kernel, x, torch.empty_like(x)), x + x), reps=20, cache=cache)
    assert [each.launches for each in timing.kernels] == [1, 1]
    assert timing.kernels[0].name == kernel.__name__
