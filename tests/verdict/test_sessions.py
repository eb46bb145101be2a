"""Saved runs of several sessions: what they decide, what they need to decide, and in which words."""

from collections.abc import Sequence

import msgspec
import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.process_spread import ProcessSpread
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.sessions import Sessions, compare_measurements
from tests.results.measured import ALPHA, alone, pair, present, verdict

SAVED = "the baseline 'main'"
FIVE = [alone(us=289 * (1 + step / 1000)) for step in (-4, 4, -2, 2, 0)]


def between(
    saved: Sequence[Measurement], now: Sequence[Measurement], tolerance: str = "median:5%", **suite: ProcessSpread
) -> Change:
    """Compare saved sessions, the last of which is the latest, with those of now, which begin with the first."""
    sessions = Sessions(saved[:-1], now[1:], suite)
    return compare_measurements(saved[-1], now[0], parse_tolerance(tolerance), ALPHA, SAVED, sessions)


def compared(tolerance: str, us: float, old: list[Measurement], **suite: ProcessSpread) -> Change:
    return between(old, [alone(us=us)], tolerance, **suite)


def alones(times_us: Sequence[float]) -> list[Measurement]:
    return [alone(us=us) for us in times_us]


@pytest.mark.parametrize(
    ("tolerance", "slower", "outcome"),
    [
        ("median:5%", 1.0, Outcome.PASS),
        ("median:3%", 1.0, Outcome.PASS),
        ("median:1%", 1.0, Outcome.INCONCLUSIVE),
        ("median:1us", 1.0, Outcome.INCONCLUSIVE),
        ("median:6us", 1.0, Outcome.PASS),
    ],
)
def test_one_saved_session_passes_what_processes_allow(tolerance: str, slower: float, outcome: Outcome) -> None:
    found = compared(tolerance, 289 * slower, FIVE[-1:])
    assert found.outcome is outcome
    told = "; processes of the same code differ by 0.30 %, so 1 saved session and 1 new can decide 2.5 % or more: "
    assert (told in found.sentence) == (outcome is Outcome.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("old", "new", "us", "tolerance", "advice"),
    [
        (1, 1, 289, "median:1%", ""),  # nor do 5 and 5
        (1, 1, 289, "median:1.2%", "save and measure 5 with --gpu-bench-sessions=5 or "),
        (5, 1, 290, "median:1.2%", "measure 5 with --gpu-bench-sessions=5 or "),
        (1, 5, 290, "median:1.2%", "save 5 with --gpu-bench-sessions=5 or "),
        (2, 5, 289 * 1.0451, "median:5%", ""),  # it is slower, and as near to what is tolerated as this
        (1, 1, 289 * 1.01, "median:2%", ""),  # of one saved session 5 new ones leave 1.4 % open
        (2, 1, 289 * 1.03, "median:1.5%", "save and measure 5 with --gpu-bench-sessions=5 or "),  # of 2 none can FAIL
    ],
)
def test_the_advice_is_what_decides(old: int, new: int, us: float, tolerance: str, advice: str) -> None:
    found = between([alone()] * old, [alone(us=us)] * new, tolerance)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.sentence.endswith(f" or more: {advice}compare with `pytest-gpubench ab`")


@pytest.mark.parametrize(
    ("old", "new", "us", "outcome", "words"),
    [
        (1, 1, 1.1, Outcome.INCONCLUSIVE, "which 1 saved session and 1 new cannot tell from the mode of a process"),
        (1, 10, 1.1, Outcome.INCONCLUSIVE, "; save 5 with --gpu-bench-sessions=5, or compare with `pytest-gpubench"),
        (5, 1, 1.1, Outcome.INCONCLUSIVE, "; measure 5 new ones with --gpu-bench-sessions=5"),
        (5, 4, 1.1, Outcome.INCONCLUSIVE, "which 5 saved sessions and 4 new cannot tell from the mode of a process"),
        (5, 5, 1.1, Outcome.FAIL, "30 and 30 reps in each of 5 and 5 sessions, 99.9 % interval)"),
        (1, 1, 1.05 * 1.49, Outcome.INCONCLUSIVE, "the mode of a process"),
        (1, 1, 1.05 * 1.51, Outcome.FAIL, "30 and 30 reps"),  # no modes are as far apart
    ],
)
def test_a_fail_needs_sessions_that_part(old: int, new: int, us: float, outcome: Outcome, words: str) -> None:
    found = between([alone()] * old, [alone(us=289 * us)] * new)
    assert found.outcome is outcome
    assert words in found.sentence
    assert "softmax is slower than in the baseline 'main'" in found.sentence


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ([10, 10, 10, 10, 10], [11, 11.2, 11, 11, 11], True),
        ([10, 10, 10.9, 10, 10], [11, 11.2, 11, 11, 11], False),
        ([10, 10, 10, 10, 10], [11, 11, 11, 10.09, 11], False),
        ([10, 10, 10, 10, 10], [11, 11, 11, 10.11, 11], True),
        ([10, 10, 14, *[10] * 6], [14] * 8 + [10], True),  # of nine one may
        ([10, 14, 14, *[10] * 6], [14] * 8 + [10], False),
    ],
)
def test_sessions_that_overlap_are_no_fail(old: list[float], new: list[float], part: bool) -> None:
    found = between(alones(old), alones(new), "median:1%", time=ProcessSpread(1e-4, 10**6))
    assert found.outcome is (Outcome.FAIL if part else Outcome.INCONCLUSIVE)
    assert ("but sessions of both runs overlap" in found.sentence) is not part


@pytest.mark.parametrize(
    ("old", "new", "outcome", "further", "counted"),
    [
        ([289] * 5, [320], Outcome.INCONCLUSIVE, 4, "1 and 5"),
        ([289] * 5, [320, 289], Outcome.INCONCLUSIVE, 1, "2 and 5"),  # one against one
        ([289] * 5, [320, 289, 289], Outcome.PASS, 0, "2 and 4"),
        ([289] * 5, [320, 289, 320], Outcome.INCONCLUSIVE, 0, "3 and 5"),
        ([289, 289, 320, 289, 289], [289], Outcome.PASS, 0, "1 and 4"),
        ([289, 289, 320, 289], [289], Outcome.PASS, 0, "1 and 3"),
        ([289, 320, 289], [289], Outcome.INCONCLUSIVE, 0, "1 and 3"),  # few may be the odd ones
        ([289, 289, 320, 289, 289], [320], Outcome.INCONCLUSIVE, 0, "1 and 5"),
    ],
)
def test_one_slow_process(old: list[float], new: list[float], outcome: Outcome, further: int, counted: str) -> None:
    found = between(alones(old), alones(new))
    assert (found.outcome, found.further) == (outcome, further)
    assert f"30 and 30 reps in each of {counted} sessions" in found.sentence


@pytest.mark.parametrize(
    ("saved", "us", "further"),
    [
        (5, 289, 0),  # PASS
        (5, 289 * 1.1, 4),
        (4, 289 * 1.1, 6),
        (3, 289 * 1.1, 9),  # the most that are asked for
        (2, 289 * 1.1, 0),  # no number of new ones decides
        (1, 289 * 1.1, 0),
        (1, 289 * 1.8, 1),  # to confirm a FAIL
        (5, 289 * 1.8, 1),
        (5, 289 * 1.05, 0),  # at the limit
        (5, 289 * 1.037, 4),  # more of the same would pass
    ],
)
def test_further_sessions_are_asked_for_where_they_may_decide(saved: int, us: float, further: int) -> None:
    assert compared("median:5%", us, FIVE[-saved:]).further == further


@pytest.mark.parametrize(
    ("reference_us", "outcome", "further"), [(1990, Outcome.FAIL, 1), (2000, Outcome.INCONCLUSIVE, 0)]
)
def test_arms_in_another_regime_are_not_measured_again(reference_us: float, outcome: Outcome, further: int) -> None:
    """Further sessions would meet the same surroundings."""
    (_, old), (_, new) = pair("mine", 100, 200), pair("mine", 2200, reference_us)
    found = between([old] * 5, [new], "speedup:5%")
    assert (found.outcome, found.further) == (outcome, further)


def test_samples_that_are_too_few_are_the_first_thing_to_mend() -> None:
    found = between([alone(reps=5)], [alone(reps=5)], "median:1%")
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.sentence.endswith("too few for the 99.9 % interval: take at least 11 reps in both)")


def test_the_scripted_timer_has_no_processes_to_differ() -> None:
    old, new = (alone(us=us, timer="scripted") for us in (289, 290))
    assert between([old], [new], "median:1%").outcome is Outcome.PASS


def test_more_sessions_decide_more() -> None:
    """1 % is decided where a suite is known to differ by no more than 0.1 %."""
    suite = ProcessSpread(0.001, 20)
    calm = [alone(us=289 * (1 + step / 1e4)) for step in (-8, 8, 4, -4, 0)]
    found = compared("median:1%", 289, calm, time=suite)
    assert found.outcome is Outcome.PASS
    assert "30 and 30 reps in each of 1 and 5 sessions, 99.9 % interval)" in found.sentence
    assert between(calm, alones([289 * 1.017] * 5), "median:1%", time=suite).outcome is Outcome.FAIL
    wild = [alone(us=289 * (1 + step / 100)) for step in (-8, 8, 4, -4, 0)]
    assert compared("median:5%", 289 * 1.1, wild, time=suite).outcome is Outcome.INCONCLUSIVE


def test_the_middle_of_the_sessions_is_compared_and_not_the_latest() -> None:
    latest_is_slow = [alone(us=us) for us in (289, 289, 289, 289, 292)]
    estimate = present(compared("median:5%", 289, latest_is_slow).estimate)
    assert estimate.ratio == pytest.approx(289 / (289 * (292 / 289) ** 0.2), rel=1e-4)
    assert estimate.sessions == (5, 1)


def test_what_was_measured_in_another_way_is_no_session() -> None:
    others = [alone(us=500, timer="events"), alone(us=500, cache="hot"), alone(us=500, samples_us=(), unmeasured="off")]
    wrong = msgspec.structs.replace(alone(us=500), verdicts=(verdict("max_time_us=1", Outcome.INVALID),))
    estimate = present(compared("median:5%", 289, [*others, wrong, alone()]).estimate)
    assert estimate.sessions == (1, 1)
    assert estimate.ratio == pytest.approx(1.0)


def test_speedups_have_a_spread_of_their_own() -> None:
    _, old = pair("mine", 200)
    suite = {"time": ProcessSpread(0.05, 20), "speedup": ProcessSpread(0.0005, 20)}
    for tolerance, outcome in {"speedup:1%": Outcome.PASS, "median:1%": Outcome.INCONCLUSIVE}.items():
        assert between([old], [old], tolerance, **suite).outcome is outcome
