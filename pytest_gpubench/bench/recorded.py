"""Compare a candidate with a reference in each of the calls that a program made, and judge the total time."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from pytest_gpubench.bench.candidates import Function, name_functions
from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.bench.plan import is_enforced
from pytest_gpubench.bench.request import CallResult, Request, Say, carrying, measured_before
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.record import RecordedCall
from pytest_gpubench.results.model import Comparison, Measurement, Timing
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import LOOKS
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import count, repr_of
from pytest_gpubench.verdict.decision import time_interval
from pytest_gpubench.verdict.limits.base import RecordedTotals, Seen
from pytest_gpubench.verdict.throttling import invalidate_throttled


class ShapeSpeedup(NamedTuple):
    """The speedup of one shape, and the total time of the reference's calls with it."""

    ratio: float
    ratios: Interval | None
    """The ratio's interval; None if there are too few quads."""
    total_us: float
    totals_us: Interval


@dataclass(frozen=True)
class RecordedComparison:
    """The comparisons of all recorded calls, and the speedup of their total time."""

    comparisons: tuple[Comparison, ...]
    """One for each call, in the order in which they were given."""
    speedup: float | None
    """The reference's total time over the candidate's; None where nothing was timed."""
    interval: Interval | None
    """Its interval; None where there are too few quads."""


@dataclass(frozen=True)
class RecordedRequest(Request[RecordedComparison]):
    """A request of `compare_recorded`: a comparison for each recorded call."""

    parts: Sequence[CompareRequest] = ()
    counts: Sequence[int] = ()
    """The number of times that each call is made."""
    role = "candidate"
    is_repeatable = True

    @classmethod
    def of(cls, parts: Sequence[CompareRequest], counts: Sequence[int]) -> "RecordedRequest":
        """Return the request of comparisons that have the same settings and limits."""
        first = parts[0]
        calls = {label: call for part in parts for label, call in part.calls.items()}
        given = tuple(part.given[0] for part in parts), None  # type: ignore[index] # arguments of a comparison

        def remake(args: Sequence[object], kwargs: object) -> RecordedRequest:
            return cls.of([part.remake(each, None) for part, each in zip(parts, args, strict=True)], counts)  # type: ignore[misc, arg-type]

        return cls(first.settings, first.device, first.limits, given, calls, parts, counts, remake=remake)

    @property
    def title(self) -> str:
        """The candidate of the first call and the number of shapes."""
        others = count(len(self.parts) - 1, "other shape")
        return self.judged[0] if len(self.parts) == 1 else f"{self.judged[0]} and {others}"

    @property
    def remarks(self) -> Sequence[str]:
        """Remarks on the functions, each once."""
        return list(dict.fromkeys(remark for part in self.parts for remark in part.remarks))

    @property
    def judged(self) -> Sequence[str]:
        """The candidate's labels, one for each call."""
        return [label for part in self.parts for label in part.judged]

    @cached_property
    def shape_settings(self) -> Settings:
        """The settings of each comparison, which has a part of alpha: see `weighted_speedup`."""
        return replace(self.settings, alpha=self.settings.alpha / (2 * len(self.parts)))

    def measure(self, say: Say) -> CallResult[RecordedComparison]:
        """Compare for each call, then judge the totals."""
        return self._with_each(lambda part: part.measure(say))

    def call_only(self, reason: str) -> CallResult[RecordedComparison]:
        """Check the candidate in each call, and time none."""
        return self._with_each(lambda part: part.call_only(reason))

    def with_measurements(self, result: RecordedComparison, measurements: Sequence[Measurement]) -> RecordedComparison:
        """Return the result with these measurements, two for each call."""
        pairs = [measurements[2 * place : 2 * place + 2] for place in range(len(self.parts))]
        comparisons = [
            part.with_measurements(before, pair)
            for part, before, pair in zip(self.parts, result.comparisons, pairs, strict=True)
        ]
        return replace(result, comparisons=tuple(comparisons))

    def _with_each(self, take: Callable[[CompareRequest], CallResult[Comparison]]) -> CallResult[RecordedComparison]:
        found: list[CallResult[Comparison]] = []
        measured: list[Measurement] = []
        for part in self.parts:
            rules = {"settings": self.shape_settings, "limits": self.limits, "pass_alpha": self.pass_alpha}
            try:
                found.append(take(replace(part, **rules)))  # type: ignore[arg-type]
            except Exception as error:
                with carrying([*measured, *measured_before(error)]):
                    raise
            measured += found[-1].measurements
        return self._judged([each.result for each in found], measured)

    def _judged(self, comparisons: Sequence[Comparison], measured: list[Measurement]) -> CallResult[RecordedComparison]:
        """Return the result; the verdict on the totals is with the call that takes most of the reference's time."""
        pairs = list(zip(measured[::2], measured[1::2], strict=True))
        if any(candidate.speedup is None for _, candidate in pairs):
            unmeasured = next((item.timing for item in measured if item.timing.unmeasured), measured[1].timing)
            measured[1] = self._with_verdict(measured[1], Seen(unmeasured))
            return CallResult(RecordedComparison(tuple(comparisons), None, None), measured)
        shapes = []
        for (reference, candidate), calls in zip(pairs, self.counts, strict=True):
            timing, found = reference.timing, candidate.speedup
            assert found is not None, "it was timed"
            # the time is looked at once in so many looks; where there are too few reps, their range stands for it
            looked_us = time_interval(timing, self.shape_settings.alpha / len(LOOKS))
            low_us, high_us = looked_us or (timing.min_us, timing.max_us)
            totals_us = Interval(calls * low_us, calls * high_us)
            shapes.append(ShapeSpeedup(found.ratio, found.interval, calls * timing.median_us, totals_us))
        ratio, interval = weighted_speedup(shapes)
        most = max(range(len(shapes)), key=lambda place: shapes[place].total_us)
        total_us = sum(each.total_us for each in shapes)
        totals, place = RecordedTotals(ratio, interval, total_us, len(shapes), sum(self.counts)), 2 * most + 1
        seen = Seen(measured[place].timing, self.settings.alpha, totals=totals)
        measured[place] = self._with_verdict(measured[place], seen, [item.timing for item in measured])
        return CallResult(RecordedComparison(tuple(comparisons), ratio, interval), measured)

    def _with_verdict(self, item: Measurement, seen: Seen, timings: Sequence[Timing] = ()) -> Measurement:
        verdicts = self.limits.judge("totals", seen, is_enforced(self.settings, self.device))
        judged = invalidate_throttled(verdicts, timings, self.settings.throttled)
        return msgspec.structs.replace(item, verdicts=(*item.verdicts, *judged))


def request_of(
    compare: Callable[..., CompareRequest],
    candidate: Function,
    reference: Function,
    calls: Sequence[RecordedCall],
    make: Callable[[RecordedCall], Sequence[object]],
    options: dict[str, Any],
) -> RecordedRequest:
    """Return the request for recorded calls; compare: returns that of one comparison. Raises BadRequest."""
    check_calls(candidate, calls, options)
    names = [*name_functions(candidate, reference, options.pop("names", None))][::-1]
    parts = [
        compare(candidate, reference, make(call), names=[f"{name} {label}" for name in names], **options)
        for call, label in zip(calls, labels_of(calls), strict=True)
    ]
    return RecordedRequest.of(parts, [call.calls for call in calls])


def weighted_speedup(shapes: Sequence[ShapeSpeedup]) -> tuple[float, Interval | None]:
    """Return the reference's total time over the candidate's, and an interval of it; None where a shape has none.

    The ratio of the true totals is in it whenever all intervals of shapes hold. There are two for each shape, and no
    independence is assumed (Bonferroni): if each of n shapes has both at alpha / 2n, an end is on the wrong side of the
    truth with a chance of alpha at most.
    """
    ratio = math.fsum(each.total_us for each in shapes) / math.fsum(each.total_us / each.ratio for each in shapes)
    ratios = [each.ratios for each in shapes]
    known = [each for each in ratios if each is not None]
    if len(known) < len(ratios):
        return ratio, None
    totals_us = [each.totals_us for each in shapes]
    slowest = _largest_mean([1 / each.low for each in known], totals_us)
    fastest = _largest_mean([-1 / each.high for each in known], totals_us)
    return ratio, Interval(1 / slowest, -1 / fastest)


def _largest_mean(values: Sequence[float], weights: Sequence[Interval]) -> float:
    """Return the largest weighted mean of values over all weights within their intervals.

    It has the highest weights for all values above some value, and the lowest for the others.
    """
    ordered = sorted(zip(values, weights, strict=True), reverse=True)
    means = []
    for heavy in range(1, len(ordered) + 1):
        chosen = [(value, each.high if place < heavy else each.low) for place, (value, each) in enumerate(ordered)]
        means.append(math.fsum(value * weight for value, weight in chosen) / math.fsum(weight for _, weight in chosen))
    return max(means)


def labels_of(calls: Sequence[RecordedCall]) -> list[str]:
    """Return a label for each call: its shapes, and its dtypes and operator where calls differ in them."""
    parts = [" ".join("x".join(map(str, shape)) or "scalar" for shape in call.shapes) for call in calls]
    if len({call.dtypes for call in calls}) > 1:
        parts = [f"{part} {' '.join(dict.fromkeys(call.dtypes))}" for part, call in zip(parts, calls, strict=True)]
    if len({call.op for call in calls}) > 1:
        parts = [f"{part} {call.op}" for part, call in zip(parts, calls, strict=True)]
    return [part if parts.count(part) == 1 else f"{part} #{number}" for number, part in enumerate(parts, 1)]


def check_calls(candidate: object, calls: Any, options: dict[str, Any]) -> None:
    """Raise BadRequest for several candidates, no recorded calls, and options for other arguments than `make`'s."""
    if isinstance(candidate, Mapping):
        raise BadRequest("compare_recorded() takes one candidate, found a mapping: call it for each of them")
    is_many = isinstance(calls, Sequence) and not isinstance(calls, str)
    if not is_many or not calls or not all(isinstance(each, RecordedCall) for each in calls):
        raise BadRequest(
            f"compare_recorded(calls={repr_of(calls)}) is not valid: give recorded calls, as in "
            "pytest_gpubench.record.read('shapes.json', op='aten.native_layer_norm')"
        )
    if twice := next((name for name in ("args", "kwargs", "setup") if name in options), None):
        raise BadRequest(f"compare_recorded() takes no {twice}=: make= returns the arguments of each call")
