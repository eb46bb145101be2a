"""Changes between runs: scaling, symmetry, and the rates of wrong verdicts under several kinds of noise."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.stats.regression import ChangeEstimate, change_of_samples
from pytest_gpubench.stats.speedup import LOOKS, Quad, log_ratios
from pytest_gpubench.stats.summary import least_count, median_interval
from pytest_gpubench.verdict.regression import least_samples
from tests.results.measured import present
from tests.stats.quads import decide as decide_speedup
from tests.stats.quads import decide_change
from tests.stats.simulation import Floats, autoregressive, slack

Shape = tuple[int, int]
Noise = Callable[[np.random.Generator, Shape], Floats]

MARGIN, NO_NUMBERS = 0.03, (math.nan, math.inf)
TICK_US = 0.032
METRICS: tuple[Any, ...] = ("median", "mean", "q1", "q3")

metrics = st.sampled_from(METRICS)
alphas = st.sampled_from([0.2, 0.05, 0.01, 0.001])
times = st.lists(st.floats(1, 1e3) | st.integers(10, 14).map(float), min_size=1, max_size=60)


@given(times, times, metrics, alphas, st.sampled_from([0, TICK_US]))
def test_swapped_runs_invert_it(old: list[float], new: list[float], metric: Any, alpha: float, tick_us: float) -> None:
    there, back = (change_of_samples(*pair, metric, alpha, tick_us) for pair in ((old, new), (new, old)))
    assert there.ratio * back.ratio == pytest.approx(1)
    assert (there.interval is None) == (back.interval is None)
    if there.interval is not None and back.interval is not None:
        assert there.interval.low * back.interval.high == pytest.approx(1)
        assert there.interval.high * back.interval.low == pytest.approx(1)


@given(times, times, metrics, alphas)
def test_intervals_enclose_the_ratio_and_grow(old: list[float], new: list[float], metric: Any, alpha: float) -> None:
    loose, sure = (change_of_samples(old, new, metric, each) for each in (alpha, alpha / 2))
    for change in (loose, sure):
        if change.interval is not None:
            assert change.interval.low <= change.ratio * (1 + 1e-12)
            assert change.ratio <= change.interval.high * (1 + 1e-12)
    if loose.interval is not None and sure.interval is not None:
        assert sure.interval.low <= loose.interval.low * (1 + 1e-12)
        assert loose.interval.high <= sure.interval.high * (1 + 1e-12)


@given(times, metrics)
def test_the_statistics_are_those_that_reports_print(samples: list[float], metric: Any) -> None:
    change = change_of_samples(samples, [1.0], metric, 0.01)
    first, second, third = statistics.quantiles(samples * (1 + (len(samples) == 1)), method="inclusive")
    expected = {"q1": first, "median": second, "q3": third, "mean": math.fsum(samples) / len(samples)}
    assert change.old == pytest.approx(expected[metric])
    assert change.counts == (len(samples), 1)


@given(times, times, alphas, st.sampled_from([("q1", 1), ("median", 2), ("q3", 3)]))
def test_quartiles_have_the_ends_of_their_exact_intervals(
    old: list[float], new: list[float], alpha: float, metric: tuple[Any, int]
) -> None:
    ends = [median_interval(samples, alpha, quarter=metric[1]) for samples in (old, new)]
    change = change_of_samples(old, new, metric[0], alpha)
    if ends[0] is None or ends[1] is None:
        assert (change.interval, change.difference) == (None, None)
        return
    assert change.interval == (ends[1].low / ends[0].high, ends[1].high / ends[0].low)
    assert change.difference == (ends[1].low - ends[0].high, ends[1].high - ends[0].low)


@pytest.mark.parametrize("metric", METRICS)
def test_equal_samples_that_never_vary_are_unchanged(metric: Any) -> None:
    change = change_of_samples([0.1] * 30, [0.1] * 30, metric, 0.001)
    assert (change.ratio, change.interval, change.difference) == (1, (1, 1), (0, 0))
    assert decide_change(change, 0.0) == "pass"


@pytest.mark.parametrize("metric", METRICS)
def test_a_tick_is_half_a_tick_at_each_end(metric: Any) -> None:
    change = change_of_samples([3.008] * 30, [3.104] * 30, metric, 0.001, TICK_US)
    assert change.interval == pytest.approx((3.088 / 3.024, 3.120 / 2.992))
    assert change.difference == pytest.approx((0.064, 0.128))
    assert decide_change(change, 0.03) == "inconclusive"
    assert change_of_samples([0.01] * 30, [0.02] * 30, metric, 0.001, TICK_US).interval is None


def test_a_speedup_that_shrinks_is_slower() -> None:
    change = change_of_samples([math.log(2)] * 20, [math.log(1.6)] * 30, "speedup", 0.01)
    assert (change.ratio, change.old, change.new) == pytest.approx((1.25, 2, 1.6))
    assert change.interval == pytest.approx((1.25, 1.25))
    assert (change.metric, change.difference, change.counts) == ("speedup", None, (20, 30))


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.01, 0.001, 1e-6])
@pytest.mark.parametrize("metric", [*METRICS, "speedup"])
def test_one_sample_too_few_decides_nothing(metric: str, alpha: float) -> None:
    least = least_samples(metric, alpha)

    def change(old: int, new: int) -> ChangeEstimate:
        if metric == "speedup":
            return change_of_samples([0.1] * old, [0.1] * new, "speedup", alpha)
        return change_of_samples([5.0] * old, [5.0] * new, metric, alpha)  # type: ignore[arg-type]

    assert change(least, least).interval is not None
    assert change(least - 1, least).interval is None
    assert change(least, least - 1).interval is None
    if metric in ("median", "speedup"):
        assert least == least_count(alpha)


def test_means_agree_with_welch_and_fieller_by_hand() -> None:
    """Student's t at 0.99 is 2.6025 for the 15.1 degrees of freedom of the difference, 2.5835 for the ratio's 16.5."""
    old, new = [10.0, 12.0] * 6, [11.0, 14.0] * 5
    change = change_of_samples(old, new, "mean", 0.01)
    old_error, new_error = 12 / 11 / 12, 22.5 / 9 / 10
    half = 2.6025 * math.sqrt(old_error + new_error)
    assert present(change.difference) == pytest.approx((1.5 - half, 1.5 + half), abs=1e-3)
    for end in present(change.interval):  # where new - end * old is as many standard errors from 0 as t
        errors = abs(12.5 - end * 11) / math.sqrt(new_error + end**2 * old_error)
        assert errors == pytest.approx(2.5835, abs=1e-3)


def test_means_of_noise_as_large_as_themselves_have_no_ratio() -> None:
    wild = [0.001] * 11 + [1e3]
    for pair in ((wild, [5.0] * 12), ([5.0] * 12, wild)):
        change = change_of_samples(*pair, "mean", 0.001)
        assert (change.interval, decide_change(change, 0.1)) == (None, "inconclusive")


@pytest.mark.parametrize(
    ("metric", "good", "wrong", "told"),
    [
        *[(each, 5.0, wrong, "a time of the {} run must be") for each in METRICS for wrong in (0.0, -1.0, *NO_NUMBERS)],
        *[("speedup", 0.1, no, "a log-ratio of the {} run cannot be measured") for no in (-math.inf, 1e9, *NO_NUMBERS)],
    ],
)
def test_what_cannot_be_measured_is_refused(metric: Any, good: float, wrong: float, told: str) -> None:
    for place in (0, 6, 12):
        bad = [good] * place + [wrong] + [good] * (12 - place)
        for run, samples in (("old", (bad, [good])), ("new", ([good], bad))):
            with pytest.raises(ValueError, match=rf"{told.format(run)}.*: {wrong!r}"):
                change_of_samples(*samples, metric, 0.01)


@pytest.mark.parametrize(
    ("samples", "metric", "others", "told"),
    [
        (([], [1.0]), "median", (0.01,), "no time of the old run"),
        (([1.0], []), "speedup", (0.01,), "no log-ratio of the new run"),
        *[(([1.0], [1.0]), each, (no,), "alpha") for each in ("median", "speedup") for no in (0.0, 0.5, math.nan)],
    ],
)
def test_other_invalid_arguments_are_refused(samples: Any, metric: Any, others: Any, told: str) -> None:
    old, new = samples
    with pytest.raises(ValueError, match=told):
        change_of_samples(old, new, metric, *others)


def jitter(std: float) -> Noise:
    return lambda rng, shape: std * rng.standard_normal(shape)


STEADY, TAIL = jitter(0.003), lambda rng, shape: 0.01 * (rng.exponential(size=shape) - math.log(2))
ALIKE: dict[str, Noise] = {
    "steady": STEADY,
    "outliers": lambda rng, shape: 0.005 * rng.standard_normal(shape) + math.log(1.5) * (rng.random(shape) < 0.03),
    "ramp": lambda rng, shape: 0.003 * rng.standard_normal(shape) + np.linspace(-0.01, 0.01, shape[1]),
    "tail": TAIL,
    "two modes": lambda rng, shape: 0.002 * rng.standard_normal(shape) + 0.05 * (rng.random(shape) < 0.45),
    "remembering": lambda rng, shape: 0.01 * autoregressive(rng, shape, 0.3),
}
"""The noise of both runs."""
NOISES: dict[str, tuple[Noise, Noise]] = {
    **{name: (noise, noise) for name, noise in ALIKE.items()},
    "more spread": (jitter(0.002), jitter(0.02)),
    "less spread": (jitter(0.02), jitter(0.002)),
    "more tail": (STEADY, TAIL),
}


def rates(
    noises: tuple[Noise, Noise], true: float, alpha: float, metric: Any = "median", trials: int = 1500
) -> dict[str, float]:
    """Return how often each decision is made about a change of so much, from 60 samples of each run."""
    rng = np.random.default_rng(6)
    counts: Counter[str] = Counter()
    runs = (
        (us * np.exp(noise(rng, (trials, 60)))).tolist() for us, noise in zip((300, 300 * true), noises, strict=True)
    )
    for old, new in zip(*runs, strict=True):
        counts[decide_change(change_of_samples(old, new, metric, alpha), MARGIN)] += 1
    return {decision: counts[decision] / trials for decision in ("fail", "inconclusive", "pass")}


MOST = 0.05 + slack(0.05, 1500)
"""The largest share of wrong verdicts at alpha 0.05."""


@pytest.mark.parametrize("noise", NOISES)
def test_a_wrong_verdict_is_as_rare_as_promised(noise: str) -> None:
    """At alpha 0.05, where a simulation sees a violation; no change, exactly the margin, and just beyond it."""
    assert rates(NOISES[noise], 1.0, 0.05)["fail"] == 0
    assert rates(NOISES[noise], 1 + MARGIN, 0.05)["fail"] <= MOST
    assert rates(NOISES[noise], 1 + MARGIN + 1e-6, 0.05)["pass"] <= MOST


def test_means_are_as_rarely_wrong_where_they_are_nearly_normal() -> None:
    """Welch's t is no exact test: of samples with a tail it may be wrong a little more often than alpha."""
    names = ("steady", "outliers", "tail", "ramp")
    fails = {name: rates(NOISES[name], 1 + MARGIN, 0.05, "mean")["fail"] for name in names}
    assert max(fails.values()) <= MOST
    assert fails["steady"] >= 0.05 - slack(0.05, 1500)  # and it spends what it may


@pytest.mark.parametrize("noise", [name for name in NOISES if name not in ("more spread", "less spread", "two modes")])
def test_two_per_cent_beyond_the_margin_are_found(noise: str) -> None:
    found = rates(NOISES[noise], 1 + MARGIN + 0.02, 0.001, trials=300)
    assert found["fail"] >= (0.95 if noise == "remembering" else 0.99)
    assert found["pass"] == 0


LASTING_LOOKS = LOOKS[4:]
"""The looks of a comparison that is saved."""


def until_decided(rng: np.random.Generator, true: float, limit: float) -> Sequence[float]:
    """Return the log-ratios of a comparison that stops where its own limit is decided."""
    times_us = np.exp(0.02 * rng.standard_normal((LASTING_LOOKS[3], 4))).tolist()
    drawn = [Quad((true * a, true * b), (c, d)) for a, b, c, d in times_us]
    for look in LASTING_LOOKS[:4]:
        if decide_speedup(drawn[:look], limit, 0.001, LASTING_LOOKS) != "inconclusive":
            break
    return list(log_ratios(drawn[:look]))


def test_comparisons_that_stopped_when_decided_are_as_rarely_wrong() -> None:
    """A session ends the sooner the luckier its quads are: the interval has room for that."""
    rng, trials, fails = np.random.default_rng(5), 1500, 0
    for _ in range(trials):
        old, new = until_decided(rng, 1.02 * (1 + MARGIN), 1.0), until_decided(rng, 1.02, 1.03)
        fails += decide_change(change_of_samples(old, new, "speedup", 0.05), MARGIN) == "fail"
    assert fails / trials <= MOST
