"""What two measurements say together: what was found, next to what is tolerated."""

import msgspec
import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.process_spread import ProcessSpread
from pytest_gpubench.stats.regression import ChangeEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.verdict.decision import tick_of
from pytest_gpubench.verdict.regression import Change, judge_change
from pytest_gpubench.verdict.sessions import Sessions, compare_measurements
from tests.results.measured import ALPHA, alone, pair, present, timing


def measured(ratio: float, low: float, high: float, metric: str = "median") -> ChangeEstimate:
    interval = Interval(low, high)
    difference = None if metric == "speedup" else Interval(289 * low - 289, 289 * high - 289)
    values = (1.95, 1.95 / ratio) if metric == "speedup" else (289.0, 289 * ratio)
    return ChangeEstimate(ratio, interval, metric, ALPHA, *values, difference, (60, 60))


def judged(estimate: ChangeEstimate, tolerance: str) -> Change:
    times_us = (289, 312) if estimate.metric == "speedup" else (estimate.old, estimate.new)
    found = Change("test_it", "softmax", Outcome.NOT_JUDGED, "")
    return judge_change(found, estimate, parse_tolerance(tolerance), "the baseline 'main'", *times_us)


FEW, FEW_QUADS = (
    ChangeEstimate(1.5, None, metric, ALPHA, 289, 433.5, None, (5, 1)) for metric in ("median", "speedup")
)
SLOWER, CLOSE = measured(1.081, 1.078, 1.084), measured(1.0502, 1.05004, 1.0504)


@pytest.mark.parametrize(
    ("estimate", "tolerance", "words"),
    [
        (
            SLOWER,
            "median:5%",
            "softmax is slower than in the baseline 'main': 1.081x [1.078, 1.084] of its median, wanted at most 1.05x "
            "(312.4 us against 289.0 us, 60 and 60 reps, 99.9 % interval)",
        ),
        (
            measured(1.081, 1.078, 1.084, "speedup"),
            "speedup:3%",
            "softmax is slower against its reference than in the baseline 'main': 1.081x [1.078, 1.084] of its "
            "relative time, wanted at most 1.03x (speedup 1.804x against 1.950x, 312.0 us against 289.0 us, "
            "60 and 60 quads, 99.9 % interval)",
        ),
        (SLOWER, "median:5us", "of its median, by 23.41 us [22.54 us, 24.28 us], wanted at most 5 us more ("),
        (CLOSE, "median:5%", ": 1.05020x [1.05004, 1.05040] of its median, wanted at most 1.05x ("),
        (CLOSE, "median:14.46us", ", by 14.508 us [14.462 us, 14.566 us], wanted at most 14.46 us more ("),
        (measured(1.05, 1.04, 1.06), "q1:5%", "is slower than in the baseline 'main', too close to the limit to tell:"),
        (measured(1.0, 0.99, 1.01), "median:5%", "is as fast as in the baseline 'main': 1.000x"),
        (measured(1.02, 1.01, 1.03), "median:5%", "is slower than in the baseline 'main', within what is tolerated: "),
        (measured(0.9, 0.89, 0.91), "median:5%", "is faster than in the baseline 'main': 0.9000x"),
        (measured(2.0, 0.1, 10.0), "median:5%", "too close to tell: 2.000x [0.1000, 10.00] of its median"),
        (FEW, "median:5%", "cannot be compared with what it was in the baseline 'main': 1.500x of its median, wanted"),
        (FEW, "median:5%", "1 and 5 reps, too few for the 99.9 % interval: take at least 11 reps in both)"),
        (FEW_QUADS, "speedup:5%", "1 and 5 quads, too few for the 99.9 % interval: take at least 22 reps in both)"),
    ],
)
def test_sentences_say_what_was_found_and_wanted(estimate: ChangeEstimate, tolerance: str, words: str) -> None:
    assert words in judged(estimate, tolerance).sentence


@pytest.mark.parametrize(
    ("low", "high", "tolerance", "outcome"),
    [
        (1.0501, 1.06, "median:5%", Outcome.FAIL),
        (1.0499, 1.06, "median:5%", Outcome.INCONCLUSIVE),
        (0.9, 1.0499, "median:5%", Outcome.PASS),
        (1 + 5.01 / 289, 1.1, "median:5us", Outcome.FAIL),
        (1 + 4.99 / 289, 1.1, "median:5us", Outcome.INCONCLUSIVE),
        (1.0, 1 + 4.99 / 289, "median:5us", Outcome.PASS),
    ],
)
def test_outcomes_change_at_the_tolerance(low: float, high: float, tolerance: str, outcome: Outcome) -> None:
    assert judged(measured((low + high) / 2, low, high), tolerance).outcome is outcome


@pytest.mark.parametrize(
    ("high", "tolerance", "stale"),
    [
        (0.9499, "median:5%", True),
        (0.9501, "median:5%", False),
        (1 - 5.01 / 289, "median:5us", True),
        (1 - 4.99 / 289, "median:5us", False),
    ],
)
def test_a_baseline_is_stale_where_all_is_faster_beyond_tolerance(high: float, tolerance: str, stale: bool) -> None:
    notes = judged(measured(0.8, 0.7, high), tolerance).notes
    told = "baseline stale: softmax is faster than the baseline, 1.250x as fast as in the baseline 'main'; save a new "
    assert [each.startswith(told) for each in notes] == [True] * stale
    for text in ("median:5%", "median:5us"):
        assert not judged(ChangeEstimate(0.5, None, "median", ALPHA, 289, 144.5), text).notes


def compared(old: Measurement, new: Measurement, tolerance: str) -> Change:
    """Return the change where processes differ by nothing but what their samples show."""
    alike = Sessions(suite={each: ProcessSpread(1e-12, 1000) for each in ("time", "speedup")})
    return compare_measurements(old, new, parse_tolerance(tolerance), ALPHA, "the baseline 'main'", alike)


def metric_of(old: Measurement, new: Measurement, tolerance: str = "speedup:3%") -> str:
    estimate = present(compared(old, new, tolerance).estimate)
    return estimate.metric


def test_a_speedup_falls_back_on_the_median_where_there_is_none() -> None:
    candidate = pair("mine", 200)[1]
    assert metric_of(candidate, candidate) == "speedup"
    assert metric_of(alone(), alone()) == "median"
    without = msgspec.structs.replace(present(candidate.speedup), log_ratios=())
    bare = msgspec.structs.replace(candidate, speedup=without)
    assert metric_of(bare, candidate) == "median"
    assert metric_of(candidate, candidate, "q1:3%") == "q1"


@pytest.mark.parametrize(
    ("timer", "old_us", "new_us", "outcome"),
    [
        ("wall", [1.0] * 30, [1.19] + [8.0] * 29, Outcome.INCONCLUSIVE),
        ("wall", [1.0] * 30, [1.21] + [8.0] * 29, Outcome.FAIL),
        ("wall", [1.0] * 30, [2.7] + [8.0] * 29, Outcome.FAIL),  # not held up
        ("wall", [1.0] + [4.0] * 29, [1.0] + [8.0] * 29, Outcome.FAIL),  # held up, as the older run was
        ("profiler", [1.0] * 30, [1.19] + [8.0] * 29, Outcome.FAIL),
    ],
)
@pytest.mark.parametrize("tolerance", ["median:20%", "mean:20%", "median:0.2us"])
def test_the_fastest_rep_may_be_all_that_a_held_up_call_takes(
    timer: str, old_us: list[float], new_us: list[float], outcome: Outcome, tolerance: str
) -> None:
    old, new = (
        Measurement(timing=timing("x", 1, samples_us=tuple(samples_us), timer=timer)) for samples_us in (old_us, new_us)
    )
    assert compared(old, new, tolerance).outcome is outcome


@pytest.mark.parametrize(
    ("timer", "off_us", "ticks"), [("profiler", 0.001, 2), ("profiler", 0.004, 0), ("wall", 0.0, 0)]
)
def test_a_tick_is_seen_where_the_profiler_shows_it(timer: str, off_us: float, ticks: int) -> None:
    """Of readings that are rounded to whole nanoseconds."""
    from pytest_gpubench.timing.profiler import ProfilerTimer

    exact, rounded = (tuple(0.032 * (90 + step % 3) + each for step in range(30)) for each in (0.0, off_us))
    old, new = timing("x", 3, samples_us=exact), timing("x", 3, samples_us=rounded, timer=timer)
    assert tick_of(old) == ProfilerTimer.tick_us
    assert tick_of(old, new) == ticks / 2 * ProfilerTimer.tick_us
    estimate = present(compared(Measurement(timing=old), Measurement(timing=new), "median:5%").estimate)
    assert present(estimate.difference).width == pytest.approx((4 + ticks) * 0.032)
