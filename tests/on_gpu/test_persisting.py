"""A call that sets L2 cache aside for its data, or gives it the highest priority, has a cold cache."""

import ctypes
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
import triton
import triton.language as tl

from pytest_gpubench import GpuBench, InvalidResult
from pytest_gpubench.gpu.persisting import load_driver, persisting_bytes
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


@pytest.mark.parametrize("mebibytes", [2, 8])
def test_cache_set_aside_while_it_is_measured(
    gpu_bench: GpuBench, x: torch.Tensor, persisting: Callable[[int], int], mebibytes: int
) -> None:
    def carving(x: torch.Tensor) -> torch.Tensor:
        persisting(mebibytes * 2**20)
        return double(x)

    persisting(4 * 2**20)
    with pytest.raises(InvalidResult, match="of the L2 cache were set aside for persisting data while it was measured"):
        gpu_bench.compare(carving, torch_double, (x,))
    # as it was when the measuring began: the check had run the candidate before that
    assert mebibytes * 2**20 <= persisting_bytes(load_driver()) <= (mebibytes + 4) * 2**20
    gpu_bench.compare({"next": double}, torch_double, (x,), reps=20)


def test_as_cuda_sets_the_cache_aside_nothing_is_raised_or_changed(
    gpu_bench: GpuBench, x: torch.Tensor, persisting: Callable[[int], int]
) -> None:
    before = persisting_bytes(load_driver())
    seen: set[int] = set()

    def looking(x: torch.Tensor) -> torch.Tensor:
        seen.add(persisting_bytes(load_driver()))
        return double(x)

    gpu_bench.compare(looking, torch_double, (x,), reps=20)
    assert seen == {before, 0}  # in the check, and where it is timed
    assert persisting_bytes(load_driver()) == before


def test_cache_set_aside_by_the_first_call_is_cold_where_it_is_timed(
    gpu_bench: GpuBench, x: torch.Tensor, persisting: Callable[[int], int]
) -> None:
    """The first calls are the check's: nothing to raise, as nothing is gained."""
    calls: list[int] = []
    limits: list[int] = []

    def carving(x: torch.Tensor) -> torch.Tensor:
        if not calls:
            persisting(8 * 2**20)
        calls.append(1)
        limits.append(persisting_bytes(load_driver()))
        return double(x)

    gpu_bench.compare(carving, torch_double, (x,), reps=20)
    assert limits[0] >= 8 * 2**20
    assert set(limits[-20:]) == {0}
    assert persisting_bytes(load_driver()) == limits[0]


def test_a_hot_cache_may_be_set_aside(gpu_bench: GpuBench, x: torch.Tensor, persisting: Callable[[int], int]) -> None:
    persisting(8 * 2**20)
    gpu_bench.compare({"honest": double}, torch_double, (x,), reps=20, cache="hot")


def test_what_is_loaded_with_the_highest_priority_is_cold(gpu_bench: GpuBench) -> None:
    """Was 1.11x after a flush of ordinary priority, on an H200."""
    args = (torch.rand(1024, 1024, device="cuda"),)
    comparison = gpu_bench.compare(partial(row_sums, policy="evict_last"), row_sums, args)
    assert comparison.speedup == pytest.approx(1, abs=0.05)
