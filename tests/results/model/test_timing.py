"""Statistics of a timing; a timing without samples has none."""

import math
from functools import cached_property

import pytest

from pytest_gpubench import NotMeasured, Timing
from tests.results.measured import kernel as kernel_of
from tests.results.measured import timing_of as timing

UNMEASURED = timing(unmeasured="switched off by --gpu-bench-disable")

KERNELS = tuple(kernel_of(name, launches, 1.0) for name, launches in [("a", 2), ("b", 3)])
SIX = timing(
    (9.0, 1.0, 3.0, 2.0, 5.0, 4.0),
    busy_us=(1.0, 2.0, 8.0),
    span_us=(7.0, 8.0),
    sm_clock_mhz=(1980.0, 1970.0),
    kernels=KERNELS,
)


@pytest.mark.parametrize(
    ("name", "of_six", "of_one"),
    [
        ("reps", 6, 1),
        ("median_us", 3.5, 3.0),
        ("mean_us", 4.0, 3.0),
        ("min_us", 1.0, 3.0),
        ("max_us", 9.0, 3.0),
        ("std_us", math.sqrt(40 / 5), math.nan),
        ("rel_std", math.sqrt(40 / 5) / 4, math.nan),
        ("quartiles_us", (2.25, 3.5, 4.75), (3.0, 3.0, 3.0)),
        ("median_interval_us", (1.0, 9.0), None),
        ("median_busy_us", 2.0, None),
        ("median_span_us", 7.5, None),
        ("median_sm_clock_mhz", 1975.0, None),
        ("launches", 5, 0),
    ],
)
def test_numbers(name: str, of_six: object, of_one: object) -> None:
    """Of one sample no spread is known; without records there is neither busy nor span."""
    assert getattr(SIX, name) == pytest.approx(of_six, rel=1e-12)
    assert getattr(timing((3.0,)), name) == pytest.approx(of_one, nan_ok=True)


PROPERTIES = {name for name, value in vars(Timing).items() if isinstance(value, (property, cached_property))}
KNOWN_WITHOUT_SAMPLES: dict[str, object] = {
    **dict.fromkeys(("cycles", "memory_clock_mhz", "temperature_c", "power_w", "throttle_masks", "resources"), ()),
    **dict.fromkeys(("median_cycles", "median_busy_us", "median_span_us", "median_sm_clock_mhz"), None),
    **dict.fromkeys(("max_temperature_c", "gbps", "tflops"), None),
    "measured": False,
    "reps": 0,
    "launches": 0,
}


@pytest.mark.parametrize("name", sorted(PROPERTIES - KNOWN_WITHOUT_SAMPLES.keys()))
def test_no_number_comes_from_no_samples(name: str) -> None:
    with pytest.raises(NotMeasured, match="'softmax' has no numbers: switched off by --gpu-bench-disable"):
        getattr(UNMEASURED, name)


@pytest.mark.parametrize("name", KNOWN_WITHOUT_SAMPLES)
def test_what_is_known_without_samples(name: str) -> None:
    assert getattr(UNMEASURED, name) == KNOWN_WITHOUT_SAMPLES[name]


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (timing((12.3456,)), "softmax: 12.35 us (median of 1 rep, cold, profiler)"),
        (timing((999.999, 999.999)), "softmax: 1.000 ms (median of 2 reps, cold, profiler)"),
        (timing((1.0, 2.0, 9.0)), "softmax: 2.000 us (median of 3 reps, cold, profiler)"),
        (UNMEASURED, "softmax: not measured (switched off by --gpu-bench-disable)"),
    ],
)
def test_a_timing_reads_as_one_line(subject: Timing, text: str) -> None:
    assert str(subject) == text
