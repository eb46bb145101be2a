"""Speedups against their limits: both sides, in which words, look by look."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import Speedup, Verdict
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.speedup import LOOKS, Quad, speedup_of
from pytest_gpubench.units import choose_time_unit
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement
from tests.results.measured import present, speedup_over
from tests.stats.quads import steady
from tests.verdict.judging import UNITS_US, alphas, check_printed

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE

FAST, SLOW = 1.1, 0.9
FASTER, SLOWER, WAVERING = [FAST] * 6, [SLOW] * 6, [FAST, SLOW] * 3


def speedup(
    ratio: float, ends: tuple[float, float] | None = None, reference_us: float = 284.0, **others: Any
) -> Speedup:
    return speedup_over(reference_us, ratio, ends, **{"quads": 24, **others})


def judged(found: Speedup, candidate_us: float, wanted: float, enforced: bool = True) -> Verdict:
    judgement = SpeedupJudgement("triton", {"triton": wanted}, found.alpha, 0.005, enforced)
    [verdict] = judgement.verdicts(found, candidate_us)
    return verdict


@pytest.mark.parametrize(
    ("found", "wanted", "outcome", "words"),
    [
        (speedup(0.9103, (0.9, 0.93)), 1, FAIL, "slower than torch: 0.9103x [0.9000, 0.9300]"),
        (speedup(0.985, (0.98, 0.99)), 0.98, PASS, "slower than torch: 0.9850x [0.9800, 0.9900]"),
        (speedup(1.0001, (0.9999, 1.0002)), 0.99, PASS, "as fast as torch: 1.000x [0.9999, 1.000]"),
        (speedup(0.99997, (0.99996, 0.99998)), 1, FAIL, "slower than torch: 0.99997x [0.99996, 0.99998]"),
        (speedup(1.2, (1.19, 1.21)), 1.5, FAIL, "not fast enough against torch: 1.200x [1.190, 1.210]"),
        (speedup(2.0, (1.9, 2.1)), 1.5, PASS, "faster than torch: 2.000x [1.900, 2.100]"),
        (speedup(1.5, (1.4, 1.6)), 1.45, INCONCLUSIVE, "too close to tell against torch: 1.500x [1.400, 1.600]"),
        (speedup(1e-5, (0.99e-5, 1.01e-5)), 0.5, FAIL, "slower than torch: 0.00001000x [0.000009900, 0.00001010]"),
    ],
)
@pytest.mark.parametrize("enforced", [True, False])
def test_judged_by_its_interval(found: Speedup, wanted: float, outcome: Outcome, words: str, enforced: bool) -> None:
    asked = f"wanted at least {wanted}x (312.0 us against 284.0 us, 24 quads, 99.9 % interval)"
    verdict = judged(found, 312.0, wanted, enforced)
    assert (verdict.outcome, verdict.enforced, verdict.limit) == (outcome, enforced, f"min_speedup={wanted!r}")
    assert verdict.sentence == f"triton is {words}, {asked}"


@pytest.mark.parametrize(("alpha", "reps"), [(0.25, 2), (0.2, 4), (0.001, 10), (2.0**-10, 10), (1e-4, 14)])
def test_the_reps_that_a_sentence_asks_for_decide_and_no_fewer(alpha: float, reps: int) -> None:
    sentence = judged(speedup(2.0, quads=1, alpha=alpha), 1.0, 1.5).sentence
    assert sentence.startswith("triton cannot be judged against torch: 2.000x, wanted at least 1.5x (")
    assert f"% interval: take at least {reps} reps)" in sentence
    assert speedup_of(steady([0.5] * (reps // 2)), alpha).interval is not None
    assert reps == 2 or speedup_of(steady([0.5] * (reps // 2 - 1)), alpha).interval is None


SPEEDUP_SENTENCE = re.compile(
    r"triton (?P<words>[a-z ]+) torch: (?P<ratio>[\d.]+)x(?: \[(?P<low>[\d.]+), (?P<high>[\d.]+)\])?, "
    r"wanted at least (?P<wanted>[\d.e+-]+)x \((?P<candidate>[\d.]+) (?P<unit>ns|us|ms|s) against "
    r"(?P<reference>[\d.]+) (?P=unit), (?P<quads>\d+) quads?, (?:too few for the )?"
    r"(?P<percent>[\d.]+) % interval(?:: take at least \d+ reps)?\)"
)
times_us = st.floats(1, 150)
quads = st.lists(st.tuples(times_us, times_us, times_us, times_us), min_size=1, max_size=60).map(
    lambda found: [Quad(times[:2], times[2:]) for times in found]
)


@given(quads, st.floats(1e-3, 1e3), alphas, st.floats(1e-2, 1e6), st.floats(1e-2, 1e6))
def test_the_numbers_in_a_speedups_sentence_are_the_stored_ones(
    found_quads: list[Quad], wanted: float, alpha: float, candidate_us: float, reference_us: float
) -> None:
    """Printed with four digits, the limit with six."""
    found = speedup_of(found_quads, alpha)
    stored = speedup(found.ratio, found.interval, reference_us, quads=found.quads, alpha=alpha)
    verdict = judged(stored, candidate_us, wanted)
    printed = SPEEDUP_SENTENCE.fullmatch(verdict.sentence)
    assert printed is not None, verdict.sentence
    check_printed(printed["ratio"], 1, stored.ratio, 5.1e-4)
    check_printed(printed["low"], 1, stored.interval and stored.interval.low, 5.1e-4)
    check_printed(printed["high"], 1, stored.interval and stored.interval.high, 5.1e-4)
    check_printed(printed["wanted"], 1, wanted, 5.1e-6)
    check_printed(printed["candidate"], UNITS_US[printed["unit"]], candidate_us, 5.1e-4)
    check_printed(printed["reference"], UNITS_US[printed["unit"]], reference_us, 5.1e-4)
    assert (int(printed["quads"]), printed["unit"]) == (len(found_quads), choose_time_unit([candidate_us]))
    assert 100 - float(printed["percent"]) == pytest.approx(100 * alpha, rel=0.06)


def judgement_of(limits: Mapping[str, float], alpha: float = 0.01) -> SpeedupJudgement:
    return SpeedupJudgement("one", limits, alpha, precision=0.005)


def look(judgement: SpeedupJudgement, ratios: Sequence[float], looks: tuple[int, ...] = LOOKS) -> bool:
    """Look at a candidate that is so many times as fast as its reference."""
    return judgement.look(steady([math.log(ratio) for ratio in ratios]), looks)


def verdict_of(judgement: SpeedupJudgement) -> Verdict:
    latest = present(judgement.latest)
    by = msgspec.structs.replace(speedup(latest.ratio), interval=latest.interval, quads=latest.quads)
    [found] = judgement.verdicts(by, 10.0)
    return found


@pytest.mark.parametrize(("first", "then"), [(FAST, SLOW), (FAST, FAST), (SLOW, FAST), (SLOW, SLOW)])
def test_the_last_look_counts_which_is_of_all_quads(first: float, then: float) -> None:
    """Other candidates, and other limits, may ask for more looks."""
    judgement = judgement_of({"one": 1.0})
    ratios = [first] * LOOKS[0] + [then] * LOOKS[-1]
    assert look(judgement, ratios[: LOOKS[0]])
    assert judgement.failed is (first == SLOW)
    assert look(judgement, ratios[: 2 * LOOKS[0]]) is (first == then)
    assert look(judgement, ratios[: LOOKS[-1]])
    assert judgement.failed is (then == SLOW)
    verdict = verdict_of(judgement)
    assert verdict.outcome is judgement.outcome is (PASS if then == FAST else FAIL)
    assert judgement.latest is not None
    assert f" {LOOKS[-1]} quads, " in verdict.sentence


def test_a_look_is_one_of_those_that_are_planned() -> None:
    """At one look alone more would be certain."""
    judgement, quads = judgement_of({"one": 1.0}), steady([step / 100 for step in range(LOOKS[2])])
    judgement.look(quads, LOOKS)
    assert judgement.latest == speedup_of(quads, 0.01, LOOKS) != speedup_of(quads, 0.01)


@pytest.mark.parametrize(("ratios", "outcome"), [(FASTER, PASS), (SLOWER, INCONCLUSIVE)])
def test_a_limit_that_shares_alpha_passes_at_all_of_it(ratios: Sequence[float], outcome: Outcome) -> None:
    """As under @given: what fails needs more quads than what passes."""
    judgement = SpeedupJudgement("one", {"one": 1.0}, 1e-6, precision=0.005, pass_alpha=0.001)
    assert look(judgement, ratios) is (outcome is PASS)
    verdict = verdict_of(judgement)
    assert verdict.outcome is outcome
    assert (judgement.latest is not None and judgement.latest.alpha == 0.001) is (outcome is PASS)


@pytest.mark.parametrize(("off", "is_precise"), [(0.0049, True), (0.0051, False)])
def test_without_limits_a_look_ends_it_when_the_ratio_is_precise(off: float, is_precise: bool) -> None:
    judgement = judgement_of({})
    assert look(judgement, ([1 - off, 1 + off] * LOOKS[3])[: LOOKS[3]]) is is_precise
    assert not judgement.failed
    assert judgement.verdicts(speedup(1.0), 10.0) == ()


def test_a_candidate_without_a_limit_of_its_own_waits_for_nothing() -> None:
    judgement = judgement_of({"triton": 1.5, "compiled": 1.2})
    assert look(judgement, WAVERING)
    found = verdict_of(judgement)
    assert (found.outcome, found.enforced) == (Outcome.NOT_JUDGED, True)
    assert found.sentence == "one: no min_speedup for it, only for triton, compiled"
    assert found.limit == "min_speedup={'triton': 1.5, 'compiled': 1.2}"
