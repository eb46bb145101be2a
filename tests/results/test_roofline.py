"""Rates against peaks: the roof that applies, and impossible rates."""

from typing import Any

import msgspec
import pytest

from pytest_gpubench import Timing
from pytest_gpubench.results.model import MemoryPeak, Peaks
from pytest_gpubench.results.roofline import memory_gbps
from pytest_gpubench.verdict.limits.base import Seen
from pytest_gpubench.verdict.limits.rate import peak_fraction, too_fast
from tests.results.measured import timing_of

MB = 10**6
POINTS = tuple(
    MemoryPeak(read_share=share, moved_bytes=size * MB, gbps=gbps)
    for share, size, gbps in [
        (0.5, 10, 3000.0),  # launching takes its part
        (0.5, 100, 5000.0),  # the cache keeps much of what is written
        (0.5, 1000, 4000.0),
        (1.0, 10, 2500.0),
        (1.0, 100, 4200.0),
        (1.0, 1000, 4400.0),
    ]
)
PEAKS = Peaks(
    copy_gbps=4000.0,
    read_gbps=4400.0,
    matmul_tflops={"bfloat16": 800.0, "float32": 50.0},
    datasheet_gbps=4800.0,
    datasheet_tflops={"bfloat16": 989.4, "float32": 66.9, "tfloat32": 494.7},
    boost=1.08,
    memory=POINTS,
    cache_bytes=50 * MB,
)
BARE = Peaks(copy_gbps=4000.0, read_gbps=4400.0, matmul_tflops={"bfloat16": 800.0, "float32": 50.0})


def timing(samples_us: list[float] | None = None, **given: Any) -> Timing:
    return timing_of(samples_us or [100.0] * 20, **given)


# the roof


@pytest.mark.parametrize(
    ("megabytes", "read_share", "gbps"),
    [
        (1000, 0.5, 4000),
        (5000, 0.5, 4000),
        (999, 0.5, 5000),
        (100, 0.5, 5000),
        (99, 0.5, 5000),
        (1, 0.5, 5000),
        (1000, 1.0, 4400),
        (1, 1.0, 4400),
        (1000, None, 4400),
        (100, None, 5000),
        (1000, 0.0, 4000),
        (1000, 0.75, 2 / (1 / 4000 + 1 / 4400)),
        (1000, 0.6, 5 / (4 / 4000 + 1 / 4400)),
    ],
)
def test_the_fastest_at_this_size_or_above(megabytes: int, read_share: float | None, gbps: float) -> None:
    assert memory_gbps(PEAKS, megabytes * MB, read_share) == pytest.approx(gbps)


def fraction_of(what: Timing, peaks: Peaks, dtype: str | None = None) -> Any:
    return peak_fraction(Seen(what, peaks=peaks, dtype=dtype, read_share=0.5))


@pytest.mark.parametrize(
    ("tflops", "dtype", "peak"),
    [
        ({"float32": 50.0, "tfloat32": 400.0}, "float32", 50),
        ({"tfloat32": 400.0}, "float32", 400),
        ({"tfloat32": 400.0}, "bfloat16", None),
    ],
)
def test_float32_is_held_against_what_torch_makes_of_it(
    tflops: dict[str, float], dtype: str, peak: float | None
) -> None:
    found = fraction_of(timing(flops=1), Peaks(matmul_tflops=tflops), dtype)
    assert (found and found.peak) == peak


@pytest.mark.parametrize(
    ("given", "dtype", "value", "bound"),
    [
        ({"moved_bytes": 1000 * MB}, None, 0.5, "memory"),
        ({"flops": 4 * 10**11}, "bfloat16", 1.0, "matmul"),
        ({"moved_bytes": 1000 * MB, "flops": 10**11}, "bfloat16", 0.5, "memory"),
        ({"moved_bytes": 1000 * MB, "flops": 3 * 10**11}, "bfloat16", 0.75, "matmul"),
        ({"moved_bytes": 1000 * MB, "flops": 3 * 10**11}, "float64", 0.5, "memory"),
        ({"moved_bytes": 1000 * MB, "flops": 10**11, "cache": "hot"}, "bfloat16", 0.25, "matmul"),
        ({"moved_bytes": 1000 * MB, "cache": "dirty"}, None, 0.5, "memory"),
    ],
)
def test_the_larger_part_says_what_bounds_it(given: dict[str, Any], dtype: str, value: float, bound: str) -> None:
    found = fraction_of(timing([500.0] * 20, **given), PEAKS, dtype)
    assert found is not None
    assert (found.value, found.rate / found.peak) == pytest.approx((value, value))
    words = {
        "memory": "the 4,000 GB/s that this GPU's memory moves",
        "matmul": "the 800.0 TFLOP/s that this GPU's bfloat16 matmuls reach",
    }
    assert (found.bound, found.of) == (bound, words[bound])


@pytest.mark.parametrize("given", [{}, {"flops": 1}, {"moved_bytes": 1, "cache": "hot"}])
def test_no_part_without_a_peak_or_work(given: dict[str, Any]) -> None:
    assert fraction_of(timing(**given), PEAKS, "float64") is None
    assert fraction_of(timing(moved_bytes=1), Peaks()) is None


# physics


@pytest.mark.parametrize(
    ("peaks", "dtype", "per_us"),
    [
        (PEAKS, "", 1.02 * 4800e3),
        (BARE, "", 1.1 * 4400e3),
        (msgspec.structs.replace(PEAKS, read_gbps=4700.0), "", 1.1 * 4700e3),
        (Peaks(datasheet_gbps=1000.0), "", 1020e3),
        (Peaks(), "", None),
        (PEAKS, "bfloat16", 1.02 * 1.08 * 989.4e6),
        (PEAKS, "float32", 1.02 * 1.08 * 494.7e6),
        (PEAKS, "tfloat32", 1.02 * 1.08 * 494.7e6),
        (PEAKS, "float64", None),
        (PEAKS, None, None),
        (BARE, "bfloat16", 1.3 * 800e6),
        (BARE, "float32", None),
        (msgspec.structs.replace(PEAKS, matmul_tflops={"bfloat16": 1000.0}), "bfloat16", 1.1 * 1000e6),
    ],
)
def test_the_most_bytes_or_operations_in_a_microsecond(peaks: Peaks, dtype: str | None, per_us: float | None) -> None:
    """Bytes where the dtype is empty."""
    for share in (0.9999, 1.0001):
        work = 2**60 if per_us is None else round(share * per_us * 100) + (peaks.cache_bytes if dtype == "" else 0)
        given: dict[str, Any] = {"moved_bytes": work} if dtype == "" else {"flops": work}
        assert bool(too_fast(timing(**given), peaks, dtype)) is (per_us is not None and share > 1)


AT_THE_LIMIT = int(1.02 * 4800 * 100e3)


@pytest.mark.parametrize(
    ("given", "invalid"),
    [
        ({"moved_bytes": 10 * AT_THE_LIMIT, "cache": "hot"}, False),
        ({"moved_bytes": 10 * AT_THE_LIMIT, "cache": "dirty"}, True),
        ({"moved_bytes": 49 * MB, "samples_us": (1.0,) * 20}, False),
        ({"flops": 10**14, "cache": "hot"}, True),
        ({}, False),
    ],
)
def test_too_fast(given: dict[str, Any], invalid: bool) -> None:
    found = too_fast(timing(**given), PEAKS, "bfloat16")
    assert (found is not None) is invalid


def test_as_slow_as_its_interval_allows() -> None:
    work = AT_THE_LIMIT + 50 * MB + 1000
    mostly = [90.0] * 12 + [101.0] * 8
    assert too_fast(timing(mostly, moved_bytes=work), PEAKS) is None
    assert too_fast(timing(mostly, moved_bytes=work), PEAKS, alpha=0.9) is not None
    assert too_fast(timing([90.0, 99.0], moved_bytes=work), PEAKS) is not None
    assert too_fast(timing([90.0, 101.0], moved_bytes=work), PEAKS) is None
