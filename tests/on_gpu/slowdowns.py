"""Causes of a slowdown, planted: a call before and after, and the words that a first reason has to hold."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from tests.on_gpu import slowdown_after, slowdown_before
from tests.on_gpu.resource_kernels import COLUMNS, ROWS, softmax, softmax_kernel
from tests.on_gpu.slowdown_kernels import (
    doubling_kernel,
    numbered_kernel,
    row_sum_kernel,
    spinning_kernel,
    strided_kernel,
)

COUNT, BLOCK = 2**24, 1024
SPUN = 4000
"""Steps of a block that does nothing else."""
TAKES_SHARED = """
extern "C" __global__ void copy_kernel(const float* x, float* out, int count) {
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x)
        out[at] = 2 * x[at];
}
"""
Function = Callable[[], object]


@dataclass(frozen=True)
class Planted:
    """A cause, and what makes the calls before and after it."""

    name: str
    make: Callable[[], tuple[Function, Function]]
    words: str
    """What the first reason has to hold."""
    timer: Literal["profiler", "wall"] = "profiler"
    beside: Literal["", "faster clock before", "neighbour"] = ""
    """What is not in the calls."""


def vector(dtype: torch.dtype = torch.float32, more: int = 0) -> torch.Tensor:
    return torch.randn(COUNT + more, device="cuda").to(dtype)


def doubled(x: torch.Tensor, blocks: int = COUNT // BLOCK) -> torch.Tensor:
    out = torch.empty(x.shape, device=x.device)
    doubling_kernel[(blocks,)](x, out, x.numel(), BLOCK=BLOCK)
    return out


def row_softmax(x: torch.Tensor, warps: int) -> torch.Tensor:
    out = torch.empty_like(x)
    softmax_kernel[(COUNT // COLUMNS,)](x, out, COLUMNS, BLOCK=COLUMNS, num_warps=warps)
    return out


def changed(before: Callable[..., object], after: Callable[..., object], *make: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes both calls, of the same arguments."""

    def made() -> tuple[Function, Function]:
        args = [each() for each in make]
        return (lambda: before(*args)), (lambda: after(*args))

    return made


def misaligned() -> tuple[Function, Function]:
    storage = vector(torch.bfloat16, 64)
    return (lambda: doubled(storage[32 : 32 + COUNT])), (lambda: doubled(storage[33 : 33 + COUNT]))


def strided() -> tuple[Function, Function]:
    x = torch.randn(4096, 4096, device="cuda")
    out = torch.empty_like(x)
    return (
        lambda: strided_kernel[(4096,)](x, out, 4096, 1, 4096, BLOCK=4096),
        lambda: strided_kernel[(4096,)](x, out, 4096, 4096, 1, BLOCK=4096),
    )


def unrolled() -> tuple[Function, Function]:
    x, out = torch.randn(2048, 16384, device="cuda"), torch.empty(2048, device="cuda")
    call = partial(row_sum_kernel[(2048,)], x, out, x.shape[1], BLOCK=128, num_warps=1)
    return partial(call, UNROLL=16), partial(call, UNROLL=1)


def loaded_twice() -> tuple[Function, Function]:
    x = torch.randn(ROWS * 8, COLUMNS, device="cuda")
    out = torch.empty_like(x)
    before, after = (
        (lambda kernel=kernel: kernel[(x.shape[0],)](x, out, COLUMNS, BLOCK=COLUMNS, num_warps=8))
        for kernel in (slowdown_before.norm_kernel, slowdown_after.norm_kernel)
    )
    return before, after


def summed() -> tuple[Function, Function]:
    x, out = vector(), torch.zeros(COUNT // 128, device="cuda")
    before, after = (
        (lambda kernel=kernel: kernel[(COUNT // 128,)](x, out, COUNT, BLOCK=128, num_warps=1))
        for kernel in (slowdown_before.sums_kernel, slowdown_after.sums_kernel)
    )
    return before, after


def more_arithmetic() -> tuple[Function, Function]:
    x, out = vector(), torch.empty(COUNT, device="cuda")
    before, after = (
        partial(module.polynomial_kernel[(COUNT // BLOCK,)], x, out, COUNT, BLOCK=BLOCK)
        for module in (slowdown_before, slowdown_after)
    )
    return before, after


def with_shared() -> tuple[Function, Function]:
    x, out = vector(), torch.empty(COUNT, device="cuda")
    kernel = torch.cuda._compile_kernel(TAKES_SHARED, "copy_kernel")
    kernel.set_shared_memory_config(100 * 1024)
    grid, block = (132 * 16, 1, 1), (128, 1, 1)
    return (
        lambda: kernel(grid, block, [x, out, COUNT], shared_mem=40 * 1024),
        lambda: kernel(grid, block, [x, out, COUNT], shared_mem=100 * 1024),
    )


def with_tail() -> tuple[Function, Function]:
    blocks = 2 * torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.empty((blocks + 1) * 1024, device="cuda")
    before, after = (
        partial(spinning_kernel[(number,)], out, SPUN, BLOCK=1024, num_warps=32) for number in (blocks, blocks + 1)
    )
    return before, after


def tf32_matmul() -> tuple[Function, Function]:
    a, b = (torch.randn(2048, 2048, device="cuda") for _ in range(2))

    def call(allowed: bool) -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = allowed
        found = a @ b
        torch.backends.cuda.matmul.allow_tf32 = False
        return found

    return (lambda: call(True)), (lambda: call(False))


def waiting(x: torch.Tensor) -> torch.Tensor:
    return doubled(x) if x[0].item() < 100 else x


def allocating(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.empty_cache()
    scratch = torch.empty_like(x)
    out = doubled(x)
    del scratch
    return out


def numbered() -> tuple[Function, Function]:
    x, out, numbers = vector(), torch.empty(COUNT, device="cuda"), itertools.count()
    call = partial(numbered_kernel[(COUNT // BLOCK,)], x, out, COUNT, BLOCK=BLOCK)
    return partial(call, NUMBER=0), (lambda: call(NUMBER=next(numbers)))


SMALL = 2**16
PLANTED = (
    Planted("a spill by num_warps", lambda: (softmax(8), softmax(1)), "local memory of a thread 0 B -> "),
    Planted("unrolling", unrolled, "UNROLL 16 -> 1"),
    Planted("lost vector loads", misaligned, "loads in its code 1 of 16 B -> "),
    Planted("a row loaded twice", loaded_twice, "loads in its code "),
    Planted("more arithmetic", more_arithmetic, "instructions in its code "),
    Planted(
        "a cast to float32",
        changed(doubled, lambda x: doubled(x.float()), lambda: vector(torch.bfloat16)),
        "copy_kernel",
    ),
    Planted("uncoalesced strides", strided, "across 1 -> variable"),
    Planted("shared memory that lowers residency", with_shared, "so blocks per SM "),
    Planted("a tail wave", with_tail, "of the GPU idle in the last of its "),
    Planted("atomics", summed, "atomics in its code 0 -> 1"),
    Planted("another library kernel", tf32_matmul, " in place of "),
    Planted(
        "a wait", changed(doubled, waiting, lambda: vector()[:SMALL].clone()), "the host waits for the GPU", "wall"
    ),
    Planted("an allocation", changed(doubled, allocating, vector), "GPU memory", "wall"),
    Planted("recompilation", numbered, "compiles 0 -> 1", "wall"),
    Planted("a lower clock", changed(doubled, doubled, vector), "SM clock", beside="faster clock before"),
    Planted("a hot neighbour", changed(doubled, doubled, vector), "busy", beside="neighbour"),
)
