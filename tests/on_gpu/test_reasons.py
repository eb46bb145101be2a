"""Reasons on the real thing: of a slower call the first names what was planted, of the same call none."""

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

from pytest_gpubench import GpuBench, LimitBroken
from tests.on_gpu.resource_kernels import COLUMNS, ROWS, softmax_kernel

COUNT, BLOCK = 2**24, 1024
OneCall = Callable[[torch.Tensor], torch.Tensor]


@triton.jit  # type: ignore[untyped-decorator]
def doubling_kernel(x, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Double all elements, with as many blocks as are launched."""
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        values = tl.load(x + offsets, mask=offsets < count).to(tl.float32)
        tl.store(out + offsets, 2 * values, mask=offsets < count)


@triton.jit  # type: ignore[untyped-decorator]
def strided_kernel(x, out, columns, across, down, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Double a matrix row by row, whose elements lie so far apart."""
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * down + offsets * across, mask=offsets < columns)
    tl.store(out + tl.program_id(0) * down + offsets * across, 2 * values, mask=offsets < columns)


def doubled(x: torch.Tensor, out: torch.Tensor | None = None, blocks: int = COUNT // BLOCK) -> torch.Tensor:
    out = torch.empty(x.shape, device=x.device) if out is None else out
    doubling_kernel[(blocks,)](x, out, x.numel(), BLOCK=BLOCK)
    return out


def softmax(x: torch.Tensor, warps: int) -> torch.Tensor:
    out = torch.empty_like(x)
    softmax_kernel[(ROWS,)](x, out, COLUMNS, BLOCK=COLUMNS, num_warps=warps)
    return out


def by_rows(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    strided_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(1), x.stride(0), BLOCK=x.shape[1])
    return out


def by_columns(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    strided_kernel[(x.shape[1],)](x, out, x.shape[0], x.stride(0), x.stride(1), BLOCK=x.shape[0])
    return out


def vector(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(COUNT, device="cuda", dtype=dtype)


def matrix(rows: int = ROWS, columns: int = COLUMNS) -> torch.Tensor:
    return torch.randn(rows, columns, device="cuda")


PLANTED: dict[str, tuple[Callable[[], torch.Tensor], OneCall, OneCall, tuple[str, ...]]] = {
    "num_warps that spill": (
        matrix,
        lambda x: softmax(x, 8),
        lambda x: softmax(x, 1),
        ("softmax_kernel: local memory of a thread 0 B -> ",),
    ),
    "a copy": (vector, doubled, lambda x: doubled(x.clone()), ("one more kernel: ", "Memcpy")),
    "a cast": (
        lambda: vector(torch.bfloat16),
        doubled,
        lambda x: doubled(x.float()),
        ("one more kernel: ", "opy"),
    ),
    "fewer blocks than multiprocessors": (
        vector,
        doubled,
        lambda x: doubled(x, blocks=16),
        (f"doubling_kernel: blocks {COUNT // BLOCK} -> 16, on ",),
    ),
    "an allocation that is filled": (
        vector,
        doubled,
        lambda x: doubled(x, torch.zeros(x.shape, device=x.device)),
        ("one more kernel: ", "(Fill|Memset)"),
    ),
}
"""Inputs, a call, the same with something planted, and patterns of the first reason in their order."""


@pytest.mark.perf(min_speedup=1.0)
@pytest.mark.parametrize("planted", PLANTED)
def test_the_first_reason_names_the_cause(planted: str, gpu_bench: GpuBench) -> None:
    make, reference, candidate, patterns = PLANTED[planted]
    with pytest.raises(LimitBroken) as raised:
        gpu_bench.compare({"planted": candidate}, reference, args=(make(),))
    first = raised.value.args[0].splitlines()[1]
    assert first.startswith(f"with it: {patterns[0]}")
    for pattern in patterns[1:]:
        raised.match(rf"\nwith it: [^\n]*{pattern}")


@pytest.mark.perf(min_speedup=1.0)
def test_strides_are_seen_by_counters_only(gpu_bench: GpuBench) -> None:
    """Accesses that are not coalesced change no resource but registers: nothing else is blamed."""
    with pytest.raises(LimitBroken) as raised:
        gpu_bench.compare({"planted": by_columns}, by_rows, args=(matrix(4096, 4096),))
    reasons = str(raised.value).splitlines()[1:]
    assert all(each.startswith("with it: strided_kernel: registers ") for each in reasons)


@pytest.mark.perf(min_speedup=1.5)
@pytest.mark.parametrize("number", range(20))
def test_the_same_call_has_no_reason(number: int, gpu_bench: GpuBench) -> None:
    functions: list[OneCall] = [doubled, lambda x: torch.softmax(x.view(1024, -1), -1), torch.nn.functional.gelu]
    function = functions[number % len(functions)]
    with pytest.raises(LimitBroken) as raised:
        gpu_bench.compare({"same": lambda x: function(x)}, function, args=(vector(),))
    assert len(str(raised.value).splitlines()) == 1
