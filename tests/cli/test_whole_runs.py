"""Two whole runs compared."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.cli.compare import compare_runs
from pytest_gpubench.results.baseline import slimmed
from pytest_gpubench.results.model import Outcome, TestRecord
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.verdict.regression import Change
from tests.results.measured import ALPHA, on, record, retimed, run, timing
from tests.results.measured import alone as measured_alone
from tests.results.measured import pair as measured_pair
from tests.results.measured import verdict as verdict_on
from tests.results.saved import make_run


def test_a_slim_run_compares_the_same() -> None:
    old, new = make_run(20), make_run(20, seed=1, slower=1.1)
    tolerance = parse_tolerance("median:5%")
    told = [(each.nodeid, each.label, each.outcome, each.sentence) for each in compare_runs(old, new, tolerance, 0.01)]
    slim = compare_runs(slimmed(old), slimmed(new), tolerance, 0.01)
    assert told == [(each.nodeid, each.label, each.outcome, each.sentence) for each in slim]


def pair(us: float, reference_us: float = 400) -> tuple[Measurement, Measurement]:
    """With this timer samples are the same in every process: one decides."""
    reference, candidate = measured_pair("mine", us, reference_us)
    return retimed(reference, timer="scripted"), retimed(candidate, timer="scripted")


def alone(label: str = "softmax", us: float = 289, **others: Any) -> Measurement:
    return measured_alone(label, us, timer="scripted", **others)


def compared(old: Sequence[TestRecord], new: Sequence[TestRecord], tolerance: str = "median:5%") -> list[Change]:
    return compare_runs(run(*old), run(*new, name="feature"), parse_tolerance(tolerance), ALPHA)


def test_every_measurement_of_both_runs_has_its_change() -> None:
    old = [
        record(alone(), alone("gone label", 5)),
        record(alone(), nodeid="tests/a.py::test_moved", source="m"),
        record(alone(), nodeid="tests/a.py::test_gone", source="g"),
        record(alone(), nodeid="tests/a.py::test_changed", source="c1"),
        record(alone(), nodeid="tests/a.py::test_p[1]", source="p", params={"n": "1"}),
    ]
    new = [
        record(alone(us=320), alone("new label", 6)),
        record(alone(), nodeid="tests/b.py::test_moved", source="m"),
        record(alone(), nodeid="tests/a.py::test_changed", source="c2"),
        record(alone(), nodeid="tests/a.py::test_p[2]", source="p", params={"n": "2"}),
        record(alone(), nodeid="tests/a.py::test_new", source="n"),
    ]
    changes = compared(old, new)
    told = [(each.nodeid.partition("::")[2], each.label, each.missing and each.missing.kind) for each in changes]
    assert told == [
        ("test_it", "softmax", None),
        ("test_it", "new label", "no test"),
        ("test_it", "gone label", None),
        ("test_moved", "softmax", "renamed"),
        ("test_changed", "softmax", "source"),
        ("test_p[2]", "softmax", "parameters"),
        ("test_new", "softmax", "no test"),
        ("test_gone", "softmax", None),
        ("test_p[1]", "softmax", None),
    ]
    assert [each.outcome for each in changes] == [Outcome.FAIL] + [Outcome.NOT_JUDGED] * 8
    assert (changes[2].new, changes[7].new) == (None, None)
    assert "'main' but not in feature: it was removed, renamed or not measured" in changes[7].sentence
    assert None not in (changes[0].old, changes[0].estimate)


def test_a_reference_is_compared_but_not_judged() -> None:
    changes = compared([record(*pair(200))], [record(*pair(220, 440))])
    assert [each.outcome for each in changes] == [Outcome.NOT_JUDGED, Outcome.FAIL]
    assert changes[0].sentence.startswith("the reference is not judged: torch is slower")
    assert "its reference torch is slower too, 1.100x of its median" in changes[1].notes[0]
    changes = compared([record(*pair(200))], [record(*pair(220, 440))], "speedup:3%")
    assert [each.outcome for each in changes] == [Outcome.NOT_JUDGED, Outcome.PASS]
    assert changes[1].notes == ()
    for us, reference_us, outcome in ((220, 400, Outcome.FAIL), (200, 440, Outcome.PASS)):
        changes = compared([record(*pair(200))], [record(*pair(us, reference_us))])
        assert (changes[1].outcome, changes[1].notes) == (outcome, ())


def test_notes_name_what_else_is_to_know() -> None:
    old = record(alone())
    new = record(alone(us=200, throttle_reasons=("power cap",)), device=on(driver="580"))
    (found,) = compared([old], [new])
    told = ("baseline stale: softmax", "throttled now (power cap)", "driver 570.1 -> 580 since")
    assert (found.outcome, [part for part in told if part not in " ".join(found.notes)]) == (Outcome.PASS, [])


OTHERS, POWER = {"neighbours": "pid 7 computed"}, {"throttle_reasons": ("power cap",)}


@pytest.mark.parametrize(
    ("slowed", "throttled", "us", "outcome"),
    [
        ({}, "fail", 320, Outcome.FAIL),
        (OTHERS, "fail", 320, Outcome.INVALID),
        (POWER, "fail", 320, Outcome.INVALID),
        (POWER, "fail", 289, Outcome.PASS),
        (POWER, "warn", 320, Outcome.FAIL),
    ],
)
def test_what_was_slower_on_a_slower_gpu_is_invalid_as_in_a_test(
    slowed: dict[str, Any], throttled: Any, us: float, outcome: Outcome
) -> None:
    new = msgspec.structs.replace(record(alone(us=us, **slowed)), throttled=throttled)
    (found,) = compared([record(alone())], [new])
    assert found.outcome is outcome
    assert ("says more about the GPU" in found.sentence) == (outcome is Outcome.INVALID)


@pytest.mark.parametrize("slowed", [(True, False), (False, True)])
def test_a_speedup_over_a_reference_on_a_slower_gpu_is_invalid(slowed: tuple[bool, bool]) -> None:
    """Each pair of a test by its own reference."""
    old = [item for _ in range(2) for item in pair(200)]
    new = list(old)
    for number, is_slowed in enumerate(slowed):
        timing = msgspec.structs.replace(old[2 * number].timing, throttle_reasons=("power cap",) * is_slowed)
        new[2 * number] = msgspec.structs.replace(old[2 * number], timing=timing)
    outcomes = [each.outcome for each in compared([record(*old)], [record(*new)], "speedup:3%")]
    assert outcomes[1::2] == [Outcome.INVALID if each else Outcome.PASS for each in slowed]


@pytest.mark.parametrize(("outcome", "expected"), [("invalid", Outcome.INVALID), ("fail", Outcome.NOT_JUDGED)])
def test_what_has_no_number_now_says_why(outcome: str, expected: Outcome) -> None:
    verdict = verdict_on("max_time_us=1", Outcome(outcome), "s")
    new = Measurement(
        timing=timing("softmax", 1, samples_us=(), unmeasured="too fast", timer="scripted"), verdicts=(verdict,)
    )
    (found,) = compared([record(alone())], [record(new)])
    assert (found.outcome, found.sentence) == (expected, "softmax was not measured: too fast")
    assert found.old is not None
