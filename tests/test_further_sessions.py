"""A test that is compared with a saved run, over further sessions in fresh processes where these may decide."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import msgspec
import pytest

from pytest_gpubench import Measurement, Timing, Verdict
from pytest_gpubench.bench.request import MeasureRequest, carrying
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.public_call import compare_with_past, keeping_failed
from pytest_gpubench.results.counterpart import PastTest
from pytest_gpubench.results.model import Outcome, TestRecord
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.saved_runs import BaselineLimit
from pytest_gpubench.verdict.throttling import beside
from tests.results.measured import BARE_GPU as GPU
from tests.results.measured import verdict

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
SETTINGS = Settings(timer="wall", device="cpu")
DEVICE = cpu_device()
UNMEASURED = Timing(label="a", timer="wall", cache="cold", device="GPU", unmeasured="off")


def taken_at(us: float, *verdicts: Verdict) -> Measurement:
    """Return a measurement of 40 alike reps."""
    timing = Timing(label="a", timer="wall", cache="cold", device="GPU", samples_us=(us,) * 40)
    return Measurement(timing=timing, verdicts=verdicts)


def held_against(us: float, sessions: int = 5) -> BaselineLimit:
    """Return a saved run of the same test, which may be 5 % slower."""
    saved = (taken_at(us),)
    known = PastTest("t.py::test_it", "main", GPU, {}, {}, "", saved, earlier=(saved,) * (sessions - 1))
    return BaselineLimit(known, RegressionTolerance("median", margin=0.05), "max_regression", "median:5%")


def running(past: BaselineLimit | None, settings: Settings = SETTINGS) -> CurrentTest:
    return CurrentTest("t.py::test_it", settings, Limits(), past=lambda facts: past)


def request_of(settings: Settings = SETTINGS) -> MeasureRequest:
    return MeasureRequest(settings, DEVICE, Limits(), (), {"a": make_call(lambda: None)})


def record_of(*items: Measurement) -> TestRecord:
    return TestRecord(nodeid="t.py::test_it", device=GPU, measurements=items)


class Processes:
    """Fresh processes with these results, the last of which all further ones have; notes which were asked for."""

    def __init__(self, *found: TestRecord | str) -> None:
        self.found = found
        self.asked: list[int] = []

    def __call__(self, number: int) -> TestRecord | str:
        self.asked.append(number)
        return self.found[min(number, len(self.found)) - 1]


def compared(
    us: float,
    fresh: Callable[[int], TestRecord | str] | None,
    *verdicts: Verdict,
    sessions: int = 5,
    settings: Settings = SETTINGS,
) -> tuple[Measurement, list[str]]:
    """Return what comparing a test came to whose call takes so long here, and its warnings."""
    test = running(held_against(10.0, sessions), settings)
    test.fresh = fresh
    (change,) = compare_with_past(test, request_of(settings), [taken_at(us, *verdicts)])
    assert change.new is not None
    return change.new, test.warnings


def at(*times_us: float) -> Processes:
    return Processes(*(record_of(taken_at(us)) for us in times_us))


@pytest.mark.parametrize(
    ("us", "fresh", "sessions", "outcome", "asked"),
    [
        (10.0, at(10.0), 5, PASS, 0),
        (11.0, at(11.0), 5, FAIL, 4),
        (11.0, at(11.0), 1, INCONCLUSIVE, 0),  # against one session no number of processes decides
        (18.0, at(18.0), 1, FAIL, 1),
        (18.0, at(10.0), 1, PASS, 2),  # two outweigh one
        (11.0, at(10.0), 5, PASS, 2),
        (11.0, at(11.0, 11.0, 10.0), 5, INCONCLUSIVE, 3),
        (11.0, at(11.0, 10.5, 11.0), 5, INCONCLUSIVE, 2),  # at the limit: that all part is no longer possible
        (10.5, at(10.0), 5, INCONCLUSIVE, 0),
    ],
)
def test_processes_are_started_until_all_is_decided(
    us: float, fresh: Processes, sessions: int, outcome: Outcome, asked: int
) -> None:
    item, warnings = compared(us, fresh, sessions=sessions)
    (verdict,) = item.verdicts
    assert (verdict.outcome, fresh.asked) == (outcome, list(range(1, asked + 1)))
    assert item.timing.median_us == us  # of this process, whatever the others took
    assert [each.startswith("PASS in a fresh process, after another") for each in warnings] == (
        [True] if asked and outcome is PASS else []
    )


@pytest.mark.parametrize(
    ("fresh", "why"),
    [
        ("no time is left", "no time is left"),
        (record_of(), "a was not measured in it"),
        (record_of(taken_at(10.0, verdict("validity=x", Outcome.INVALID, "throttled"))), "a: throttled"),
        (record_of(Measurement(timing=UNMEASURED)), "a: off"),
        (record_of(beside(taken_at(10.0), "pid 7 computed")), "a: pid 7 computed"),
    ],
)
def test_what_no_fresh_process_measures_is_judged_by_the_sessions_that_there_are(
    fresh: TestRecord | str, why: str
) -> None:
    for us, sessions, outcome in ((11.0, 5, INCONCLUSIVE), (18.0, 1, FAIL)):
        found, warnings = compared(us, Processes(fresh), sessions=sessions)
        assert [each.outcome for each in found.verdicts] == [outcome]
        assert warnings == [f"not measured again in a fresh process: {why}"]


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        (replace(SETTINGS, device="auto"), PASS),  # not enforced
        (SETTINGS, FAIL),  # the test fails anyhow
    ],
)
def test_no_process_is_started_where_it_changes_nothing(settings: Settings, own: Outcome) -> None:
    fresh = at(11.0)
    found, _ = compared(11.0, fresh, verdict("max_time_us=1", own), settings=settings)
    assert [each.outcome for each in found.verdicts] == [own, INCONCLUSIVE]
    assert fresh.asked == []


@pytest.mark.parametrize("role", ["candidate", "reference"])
def test_no_process_is_started_for_what_is_not_judged(role: Literal["candidate", "reference"]) -> None:
    """A reference is not judged, nor a candidate that no limit is set for."""
    saved = (msgspec.structs.replace(taken_at(10.0), role=role),)
    known = PastTest("t.py::test_it", "main", GPU, {}, {}, "", saved, earlier=(saved,) * 4)
    tolerance = RegressionTolerance("median", margin=0.05) if role == "reference" else None
    test = running(BaselineLimit(known, tolerance, "max_regression", "median:5%"))
    test.fresh = fresh = at(11.0)
    compare_with_past(test, request_of(), [msgspec.structs.replace(taken_at(11.0), role=role)])
    assert fresh.asked == []


def test_limits_of_the_test_are_judged_by_its_own_process() -> None:
    slower = Processes(record_of(taken_at(11.0, verdict("max_time_us=1", FAIL))))
    for own in (PASS, INCONCLUSIVE):
        found, _ = compared(11.0, slower, verdict("max_time_us=1", own))
        assert [each.outcome for each in found.verdicts] == [own, FAIL]


def test_an_error_before_the_comparison_loses_nothing_that_was_measured() -> None:
    test, error = running(held_against(10.0)), ValueError("late")
    with pytest.raises(ValueError, match="late"), keeping_failed(test, request_of()), carrying([taken_at(11.0)]):
        raise error
    assert test.measurements == [taken_at(11.0)]
    with pytest.raises(ValueError, match="late"), keeping_failed(test, request_of()):
        raise error  # the same error, before anything was measured
    assert test.measurements == [taken_at(11.0)]


def test_several_measurements_share_the_processes() -> None:
    """The fresh process runs the whole test: each call finds its own measurement in it."""
    saved = (taken_at(10.0), taken_at(10.0))
    known = PastTest("t.py::test_it", "main", GPU, {}, {}, "", saved, earlier=(saved,) * 4)
    test = running(BaselineLimit(known, RegressionTolerance("median", margin=0.05), "max_regression", "median:5%"))
    test.fresh = fresh = Processes(record_of(taken_at(10.0), taken_at(11.0)))
    outcomes: list[Outcome] = []
    for us in (10.0, 11.0):
        (change,) = compare_with_past(test, request_of(), [taken_at(us)])
        assert change.new is not None
        test.keep([change.new])
        outcomes.append(change.outcome)
    assert outcomes == [PASS, FAIL]
    assert fresh.asked == [1, 2, 3, 4]


def test_a_caveat_of_all_measurements_is_said_once() -> None:
    saved = (taken_at(10.0), taken_at(10.0))
    known = PastTest("t.py::test_it", "main", GPU, {}, {}, "", saved, changed=(("driver", "570", "580"),))
    test = running(BaselineLimit(known, None))
    compare_with_past(test, request_of(), saved)
    assert test.warnings == ["driver 570 -> 580 since the baseline 'main'"]
