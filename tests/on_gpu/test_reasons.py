"""Reasons on the real thing: of a slower call the first names what was planted, of the same call none."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest
import torch

from pytest_gpubench import GpuBench, LimitBroken, Measurement
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.reasons import reasons
from tests.on_gpu import slowdown_after, slowdown_before
from tests.on_gpu.kernels import (
    COLUMNS,
    ROWS,
    doubling_kernel,
    numbered_kernel,
    row_sum_kernel,
    softmax_kernel,
    spinning_kernel,
    strided_kernel,
)
from tests.on_gpu.study.harness import bench_of, study_test_with

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
Timer = Literal["profiler", "wall"]
OneCall = Callable[[torch.Tensor], torch.Tensor]


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


def versions(name: str, blocks: int, *args: Any, **options: int) -> tuple[Function, Function]:
    """Return both versions of a kernel."""
    before, after = (
        partial(getattr(module, name)[(blocks,)], *args, **options) for module in (slowdown_before, slowdown_after)
    )
    return before, after


def loaded_twice() -> tuple[Function, Function]:
    x = torch.randn(ROWS * 8, COLUMNS, device="cuda")
    return versions("norm_kernel", len(x), x, torch.empty_like(x), COLUMNS, BLOCK=COLUMNS, num_warps=8)


def summed() -> tuple[Function, Function]:
    blocks = COUNT // 128
    return versions("sums_kernel", blocks, vector(), torch.zeros(blocks, device="cuda"), COUNT, BLOCK=128, num_warps=1)


def more_arithmetic() -> tuple[Function, Function]:
    return versions("polynomial_kernel", COUNT // BLOCK, vector(), vector(), COUNT, BLOCK=BLOCK)


def with_shared() -> tuple[Function, Function]:
    if not hasattr(torch.cuda, "_compile_kernel"):
        pytest.skip("needs torch 2.9")
    x, out = vector(), torch.empty(COUNT, device="cuda")
    kernel = torch.cuda._compile_kernel(TAKES_SHARED, "copy_kernel")
    kernel.set_shared_memory_config(96 * 1024)
    grid, block = (132 * 16, 1, 1), (128, 1, 1)
    return (
        lambda: kernel(grid, block, [x, out, COUNT], shared_mem=40 * 1024),
        lambda: kernel(grid, block, [x, out, COUNT], shared_mem=96 * 1024),
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
PLANTED: dict[str, tuple[Callable[[], tuple[Function, Function]], str, Timer]] = {
    "unrolling": (unrolled, "UNROLL 16 -> 1", "profiler"),
    "lost vector loads": (misaligned, "loads in its code 1 of 16 B -> ", "profiler"),
    "a row loaded twice": (loaded_twice, "loads in its code ", "profiler"),
    "more arithmetic": (more_arithmetic, "instructions in its code ", "profiler"),
    "a cast to float32": (
        changed(doubled, lambda x: doubled(x.float()), lambda: vector(torch.bfloat16)),
        "copy_kernel",
        "profiler",
    ),
    "uncoalesced strides": (strided, "across 1 -> variable", "profiler"),
    "shared memory that lowers residency": (with_shared, "so blocks per SM ", "profiler"),
    "a tail wave": (with_tail, "of the GPU idle in the last of its ", "profiler"),
    "atomics": (summed, "atomics in its code 0 -> 1", "profiler"),
    "another library kernel": (tf32_matmul, " in place of ", "profiler"),
    "a wait": (changed(doubled, waiting, lambda: vector()[:SMALL].clone()), "the host waits for the GPU", "wall"),
    "an allocation": (changed(doubled, allocating, vector), "GPU memory", "wall"),
    "recompilation": (numbered, "compiles 0 -> 1", "wall"),
}
"""Makers of a call before and after each cause, and what the first reason has to hold."""
BESIDE: dict[str, tuple[OneCall, OneCall, str]] = {
    "num_warps that spill": (
        lambda x: row_softmax(x, 8),
        lambda x: row_softmax(x, 1),
        "softmax_kernel: num_warps 8 -> 1, local memory of a thread 0 B -> ",
    ),
    "a copy": (doubled, lambda x: doubled(x.clone()), "one more kernel: Memcpy"),
    "fewer blocks": (doubled, lambda x: doubled(x, blocks=16), f"doubling_kernel: blocks {COUNT // 1024} -> 16, on "),
}
"""A reference, a candidate, and the beginning of the first reason why it is slower."""


def measured(function: Function, timer: Timer) -> Measurement:
    """Measure a call as a test of a run that is written as JSON does."""
    test = study_test_with(Limits(), seed=1)
    test = replace(test, settings=replace(test.settings, timer=timer, json="run.json"))
    bench_of(test).measure(function, label="call")
    return test.measurements[-1]


@pytest.mark.parametrize("planted", PLANTED)
def test_the_first_reason_names_the_cause_beside_an_older_run(planted: str) -> None:
    make, words, timer = PLANTED[planted]
    before, after = (measured(function, timer) for function in make())
    assert words in reasons(before, after)[0]


@pytest.mark.perf(min_speedup=1.0)
@pytest.mark.parametrize("planted", BESIDE)
def test_the_first_reason_names_the_cause_beside_a_reference(planted: str, gpu_bench: GpuBench) -> None:
    reference, candidate, words = BESIDE[planted]
    with pytest.raises(LimitBroken) as raised:
        gpu_bench.compare({"planted": candidate}, reference, args=(vector(),))
    assert str(raised.value).splitlines()[1].startswith(f"with it: {words}")


@pytest.mark.perf(min_speedup=1.5)
@pytest.mark.parametrize("number", range(20))
def test_the_same_call_has_no_reason(number: int, gpu_bench: GpuBench) -> None:
    functions: list[OneCall] = [doubled, lambda x: torch.softmax(x.view(1024, -1), -1), torch.nn.functional.gelu]
    function = functions[number % len(functions)]
    with pytest.raises(LimitBroken) as raised:
        gpu_bench.compare({"same": lambda x: function(x)}, function, args=(vector(),))
    assert len(str(raised.value).splitlines()) == 1
