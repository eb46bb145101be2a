"""Pass, fail and undecided: both sides of each limit, how sure, and in which words."""

import itertools
import math
import random
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_gpubench import Verdict
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.autocorrelation import independent_for
from pytest_gpubench.stats.summary import Interval, least_count, std_interval
from pytest_gpubench.units import round_to_digits
from pytest_gpubench.verdict.decision import at_least, at_most, time_interval
from pytest_gpubench.verdict.limits import Judgement, Limits
from pytest_gpubench.verdict.limits.base import Seen
from tests.results.measured import timing_of as timing
from tests.verdict.judging import alphas, check_printed, judge

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE

TWO_PERCENT = [98.0, 102.0] * 5000
ONE_TO_TWENTY = [float(number) for number in range(1, 21)]  # interval of the median at alpha 0.05: 6 to 15


def judge_one(samples_us: Sequence[float], limits: Limits, alpha: float = 0.05) -> Verdict:
    [found] = judge(timing(samples_us), limits, alpha)
    return found


def rel_std_interval(samples_us: Sequence[float], alpha: float, independent: int | None = None) -> Interval:
    interval, mean_us = std_interval(samples_us, alpha, independent), statistics.fmean(samples_us)
    assert interval is not None
    return Interval(interval.low / mean_us, interval.high / mean_us)


@pytest.mark.parametrize(
    ("decide", "ends", "outcome"),
    [
        (at_most, None, INCONCLUSIVE),
        (at_most, (8, 9.9), PASS),
        (at_most, (8, 10), PASS),
        (at_most, (10, 10 + 1e-14), PASS),
        (at_most, (8, 10.1), INCONCLUSIVE),
        (at_most, (10, 10.1), INCONCLUSIVE),
        (at_most, (10.1, 12), FAIL),
        (at_most, (0, 0), PASS),
        (at_least, None, INCONCLUSIVE),
        (at_least, (9, 9.9), FAIL),
        (at_least, (9, 10), INCONCLUSIVE),
        (at_least, (9.9, 11), INCONCLUSIVE),
        (at_least, (10 - 1e-14, 10 - 1e-14), PASS),
    ],
)
def test_an_interval_and_a_limit_of_ten(decide: Any, ends: tuple[float, float] | None, outcome: Outcome) -> None:
    """Exactly at the limit is within it, and so is what rounding makes of that."""
    assert decide(ends and Interval(*ends), 10) is outcome


@pytest.mark.parametrize(("most", "outcome"), [(9.5, FAIL), (9.9, INCONCLUSIVE), (10.1, INCONCLUSIVE), (10.6, PASS)])
def test_a_drift_may_go_on(most: float, outcome: Outcome) -> None:
    """Reps that rise by 0.4 % while they are measured may rise, or fall before, by six times as much."""
    samples_us = [10 + 0.04 * (step - 50) / 100 + 0.0005 * (step * 37 % 100 - 50) for step in range(100)]
    found = judge_one(samples_us, Limits(max_time_us=most))
    assert found.outcome is outcome
    assert ("; the reps drift by 0." in found.sentence) == (outcome is INCONCLUSIVE)


@pytest.mark.parametrize(
    ("timer", "most", "outcome"),
    [
        ("profiler", 1.615, FAIL),
        ("profiler", 1.62, INCONCLUSIVE),
        ("profiler", 1.64, INCONCLUSIVE),
        ("profiler", 1.649, PASS),
        ("wall", 1.62, FAIL),
    ],
)
def test_a_reading_is_half_a_tick_off(timer: str, most: float, outcome: Outcome) -> None:
    """A call of 1.62 us is read as 1.632 us mostly, where the clock ticks every 32 ns."""
    verdicts = judge(timing([1.632, 1.632, 1.6, 1.632, 1.632] * 20, timer=timer), Limits(max_time_us=most), 0.001)
    assert [each.outcome for each in verdicts] == [outcome]


@pytest.mark.parametrize(
    ("timer", "others_us", "most", "outcome"),
    [
        ("wall", 8.0, 0.99, FAIL),
        ("wall", 8.0, 1.0, INCONCLUSIVE),
        ("wall", 8.0, 8.0, PASS),
        ("wall", 2.9, 2.0, FAIL),  # not held up
        ("profiler", 8.0, 2.0, FAIL),
    ],
)
def test_the_fastest_rep_may_be_all_of_a_held_up_call(
    timer: str, others_us: float, most: float, outcome: Outcome
) -> None:
    found = timing([1.0] + [others_us] * 29, timer=timer)
    [verdict] = judge(found, Limits(max_time_us=most), 0.001)
    assert verdict.outcome is outcome


@pytest.mark.parametrize("spent", [0.05, 0.001])
@pytest.mark.parametrize("samples_us", [ONE_TO_TWENTY, [100.0 + number % 3 for number in range(50)]])
def test_max_rel_std(samples_us: list[float], spent: float) -> None:
    """By the part of alpha that is spent; alpha itself is told."""
    low, high = rel_std_interval(samples_us, spent)
    below = 1 - 1e-9
    cases = {high: PASS, below * high: INCONCLUSIVE, low: INCONCLUSIVE, below * low: FAIL}
    for most, outcome in cases.items():
        [found] = judge(timing(samples_us), Limits(max_rel_std=most), 0.2, spent=spent)
        assert found.outcome is outcome
        assert found.sentence.endswith(f"({len(samples_us)} reps, 80 % interval)")


@pytest.mark.parametrize(
    ("most", "device", "expected"),
    [
        (40, "NVIDIA H200", 40),
        ({"H200": 40}, "NVIDIA H200", 40),
        ({"h200": 40}, "NVIDIA H200", 40),
        ({"H200": 40}, "NVIDIA A100-SXM4-80GB", None),
        ({"A100": 75, "H200": 40}, "NVIDIA A100-SXM4-80GB", 75),
        ({"A100": 75, "A100-SXM4-80GB": 70}, "NVIDIA A100-SXM4-80GB", 70),
        ({"A100-SXM4-80GB": 70, "A100": 75}, "NVIDIA A100-SXM4-80GB", 70),
        ({"A100-SXM4-80GB": 70, "A100": 75}, "NVIDIA A100-PCIE-40GB", 75),
        ({"RTX 4090": 9}, "NVIDIA GeForce RTX 4090", 9),
        ({"H200": 40}, "NVIDIA H200 NVL", 40),
        ({"H200 (MIG)": 9}, "NVIDIA H200 (MIG)", 9),
        ({"A10": 40}, "NVIDIA A100-SXM4-80GB", None),
        ({"L40": 40}, "NVIDIA L40S", None),
        ({"SXM": 40}, "NVIDIA A100-SXM4-80GB", None),
        ({"H.00": 40}, "NVIDIA H200", None),
    ],
)
def test_the_limit_of_a_gpu(most: float | Mapping[str, float], device: str, expected: float | None) -> None:
    """The longest name that is made of whole words of the device's, in whatever case."""
    [found] = judge(timing(ONE_TO_TWENTY, device=device), Limits(max_time_us=most), 0.05)
    assert (found.outcome is Outcome.NOT_JUDGED) is (expected is None)
    assert expected is None or f"wanted at most {expected} us" in found.sentence


SKEWED = [100.0 * number for number in range(1, 20)] + [9_000.0]
THOUSANDS = [1e3 * us for us in ONE_TO_TWENTY]
OTHERS, MISSPELLED = {"A100": 1, "B200": 1}, {"A100": 1, "H2000": 1}


@pytest.mark.parametrize(
    ("samples_us", "limits", "words"),
    [
        (ONE_TO_TWENTY, {"max_time_us": 16}, " is fast enough: median 10.50 us [6.000, 15.00], wanted at most 16 us"),
        (ONE_TO_TWENTY, {"max_time_us": 10}, " is too close to tell: median 10.50 us [6.000, 15.00], wanted at most"),
        (THOUSANDS, {"max_time_us": 2_500}, " is too slow: median 10500 us [6000, 15000], wanted at most 2500 us"),
        (SKEWED, {"max_time_us": 400}, " is too slow: median 1050 us [600.0, 1500], wanted at most 400 us"),
        ([7.0] * 10, {"max_rel_std": 0.02}, " is steady: relative std 0 % [0 %, 0 %], wanted at most 2 %"),
        (
            [200.003] * 20,
            {"max_time_us": 200},
            " is too slow: median 200.003 us [200.003, 200.003], wanted at most 200 us",
        ),
        (TWO_PERCENT, {"max_rel_std": 0.02}, " is too close to tell: relative std 2.0001 % [1.9998 %, 2.0006 %]"),
        (TWO_PERCENT, {"max_rel_std": 0.0199}, " is unsteady: relative std 2.0 % [2.0 %, 2.0 %], wanted at most 1.99"),
        ([7.0], {"max_rel_std": 0.02}, " cannot be judged: relative std unknown, wanted at most 2 %"),
        (ONE_TO_TWENTY, {"max_time_us": OTHERS}, ": no max_time_us for NVIDIA H200, only for A100, B200"),
        (
            ONE_TO_TWENTY,
            {"max_time_us": {"CPU": 1}},
            ": no max_time_us for NVIDIA H200, only for CPU: give words of a device's name, not its kind",
        ),
        (ONE_TO_TWENTY, {"max_time_us": MISSPELLED}, ": no max_time_us for NVIDIA H200, only for A100, H2000 (did you"),
    ],
)
def test_sentences(samples_us: list[float], limits: dict[str, Any], words: str) -> None:
    assert judge_one(samples_us, Limits(**limits)).sentence.startswith(f"softmax{words}")


SENTENCE = re.compile(
    r"softmax (?P<word>is steady|is unsteady|is fast enough|is too slow|is too close to tell|cannot be judged): "
    r"(?:median|relative std) (?P<found>[\d.]+) (?P<unit>%|us)"
    r"(?: \[(?P<low>[\d.]+)(?: %)?, (?P<high>[\d.]+)(?: %)?\])?"
    r", wanted at most (?P<most>[\d.e+-]+) (?P=unit) \((?P<reps>\d+) reps?, (?:too few for the )?"
    r"(?P<percent>[\d.]+) % interval(?:: take at least (?P<least>\d+))?\)"
)

samples_of_all_sizes = st.builds(
    lambda ticks, power: [tick * 10.0**power for tick in ticks],
    st.lists(st.integers(1, 2**20), min_size=2, max_size=50),
    st.integers(-9, 3),
)


@given(samples_of_all_sizes, st.floats(1e-3, 1e3), alphas, st.booleans())
def test_numbers_in_sentences_are_stored(samples_us: list[float], factor: float, alpha: float, on_time: bool) -> None:
    """Times in microseconds with four digits, shares with two: they are wrong by half of the last one at most."""
    stored, independent = timing(samples_us), independent_for("std", samples_us)  # told where half of the reps or fewer
    if on_time:
        name, most, found = "max_time_us", factor * stored.median_us, stored.median_us
        interval = time_interval(stored, alpha)
        kept, broken, scale, rel, least = "is fast enough", "is too slow", 1.0, 5.1e-4, least_count(alpha)
    else:
        name, most, found = "max_rel_std", factor / 1001, stored.rel_std
        kept, broken, scale, rel, least = "is steady", "is unsteady", 0.01, 5.1e-2, 10
        interval = rel_std_interval(samples_us, alpha, independent) if stored.reps >= least else None
    [verdict] = judge(stored, Limits(**{name: most}), alpha)
    assume("resemble their neighbours" not in verdict.sentence)  # said in words that the pattern has not
    printed = SENTENCE.fullmatch(verdict.sentence)
    assert printed is not None
    words = {PASS: kept, FAIL: broken, INCONCLUSIVE: "is too close to tell" if interval else "cannot be judged"}
    check_printed(printed["found"], scale, found, rel)
    check_printed(printed["low"], scale, interval and interval.low, rel)
    check_printed(printed["high"], scale, interval and interval.high, rel)
    check_printed(printed["most"], scale, most, 1e-9 if on_time else rel)
    assert (printed["word"], int(printed["reps"])) == (words[verdict.outcome], stored.reps)
    assert 100 - float(printed["percent"]) == pytest.approx(100 * alpha, rel=0.06)
    assert printed["least"] == (None if interval else str(least))


@given(alphas, st.integers(1, 200))
def test_looks_spend_alpha_and_no_more(alpha: float, looks: int) -> None:
    spent: list[float] = []

    class Noting(Limits):
        def judge(self, stages: Any, seen: Seen, enforced: bool = True) -> tuple[Verdict, ...]:
            assert seen.alpha == alpha
            spent.append(seen.spent)
            return ()

    judgement = Judgement(Noting(), alpha)
    for _ in range(looks):
        judgement.look(timing(()))
    assert len(spent) == looks
    assert all(0 < later < earlier for earlier, later in itertools.pairwise(spent))
    assert 0.5 * alpha * (1 - 1e-9) <= math.fsum(spent) <= alpha


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(("limits", "least"), [(Limits(max_time_us=10), None), (Limits(max_rel_std=0.02), 10)])
def test_a_look_says_the_alpha_asked_for_and_the_reps_it_needs(limits: Limits, least: int | None, single: bool) -> None:
    """The k-th look has alpha / (k (k + 1)) to spend, and a median's interval at less alpha needs more reps."""
    judgement = Judgement(limits, 0.01, single=single)
    for look in range(1, 6):
        judgement.look(timing([7.0] * 5))
        needed = least or least_count(0.01 if single else 0.01 / (look * (look + 1)))
        [found] = judgement.verdicts
        assert found.sentence.endswith(f"(5 reps, too few for the 99 % interval: take at least {needed})")


@pytest.mark.parametrize(
    ("limits", "decided"),
    [
        (Limits(), True),
        (Limits(max_time_us=20), True),
        (Limits(max_time_us=1), True),
        (Limits(max_time_us=10), False),
        (Limits(max_time_us=20, max_rel_std=0.99), True),
        (Limits(max_time_us=20, max_rel_std=0.6), False),
        (Limits(max_time_us=1, max_rel_std=0.6), True),  # the test fails anyhow
        (Limits(max_time_us={"A100": 20}), True),  # more samples would not help
        (Limits(max_time_us={"A100": 20}, max_rel_std=0.6), False),
    ],
)
def test_it_is_decided_when_every_limit_is_or_one_is_broken(limits: Limits, decided: bool) -> None:
    assert Judgement(limits, 0.01).look(timing(ONE_TO_TWENTY)) is decided


@pytest.mark.parametrize(
    ("first_us", "then_us", "outcomes"),
    [(9.0, 11.0, [PASS, INCONCLUSIVE, FAIL]), (11.0, 9.0, [FAIL, INCONCLUSIVE, PASS]), (9.0, 9.0, [PASS] * 3)],
)
def test_the_last_look_counts_which_is_of_all_reps(first_us: float, then_us: float, outcomes: list[Outcome]) -> None:
    """The sentence has the median that the table shows of the same reps."""
    judgement = Judgement(Limits(max_time_us=10), 0.01)
    assert not judgement.look(timing([first_us] * 5))
    for more, outcome in zip((0, 20, 200), outcomes, strict=True):
        samples_us = [first_us] * 20 + [then_us] * more
        taken = timing(random.Random(0).sample(samples_us, len(samples_us)))
        assert judgement.look(taken) is (outcome is not INCONCLUSIVE)
        (found,) = judgement.verdicts
        assert found.outcome is outcome
        assert f"median {round_to_digits(taken.median_us, 4)} us [" in found.sentence
        assert f"({20 + more} reps, " in found.sentence
    assert judgement.looks == 4


def test_a_limit_that_shares_alpha_passes_at_all_of_it() -> None:
    """As under @given: what fails needs more reps than what passes."""
    reps = timing(tuple(float(x) for x in range(100, 112)))  # twelve decide at alpha 0.0005, not at 1e-6
    for most, outcome in ((120.0, PASS), (90.0, INCONCLUSIVE)):
        judgement = Judgement(Limits(max_time_us=most), 1e-6, single=True, pass_alpha=0.001)
        judgement.look(reps)
        [verdict] = judgement.verdicts
        assert verdict.outcome is outcome
        assert ("99.9 % interval" in verdict.sentence) is (outcome is PASS)
