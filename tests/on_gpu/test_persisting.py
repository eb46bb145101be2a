"""A call that sets L2 cache aside is refused; data of the highest priority, or that may persist, are flushed."""

import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from pytest_gpubench import GpuBench, InvalidResult
from pytest_gpubench.gpu.persisting import driver_library, persisting_bytes
from pytest_gpubench.timing import kernels
from tests.on_gpu.doubling import double, torch_double

LIMIT_PERSISTING_L2_CACHE_SIZE = 6


@triton.jit  # type: ignore[untyped-decorator]
def _row_sums(x, out, WIDTH: tl.constexpr, POLICY: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.load(x + tl.program_id(0) * WIDTH + tl.arange(0, WIDTH), eviction_policy=POLICY)
    tl.store(out + tl.program_id(0), tl.sum(row, 0))


def row_sums(x: torch.Tensor, policy: str = "") -> torch.Tensor:
    rows, width = x.shape
    out = x.new_empty(rows)
    _row_sums[(rows,)](x, out, WIDTH=width, POLICY=policy)
    return out


@pytest.fixture
def persisting() -> Iterator[Callable[[int], int]]:
    """Set L2 cache aside for persisting data: a limit of this process's context, no setting of the GPU.

    CUDA itself begins with 3/16 of the cache, 11.25 MiB on an H200.
    """
    driver = ctypes.CDLL("libcuda.so.1")

    def set_aside(size: int) -> int:
        return int(driver.cuCtxSetLimit(LIMIT_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(size)))

    torch.zeros(1, device="cuda")  # the context whose limit it is
    torch.cuda.synchronize()
    before = persisting_bytes(driver)
    if set_aside(before):
        pytest.skip("this GPU lets no cache be set aside")
    try:
        yield set_aside
    finally:
        set_aside(before)


@pytest.mark.parametrize("sixteenths", [0, 3])
def test_cache_set_aside_while_it_is_measured(
    gpu_bench: GpuBench, x: torch.Tensor, persisting: Callable[[int], int], sixteenths: int
) -> None:
    sixteenth = torch.cuda.get_device_properties(0).L2_cache_size // 16

    def carving(x: torch.Tensor) -> torch.Tensor:
        persisting(sixteenths * sixteenth)
        return double(x)

    persisting(sixteenth)
    before = persisting_bytes(driver_library())
    with pytest.raises(InvalidResult, match=r"a call changed how much of the L2 cache is set aside .* from .* to "):
        gpu_bench.compare(carving, torch_double, (x,))
    assert before <= persisting_bytes(driver_library()) < before + sixteenth
    gpu_bench.compare({"next": double}, torch_double, (x,), reps=20)


def test_a_hot_cache_may_be_set_aside(gpu_bench: GpuBench, x: torch.Tensor, persisting: Callable[[int], int]) -> None:
    persisting(8 * 2**20)
    gpu_bench.compare({"honest": double}, torch_double, (x,), reps=20, cache="hot")


@pytest.mark.parametrize(("cache", "rel"), [("cold", 0.05), ("dirty", 0.1)])
def test_what_is_loaded_with_the_highest_priority_is_flushed(gpu_bench: GpuBench, cache: Any, rel: float) -> None:
    """Was 1.11x after a flush of ordinary priority, on an H200; in a dirty cache such loads take 5 % less."""
    args = (torch.rand(1024, 1024, device="cuda"),)
    comparison = gpu_bench.compare(partial(row_sums, policy="evict_last"), row_sums, args, cache=cache)
    assert comparison.speedup == pytest.approx(1, abs=rel)
    timing = gpu_bench.measure(row_sums, (torch.rand(1024, 1024, device="cuda"),), cache=cache)  # was never so loaded
    assert comparison.reference.median_us == pytest.approx(timing.median_us, rel=rel)


class AccessPolicy(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("pad", ctypes.c_char * 40),
    )


@pytest.mark.parametrize("mebibytes", [4, 12])
def test_what_may_persist_is_flushed(gpu_bench: GpuBench, persisting: Callable[[int], int], mebibytes: int) -> None:
    """By an access policy of a stream, in cache that was set aside before."""
    x, side = torch.rand(1024, 1024, device="cuda"), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    persisting(mebibytes * 2**20)
    window, attribute = AccessPolicy(x.data_ptr(), x.nbytes, 1.0, 2, 1, b""), 1
    assert not driver_library().cuStreamSetAttribute(ctypes.c_void_p(side.cuda_stream), attribute, ctypes.byref(window))

    def keeping(x: torch.Tensor) -> torch.Tensor:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out = row_sums(x)
        torch.cuda.current_stream().wait_stream(side)
        return out

    comparison = gpu_bench.compare(keeping, row_sums, (x,))
    assert comparison.speedup == pytest.approx(1, abs=0.05)


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def test_a_chain_finds_what_it_wrote_in_the_cache(gpu_bench: GpuBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush leaves no priority, which the driver can take from all lines; with it this took 8 % longer."""
    x, flush_of = torch.randn(2048, 2048, device=gpu_bench.device), kernels.flush_of
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no such priority")

    def then_reset(*args: Any, **kwargs: Any) -> Callable[[], object]:
        flush = flush_of(*args, **kwargs)
        return lambda: (flush(), driver_library().cuCtxResetPersistingL2Cache())

    found = gpu_bench.measure(gelu, (x,), reps=60)
    monkeypatch.setattr(kernels, "flush_of", then_reset)
    assert gpu_bench.measure(gelu, (x,), reps=60).median_us == pytest.approx(found.median_us, rel=0.03)
