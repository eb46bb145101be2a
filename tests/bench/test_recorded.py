"""Recorded calls are compared, and compared again with their memory at other addresses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest
import torch

from pytest_gpubench import Measurement
from pytest_gpubench.bench.comparison import CompareRequest, looks_of
from pytest_gpubench.bench.placement import confirmed, elsewhere
from pytest_gpubench.bench.recorded import RecordedRequest
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.limits.base import RecordedTotals, Seen
from tests.bench.calls import COLD, CPU, agreement_of, double
from tests.results.measured import timing


def part_of(x: object, label: str) -> CompareRequest:
    agreement = agreement_of(double, x)
    calls = {name: make_call(double, agreement.arguments, label=f"{name} {label}") for name in ("reference", "mine")}
    named = {call.label: call for call in calls.values()}

    def remake(args: Sequence[object], kwargs: Mapping[str, object] | None) -> CompareRequest:
        return part_of(args[0], label)

    return CompareRequest(COLD, CPU, Limits(), ((x,), None), named, agreement, remake=remake)


def test_it_is_made_again_with_other_memory() -> None:
    tensors = torch.ones(2, 3), torch.ones(5)
    request = RecordedRequest.of([part_of(tensors[0], "2x3"), part_of(tensors[1], "5")], [3, 1])
    with elsewhere(replace(request, settings=replace(COLD, alpha=0.01))) as other:
        assert isinstance(other, RecordedRequest)
        assert (other.judged, other.counts, other.settings.alpha) == (["mine 2x3", "mine 5"], [3, 1], 0.01)
        moved = [part.agreement.arguments.args[0] for part in other.parts]
        for before, after in zip(tensors, moved, strict=True):
            assert isinstance(after, torch.Tensor)
            assert torch.equal(before, after)
            assert before.data_ptr() != after.data_ptr()
        found = other.call_only("not now")
    assert [item.timing.label for item in found.measurements][::2] == ["reference 2x3", "reference 5"]
    assert (found.result.speedup, len(found.result.comparisons)) == (None, 2)


def test_all_shapes_together_have_the_alpha_of_the_test() -> None:
    request = RecordedRequest.of([part_of(torch.ones(2), str(number)) for number in range(5)], [1] * 5)
    assert request.shape_settings.alpha == pytest.approx(COLD.alpha / 10)


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (["", "", "", "switched off"], "switched off"),
        (["", "", "interpreted", "switched off"], "interpreted"),
        (["interpreted", "switched off", "", ""], "interpreted"),
        (["", "", "", ""], "nothing was timed"),
    ],
)
def test_the_first_call_that_was_not_timed_says_why(reasons: Sequence[str], told: str) -> None:
    items = [Measurement(timing=timing("mine", 10.0, unmeasured=reason)) for reason in reasons]
    request = RecordedRequest.of([part_of(torch.ones(2), str(number)) for number in range(2)], [1, 1])
    found = replace(request, limits=Limits(min_weighted_speedup=1.0))._judged([], items)
    (verdict,) = found.measurements[1].verdicts
    assert verdict.sentence == f"the total of the recorded calls was not judged: {told}"


def at(ratio: float) -> Measurement:
    """Return a measurement with the verdict on a limit of 1 that finds this ratio of totals."""
    item = Measurement(timing=timing("mine", 10.0), role="candidate")
    totals = RecordedTotals(ratio, Interval(0.99 * ratio, 1.01 * ratio), 800.0, 2, 40)
    verdicts = Limits(min_weighted_speedup=1.0).judge("totals", Seen(item.timing, 0.001, totals=totals))
    return msgspec.structs.replace(item, verdicts=verdicts)


@pytest.mark.parametrize(
    ("ratios", "outcome", "words"),
    [
        ((0.9, 0.9, 0.9), Outcome.FAIL, "slower than the reference: 0.9000x"),
        ((0.9, 1.1, 0.9), Outcome.INCONCLUSIVE, "; at other addresses 1.100x [1.089, 1.111], 0.9000x [0.8910, 0.9090]"),
    ],
)
def test_a_fail_stands_where_no_placement_keeps_the_limit(
    ratios: tuple[float, ...], outcome: Outcome, words: str
) -> None:
    items = [at(ratio) for ratio in ratios]
    (verdict,) = confirmed(items, items[0]).verdicts
    assert verdict.outcome is outcome
    assert words in verdict.sentence


@pytest.mark.parametrize(("limits", "first"), [({}, 6), ({"min_speedup": 1.0}, 6), ({"min_weighted_speedup": 1.0}, 16)])
def test_a_total_is_judged_by_reps_that_show_whether_they_resemble(limits: dict[str, float], first: int) -> None:
    assert looks_of(COLD, Limits(**limits))[0] == first
