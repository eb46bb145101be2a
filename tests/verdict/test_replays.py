"""A change that is judged by replays: both sides of the tolerance, and what the sentence says."""

import pytest

from pytest_gpubench.public_call import is_replayed_for
from pytest_gpubench.replay.comparison import least_speedup
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.verdict.decision import at_least
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.replays import Replay, replayed_change
from tests.results.measured import present

FOUND = Change("test_a.py::test_f", "f", Outcome.NOT_JUDGED, "")
TWO_PERCENT = parse_tolerance("median:2%")
LIMIT, TINY, UNDECIDED = 1 / 1.02, 1e-6, Outcome.INCONCLUSIVE


def changed(low: float, ratio: float, high: float, doubt: str = "") -> Change:
    """Return the change of a call whose saved time over today's has this interval."""
    estimate = SpeedupEstimate(ratio, Interval(low, high), 24, 0.001)
    replay = Replay(estimate, old_us=10.0, new_us=10.0 / ratio, doubt=doubt, notes=("a note",))
    return replayed_change(FOUND, replay, TWO_PERCENT, 0.001, "the baseline 'main'")


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(LIMIT + TINY, 1.1, Outcome.PASS), (0.9, LIMIT - TINY, Outcome.FAIL), (LIMIT - TINY, LIMIT + TINY, UNDECIDED)],
)
def test_the_whole_interval_decides(low: float, high: float, outcome: Outcome) -> None:
    """As the rounds were looked at: the two limits are one."""
    assert changed(low, (low + high) / 2, high).outcome is outcome
    assert at_least(Interval(low, high), least_speedup(TWO_PERCENT)) is outcome


def test_the_sentence_says_that_it_was_replayed() -> None:
    found = changed(0.94, 0.95, 0.96)
    assert found.sentence == (
        "f is slower than in the baseline 'main': 1.053x [1.042, 1.064] of its replayed time, wanted at most 1.02x "
        "(10.53 us against 10.00 us, replayed in turn, 24 quads, 99.9 % interval)"
    )
    assert (present(found.estimate).metric, found.further) == ("replayed time", 0)
    assert found.notes == ("a note",)
    doubted = changed(0.94, 0.95, 0.96, "but not in other memory")
    assert doubted.outcome is Outcome.INCONCLUSIVE
    assert "is slower than in the baseline 'main', but not in other memory" in doubted.sentence


def test_the_same_code_passes_without_a_measurement() -> None:
    found = replayed_change(FOUND, Replay(None), TWO_PERCENT, 0.001, "the baseline 'main'")
    assert (found.outcome, found.sentence) == (
        Outcome.PASS,
        "f is the same call as in the baseline 'main': the same code, launched alike",
    )
    estimate = present(found.estimate)
    assert (estimate.metric, estimate.interval, found.further) == ("same code", None, 0)


@pytest.mark.parametrize(
    ("tolerance", "answered"),
    [("median:2%", True), ("speedup:2%", True), ("mean:2%", True), ("q1:2%", False), ("median:2us", False)],
)
def test_the_tolerances_that_replays_answer_for(tolerance: str, answered: bool) -> None:
    assert is_replayed_for(parse_tolerance(tolerance)) is answered
    assert not is_replayed_for(None)
