"""Verdicts that fail a test, and measurements of one that failed."""

from dataclasses import replace

import pytest

from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.errors import BadRequest, InvalidResult, KernelsDiffer, LimitBroken, NoBaseline, WrongResult
from pytest_gpubench.results.model import Measurement, Outcome
from pytest_gpubench.running_test import CurrentTest, enforce, enforce_all, keeping_failed
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.verdict.limits import Limits
from tests.bench.calls import COLD, CPU, agreement_of, double
from tests.results.measured import timing, verdict

CAUGHT = "gpu_bench raised this, and the test or a thread caught it: let it through"


@pytest.mark.parametrize("enforced", [True, False])
@pytest.mark.parametrize(
    ("outcome", "raised"),
    [(Outcome.PASS, None), (Outcome.INVALID, InvalidResult), (Outcome.NOT_JUDGED, None)],
)
def test_an_invalid_verdict_fails_the_test(outcome: Outcome, raised: type[Exception] | None, enforced: bool) -> None:
    test = CurrentTest("here", COLD, Limits())
    given = verdict("max_time_us=100.0", outcome, "it is what it is", enforced)
    if raised and enforced:
        with pytest.raises(raised, match=r"^it is what it is$"):
            enforce(test, COLD, [given])
    else:
        enforce(test, COLD, [given])
    assert test.warnings == (["it is what it is"] if outcome is Outcome.NOT_JUDGED and enforced else [])


def test_a_broken_limit_comes_before_those_of_earlier_measurements_that_are_undecided() -> None:
    first, second = (
        Measurement(timing=timing(name, 1.0), verdicts=(verdict("max_time_us=1.0", outcome, f"{name} is it"),))
        for name, outcome in (("undecided", Outcome.INCONCLUSIVE), ("broken", Outcome.FAIL))
    )
    with pytest.raises(LimitBroken, match="broken is it"):
        enforce_all(CurrentTest("here", COLD, Limits()), replace(COLD, inconclusive="fail"), [first, second])


@pytest.mark.parametrize(("limit", "page"), [("max_time_us=100.0", "limits"), ("max_regression=0.05", "baselines")])
def test_a_broken_limit_names_the_page_that_helps(limit: str, page: str) -> None:
    with pytest.raises(LimitBroken) as error:
        enforce(CurrentTest("here", COLD, Limits()), COLD, [verdict(limit, Outcome.FAIL, "slow")])
    assert error.value.page == page


@pytest.mark.parametrize(
    ("error", "noted"),
    [
        (InvalidResult("no"), True),
        (KernelsDiffer("no"), True),
        (WrongResult("no"), True),
        (ValueError("no"), False),
        (BadRequest("no"), False),
    ],
)
def test_what_has_no_number_is_noted(error: Exception, noted: bool) -> None:
    test = CurrentTest("here", COLD, Limits(min_speedup=1.5))
    calls = {name: make_call(double, label=name) for name in ("reference", "a", "b")}
    request = CompareRequest(COLD, CPU, test.limits, (), calls, agreement_of(double))
    with pytest.raises(type(error)), keeping_failed(test, request, []):
        raise error
    found = {each.timing.label: [verdict.outcome for verdict in each.verdicts] for each in test.measurements}
    assert found == ({"a": [Outcome.INVALID], "b": [Outcome.INVALID]} if noted else {})
    assert all(each.role == "candidate" and each.timing.unmeasured == "no" for each in test.measurements)
    assert all(verdict.sentence == "no" for each in test.measurements for verdict in each.verdicts)


def test_a_test_that_was_expected_to_fail_enforces_nothing() -> None:
    broken, loose, kept = (
        verdict("max_time_us=1.0", outcome, "it", enforced)
        for outcome, enforced in ((Outcome.FAIL, True), (Outcome.INVALID, False), (Outcome.PASS, True))
    )
    test = CurrentTest("here", COLD, Limits())
    test.keep([Measurement(timing=timing("f", 1.0), verdicts=(broken, loose, kept))])
    test.unenforce()
    assert [each.enforced for each in test.measurements[0].verdicts] == [False, False, True]


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
    with pytest.raises(type(error)), test.answering("f"):
        raise error
    assert test.why_failed(has_failed) == (f"{error} ({CAUGHT})" if fails else None)
    assert test.has_begun == fails


def test_a_test_fails_that_ends_while_it_measures() -> None:
    test = CurrentTest("here", COLD, Limits())
    with test.answering("f"):
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
