"""Whether a test fails by what it measured."""

from dataclasses import replace

import msgspec
import pytest

from pytest_gpubench import BadRequest, KernelsDiffer, LimitBroken, Measurement, NoBaseline, WrongResult
from pytest_gpubench.bench.request import MeasureRequest
from pytest_gpubench.public_call import answering
from pytest_gpubench.results.model import Peaks
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.verdict.limits import Limits
from tests.bench.calls import COLD, CPU
from tests.results.measured import timing
from tests.search.requests import Harness

CAUGHT = "gpu_bench raised this, and the test or a thread caught it: let it through"


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        (LimitBroken("slow"), True),
        (WrongResult("wrong"), True),
        (KernelsDiffer("no"), True),
        (NoBaseline("none"), True),
        (BadRequest("bad"), False),
        (ValueError("theirs"), False),
    ],
)
@pytest.mark.parametrize("has_failed", [True, False])
def test_an_error_of_ours_fails_the_test_whatever_it_does_with_it(
    error: Exception, fails: bool, has_failed: bool
) -> None:
    test = CurrentTest("here", COLD, Limits())
    with pytest.raises(type(error)), answering(test, "f"):
        raise error
    assert test.why_failed(has_failed) == (f"{error} ({CAUGHT})" if fails else None)
    assert test.has_begun == fails


def test_a_test_fails_that_ends_while_it_measures() -> None:
    test = CurrentTest("here", COLD, Limits())
    with answering(test, "f"):
        assert test.why_failed() == "'f' was still being measured when the test ended: join the thread that measures"
        assert test.why_failed(has_failed=True) is None
    assert test.why_failed() is None


@pytest.mark.parametrize(("limits", "fails"), [({}, False), ({"max_time_us": 2}, False), ({"min_speedup": 1}, True)])
def test_a_test_fails_whose_limits_no_measurement_could_be_judged_by(limits: dict[str, float], fails: bool) -> None:
    test = CurrentTest("here", COLD, Limits(**limits), CPU)
    test.keep([Measurement(timing=timing("f", 1.0))])
    assert bool(test.why_failed()) == fails
    assert test.why_failed(has_failed=True) is None
    test.settings = replace(COLD, disable=True)
    assert test.why_failed() is None


def test_the_record_says_what_was_asked_of_a_throttled_gpu() -> None:
    """Of this test, as by its mark: the run's other tests may ask for something else."""
    for asked in ("fail", "warn"):
        test = CurrentTest("here", replace(COLD, throttled=asked), Limits(), CPU)
        assert test.record("master", None, ()).throttled == asked


@pytest.mark.parametrize(("limits", "number"), [({"min_gbps": 98}, 1), ({"min_peak_fraction": 0.5}, 0)])
def test_it_is_said_that_no_physics_stood_behind_a_number(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, float], number: int
) -> None:
    """A limit that needs the peak says so itself."""
    monkeypatch.setattr(MeasureRequest, "peaks", lambda *given: Peaks(remarks=("memory: not measured, busy",)))
    test = CurrentTest("here", COLD, Limits(**limits), CPU)
    test.keep([Measurement(timing=timing("f", 1.0))])
    sentence = "not compared with what the GPU can do at most: memory: not measured, busy"
    assert test.record("master", None, ()).warnings == (sentence,) * number


def test_what_a_repeated_example_measured_is_kept_once_and_moves_to_the_end() -> None:
    """Also where what is kept is no longer what is remembered, as beside other processes or with counters."""
    harness = Harness()
    test = CurrentTest("here", COLD, Limits(), search=harness.search)
    for n in (1, 2, 1):
        harness.compare(n, fast=1.0)
        test.keep([msgspec.structs.replace(item) for item in harness.measured])
        test.keep([])  # as of a call that measured nothing
    assert [item.example for item in test.measurements] == ["n=2", "n=2", "n=1", "n=1"]
