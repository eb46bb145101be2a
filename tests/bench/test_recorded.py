"""Recorded calls are compared, and compared again with their memory at other addresses."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import Measurement
from pytest_gpubench.bench.comparison import CompareRequest, looks_of
from pytest_gpubench.bench.placement import confirmed, elsewhere
from pytest_gpubench.bench.recorded import RecordedRequest, ShapeSpeedup, weighted_speedup
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


# the total of several shapes


def shape(ratio: float, total_us: float, less: float = 0.0) -> ShapeSpeedup:
    """Return a speedup whose intervals reach so far to both sides."""
    ends = [Interval(value * (1 - less), value * (1 + less)) for value in (ratio, total_us)]
    return ShapeSpeedup(ratio, ends[0], total_us, ends[1])


shapes = st.lists(st.builds(shape, st.floats(0.1, 10), st.floats(1, 1e6), st.floats(0, 0.5)), min_size=1, max_size=4)


def test_a_shape_counts_by_the_time_of_the_reference() -> None:
    """90 us become 45, and 10 become 20."""
    both = [shape(2, 90), shape(0.5, 10)]
    ratio, interval = weighted_speedup(both)
    assert ratio == pytest.approx(100 / 65)
    assert interval == pytest.approx((100 / 65, 100 / 65))


def test_one_shape_keeps_its_own_interval() -> None:
    assert weighted_speedup([shape(2, 90, 0.1)])[1] == pytest.approx((1.8, 2.2))


def test_without_an_interval_of_one_there_is_none() -> None:
    assert weighted_speedup([shape(2, 90), ShapeSpeedup(1, None, 10, Interval(9, 11))])[1] is None


@given(shapes)
def test_the_ends_are_those_of_all_that_the_intervals_allow(found: list[ShapeSpeedup]) -> None:
    corners = itertools.product(*(itertools.product(each.ratios or (), each.totals_us) for each in found))
    ratios = [
        math.fsum(total for _, total in corner) / math.fsum(total / ratio for ratio, total in corner)
        for corner in corners
    ]
    assert weighted_speedup(found)[1] == pytest.approx((min(ratios), max(ratios)))
