"""A test whose saved call is replayed in turn with today's, in place of the comparison with saved numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest

from pytest_gpubench import BadFile, Measurement
from pytest_gpubench.public_call import compare_with_past, keep_calls, replayable_calls
from pytest_gpubench.results.counterpart import PastTest
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.verdict.reasons import reasons
from pytest_gpubench.verdict.replays import Replay
from tests.results.measured import alone, kernel
from tests.test_further_sessions import at, held_against, request_of, running, taken_at

SLOWER = Replay(SpeedupEstimate(0.9, Interval(0.89, 0.91), 24, 0.001), 10.0, 11.1)
AS_FAST = Replay(SpeedupEstimate(1.0, Interval(0.99, 1.01), 24, 0.001), 10.0, 10.0)


@dataclass
class Calls:
    """Calls whose replays say this, by label; notes what was asked."""

    replays: Mapping[str, Replay | str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def replay(self, item: Measurement, old: Measurement, tolerance: object, plan: object, say: object) -> Replay | str:
        self.asked.append(item.timing.label)
        return self.replays[item.timing.label]

    def with_call(self, item: Measurement) -> Measurement:
        self.kept.append(item.timing.label)
        return msgspec.structs.replace(item, call="a" * 64)


def compared(calls: Calls, us: float = 10.0) -> tuple[Measurement, list[str], list[int]]:
    """Return the measurement, the warnings, and the fresh processes that were asked for."""
    test = running(held_against(10.0))
    test.fresh = processes = at(us)
    (change,) = compare_with_past(test, request_of(), [taken_at(us)], calls=cast(Any, calls))
    assert change.new is not None
    return change.new, test.warnings, processes.asked


@pytest.mark.parametrize(
    ("replay", "us", "outcome", "metric", "ratio"),
    [
        (SLOWER, 10.0, Outcome.FAIL, "replayed time", 1 / 0.9),
        (AS_FAST, 11.0, Outcome.PASS, "replayed time", 1.0),
        (Replay(None), 11.0, Outcome.PASS, "same code", 1.0),
    ],
)
def test_replays_decide_whatever_the_numbers_say(
    replay: Replay, us: float, outcome: Outcome, metric: str, ratio: float
) -> None:
    """No fresh process is started: nothing between processes is left to estimate."""
    item, _, processes = compared(Calls({"a": replay}), us)
    (verdict,) = item.verdicts
    assert (verdict.outcome, verdict.kind, processes) == (outcome, "max_regression", [])
    assert item.change is not None
    assert item.change.metric == metric
    assert item.change.ratio == pytest.approx(ratio)


@pytest.mark.parametrize(("us", "outcome"), [(10.0, Outcome.PASS), (11.0, Outcome.FAIL)])
def test_where_a_call_cannot_be_replayed_numbers_judge(us: float, outcome: Outcome) -> None:
    item, warnings, _ = compared(Calls({"a": "its arguments differ"}), us)
    (verdict,) = item.verdicts
    assert verdict.outcome is outcome
    assert item.change is not None
    assert item.change.metric == "median"
    assert "a is judged by saved numbers: its arguments differ" in warnings


@pytest.mark.parametrize("tolerance", ["q1:5%", "median:2us", None])
def test_tolerances_that_replays_do_not_answer_for_are_judged_by_numbers(tolerance: str | None) -> None:
    """Without a tolerance the change is only shown."""
    calls = Calls({"a": SLOWER})
    test = running(replace(held_against(10.0), tolerance=parse_tolerance(tolerance) if tolerance else None))
    (change,) = compare_with_past(test, request_of(), [taken_at(10.0)], calls=cast(Any, calls))
    assert calls.asked == []
    assert change.new is not None
    assert [each.outcome for each in change.new.verdicts] == [Outcome.PASS] * bool(tolerance)


def test_a_reference_is_not_replayed() -> None:
    calls, reference = Calls({"a": SLOWER}), msgspec.structs.replace(taken_at(10.0), role="reference")
    past = held_against(10.0)
    assert isinstance(past.found, PastTest)
    past = replace(past, found=replace(past.found, measurements=(reference,)))
    compare_with_past(running(past), request_of(), [reference], calls=cast(Any, calls))
    assert calls.asked == []


def test_a_damaged_call_is_an_error() -> None:
    damaged = Mock(**{"replay.side_effect": BadFile("calls/ab/cd is damaged: save the run again")})
    with pytest.raises(BadFile, match="damaged"):
        compare_with_past(running(held_against(10.0)), request_of(), [taken_at(10.0)], calls=damaged)


# which calls are kept


@pytest.mark.parametrize(
    ("settings", "kept"),
    [({"save": "main"}, ["a"]), ({"autosave": True}, ["a"]), ({"json": "run.json"}, []), ({"compare": "main"}, [])],
)
def test_calls_are_kept_where_the_run_is_saved(settings: dict[str, Any], kept: list[str]) -> None:
    calls = Calls()
    items = [taken_at(10.0), msgspec.structs.replace(taken_at(9.0), role="reference")]
    request = request_of(Settings(timer="wall", device="cpu", **settings))
    found = keep_calls(cast(Any, calls), request, items, lambda text: None)
    assert calls.kept == kept
    assert [bool(item.call) for item in found] == [bool(kept), False]


def test_on_a_cpu_there_are_no_calls() -> None:
    assert replayable_calls(running(None), request_of()) is None
    items = [taken_at(10.0)]
    assert keep_calls(None, request_of(Settings(save="main")), items, lambda text: None) is items


@pytest.mark.parametrize("replay", [AS_FAST, Replay(None), ""])
def test_a_changed_toolchain_is_said_though_nothing_fails(replay: Replay | str) -> None:
    past = held_against(10.0)
    assert isinstance(past.found, PastTest)
    past = replace(past, found=replace(past.found, changed=(("triton", "3.5.1", "3.6.0"),)))
    test = running(past)
    compare_with_past(test, request_of(), [taken_at(10.0)], calls=cast(Any, Calls({"a": replay})))
    assert test.warnings == ["triton 3.5.1 -> 3.6.0 since the baseline 'main'"]


def test_a_throttled_gpu_slows_both_replays() -> None:
    """The numbers of this run are in doubt by it, and not what was timed in turn."""
    past = held_against(10.0)
    item = taken_at(11.0)
    timing = msgspec.structs.replace(item.timing, throttle_reasons=("power",), sm_clock_mhz=(1000.0,))
    item = msgspec.structs.replace(item, timing=timing)
    outcomes = []
    for calls in (Calls({"a": SLOWER}), Calls({"a": ""})):
        (change,) = compare_with_past(running(past), request_of(), [item], calls=cast(Any, calls))
        outcomes.append(change.outcome)
    assert outcomes == [Outcome.FAIL, Outcome.INVALID]


def test_a_clock_that_is_lower_today_is_no_reason_of_a_replay() -> None:
    kernels = (kernel("k", median_us=10.0),)
    old, new = (
        msgspec.structs.replace(alone("a", us, kernels=kernels).timing, sm_clock_mhz=(mhz,))
        for us, mhz in ((10.0, 1900.0), (11.0, 1500.0))
    )
    before, now = Measurement(timing=old), Measurement(timing=new)
    assert any("SM clock" in each for each in reasons(before, now))
    assert not any("SM clock" in each for each in reasons(before, now, metric="replayed time"))
