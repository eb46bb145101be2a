"""Verdicts that fail a test, and measurements of one that failed."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from pytest_gpubench import (
    BadRequest,
    InvalidResult,
    KernelsDiffer,
    LimitBroken,
    Measurement,
    Verdict,
    WrongResult,
    public_call,
    scripted,
)
from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.bench.request import CallResult, MeasureRequest
from pytest_gpubench.public_call import answer, enforce_all, keeping_failed, naming_what_broke
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.running_test import CurrentTest, NoSearch
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.verdict.limits import Limits
from tests.bench.calls import COLD, CPU, agreement_of, double
from tests.results.measured import timing, verdict


def judged(*verdicts: Verdict) -> Measurement:
    return Measurement(timing=timing("it", 1.0), verdicts=verdicts)


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
            enforce_all(test, COLD, [judged(given)])
    else:
        enforce_all(test, COLD, [judged(given)])
    assert test.warnings == (["it is what it is"] if outcome is Outcome.NOT_JUDGED and enforced else [])


def test_the_worst_verdict_of_all_measurements_is_raised_with_all_others_that_are_broken() -> None:
    little, much, undecided = (
        judged(verdict(f"max_time_us={limit_us}", outcome, f"missed {limit_us}"), verdict("x=1", Outcome.FAIL, "other"))
        for limit_us, outcome in ((0.9, Outcome.FAIL), (0.5, Outcome.FAIL), (0.1, Outcome.INCONCLUSIVE))
    )
    with pytest.raises(LimitBroken, match=r"^missed 0.5\nalso: missed 0.9(\nalso: other){3}\nalso: missed 0.1$"):
        enforce_all(CurrentTest("here", COLD, Limits()), replace(COLD, inconclusive="fail"), [undecided, little, much])


def test_the_verdicts_of_a_call_are_kept_in_the_order_in_which_its_error_tells_them() -> None:
    settings, limits = replace(COLD, timer="scripted"), Limits(max_rel_std=0.05, max_time_us=1.0, max_kernels=1)
    test = CurrentTest("here", settings, limits)

    @scripted([20.0, 30.0], kernels=("a", "b"))
    def it() -> None:
        pass

    with pytest.raises(LimitBroken) as error:
        answer(test, MeasureRequest(settings, CPU, limits, (), {"it": make_call(it)}), print)
    (item,) = test.measurements
    assert [each.kind for each in item.verdicts] == ["max_kernels", "max_time_us", "max_rel_std"]
    assert str(error.value) == "\nalso: ".join(each.sentence for each in item.verdicts)


@pytest.mark.parametrize(("limit", "page"), [("max_time_us=100.0", "limits"), ("max_regression=0.05", "baselines")])
def test_a_broken_limit_names_the_page_that_helps(limit: str, page: str) -> None:
    with pytest.raises(LimitBroken) as error:
        enforce_all(CurrentTest("here", COLD, Limits()), COLD, [judged(verdict(limit, Outcome.FAIL, "slow"))])
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
    with pytest.raises(type(error)), keeping_failed(test, request):
        raise error
    found = [
        (
            each.timing.label,
            each.role,
            each.timing.unmeasured,
            [(told.outcome, told.sentence) for told in each.verdicts],
        )
        for each in test.measurements
    ]
    invalid = [(Outcome.INVALID, "no")]
    noting = [("reference", "reference", "no", []), *((name, "candidate", "no", invalid) for name in ("a", "b"))]
    assert found == (noting if noted else []), "an own reference, or that of an earlier comparison would be shown"


def test_a_trace_lies_where_the_run_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Path] = []
    monkeypatch.setattr("pytest_gpubench.public_call.take_trace", lambda call, device, path, **how: taken.append(path))
    settings, folder = replace(COLD, trace="traces", reps=1, warmup=1, cache="hot"), Path.cwd()
    monkeypatch.chdir(tmp_path)
    calls = {"it": make_call(lambda: torch.ones(2), label="it")}
    answer(CurrentTest("here", settings, Limits()), MeasureRequest(settings, CPU, Limits(), (), calls), print)
    assert [each.parent for each in taken] == [folder / "traces"]


class Found(NoSearch):
    """A search that has measured already."""

    def obtain(self, request: Any, say: Any) -> CallResult[Any]:
        say("measuring")
        return CallResult(None, [judged()])


STEPS = ("computing", "judged_by_counters", "keep_calls", "past")
"""What a call asks of its test, and the functions it calls, once it has measured."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("step", STEPS)
def test_what_was_measured_is_kept_whatever_ends_the_call(
    step: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*arguments: object) -> NoReturn:
        said.append(step)
        raise error("no")

    said: list[str] = []
    test = CurrentTest("here", COLD, Limits(), search=Found())
    monkeypatch.setattr(test if hasattr(test, step) else public_call, step, end)
    request = MeasureRequest(COLD, CPU, Limits(), (), {"it": make_call(double)})
    with pytest.raises(error):
        answer(test, request, lambda text: said.append(text or f"{len(test.measurements)} kept"))
    assert [each.timing.label for each in test.measurements] == ["it"]
    assert said == ["measuring", step, "1 kept"], "before the terminal is written to, which may fail"


class Breaking(CompareRequest):
    """A comparison whose calls have margins, as on a GPU."""

    has_margins = True


@pytest.mark.parametrize(
    ("error", "broken", "found", "raised"),
    [
        (RuntimeError("CUDA error: an illegal memory access"), "illegal", "it reads past args[1]", WrongResult),
        (RuntimeError("CUDA error: an illegal memory access"), "illegal", "", RuntimeError),
        (RuntimeError("CUDA error: out of memory"), None, "it reads past args[1]", RuntimeError),
        (ValueError("no"), "illegal", "it reads past args[1]", ValueError),
        (InvalidResult("cuda"), "illegal", "it reads past args[1]", InvalidResult),
    ],
)
def test_a_call_that_breaks_the_gpu_is_told_by_what_a_fresh_process_finds(
    error: Exception, broken: str | None, found: str, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gpubench.public_call.context_error", lambda: broken)
    agreement = agreement_of(double)
    calls = {name: make_call(double, label=name) for name in "rc"}
    test = CurrentTest("here", COLD, Limits(), find_what_broke=lambda: found)
    request, said = Breaking(COLD, CPU, Limits(), (), calls, agreement), list[str]()
    with pytest.raises(raised) as told, naming_what_broke(test, request, said.append):
        raise error
    assert (told.value is error) is (raised is type(error))
    assert str(told.value) == (found if raised is WrongResult else str(error))
    assert bool(said) is (broken is not None and isinstance(error, RuntimeError) and "CUDA" in str(error))


@pytest.mark.parametrize("found", [None, "it reads past args[1]"])
def test_in_that_process_a_comparison_begins_with_margins(found: str | None) -> None:
    noted: list[str] = []

    class Noting(Breaking):
        def name_what_breaks(self, note: Callable[[str], object]) -> None:
            if found is not None:
                raise WrongResult(found)

    x = torch.ones(4)
    agreement = agreement_of(double, x)
    calls = {name: make_call(double, agreement.arguments, label=name) for name in "rc"}
    request = Noting(COLD, CPU, Limits(), ((x,), {}), calls, agreement)
    test = CurrentTest("here", COLD, Limits(), note_what_breaks=noted.append)
    with nullcontext() if found is None else pytest.raises(WrongResult):
        comparison = answer(test, request, lambda text: None)
        assert not comparison.reference.measured
    assert noted == ["", *([found] if found else [])]
