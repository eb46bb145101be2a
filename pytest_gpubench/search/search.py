"""Search for the worst example: every call is remembered, comparisons are looked at cheaply and the worst judged."""

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec

from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.bench.placement import measure_confirmed
from pytest_gpubench.bench.request import CallResult, Request, Say, T
from pytest_gpubench.correctness import flatten
from pytest_gpubench.errors import MeasurementError, WrongResult, annotate
from pytest_gpubench.results.model import Comparison, Measurement, Outcome, Verdict
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.search.budget import AlphaBudget, TimeBudget
from pytest_gpubench.search.example import Example, ExampleKey, argument_text
from pytest_gpubench.search.given import RememberedError, clear_frames
from pytest_gpubench.stats.trend import Point, size_that_matters, steps
from pytest_gpubench.timing.compilations import Compilations, counting_compilations
from pytest_gpubench.units import count, round_to_digits
from pytest_gpubench.verdict.limits import Limits

QUICK_QUADS = 6
NEAR = 1.1
"""The full protocol judges an example whose ratio in a cheap look is below so many times its limit."""
MANY_COMPILATIONS = 10
"""From this number on, and one for every fourth example, a failure says how to have fewer."""
DRAWN_WITHIN = "data(...)"
"""The text of st.data(), from which a test draws while it runs."""
Functions = tuple[str, str, int]
"""Labels of candidate and reference, and which call of the example compares them."""


@dataclass
class Search:
    """The calls of one test under @given."""

    has_baseline: ClassVar[bool] = False
    time: TimeBudget
    example: Example
    alpha: AlphaBudget = field(default_factory=AlphaBudget)
    calls: int = 0
    """Public calls so far in this example."""
    is_wrong: bool = False
    """True once an output was wrong: from then on examples are checked and not timed."""
    known: "dict[ExampleKey, CallResult[Any] | RememberedError]" = field(default_factory=dict)
    """The result or error of each call, which is given again when the call is repeated."""
    points: dict[Functions, list[Point]] = field(default_factory=dict)
    left: dict[object, Sequence[Measurement]] = field(default_factory=dict)
    """The measurements that each call left, by its key, and the last failed call of each title."""
    call: ExampleKey = ()
    """The key of the latest call."""
    examples: set[ExampleKey] = field(default_factory=set)
    """All that have begun."""
    counted: ExampleKey = ()
    """The running one, as it is in `examples`."""
    outdated: set[str] = field(default_factory=set)
    """Warnings of single examples that do not hold for the test."""

    def begin(self, example: Example) -> None:
        """Begin the next example."""
        self.example, self.calls, self.alpha.in_example = example, 0, 0
        self.counted = ()
        self._count()

    def _count(self) -> None:
        """Count the example by all that is drawn so far: a test may draw on."""
        self.examples.discard(self.counted)
        self.counted = self.example.key
        self.examples.add(self.counted)

    def __str__(self) -> str:
        """Say how much was searched: `42 examples, 17 compilations (31 s)`."""
        compiled = self.example.compilations
        return count(len(self.examples), "example") + (f", {compiled}" if compiled and compiled.number else "")

    @property
    def example_text(self) -> str:
        """The arguments of the current example, as text."""
        return self.example.text

    def obtain(self, request: Request[T], say: Say) -> CallResult[T]:
        """Return the result of a call, the same each time that hypothesis repeats it."""
        self.calls += 1
        self._count()
        arguments = [f"{name}={argument_text(leaf)}" for name, leaf in flatten(request.given, "arguments")]
        self.call = key = (self.example.text, self.calls, type(request), *request.calls, *arguments, *self.example.key)
        try:
            if key not in self.known:
                self.known[key] = self._try(request, say)
            elif isinstance(request, CompareRequest):  # hypothesis follows the lines that run, to name those that fail
                with suppress(WrongResult) if isinstance(self.known[key], RememberedError) else nullcontext():
                    request.call_only("")
            known = self.known[key]
            if isinstance(known, RememberedError):
                raise known.again()
            return known
        except (MeasurementError, WrongResult) as error:
            self._tell_to_keep(error)
            raise

    def _try(self, request: Request[Any], say: Say) -> "CallResult[Any] | RememberedError":
        try:
            found = self._first(request, say)
        except (MeasurementError, WrongResult) as error:
            self.time.has_failed = True
            clear_frames(error)
            return RememberedError(error)
        measured = [msgspec.structs.replace(item, example=self.example.text) for item in found.measurements]
        return replace(found, measurements=measured)

    def _first(self, request: Request[Any], say: Say) -> CallResult[Any]:
        """Return the result of a call that was not made before."""
        if self.is_wrong and isinstance(request, CompareRequest):
            return self._untimed(request, "an example before gave a wrong result, so later ones are only checked")
        if self.time.why_spent and not request.settings.disable:
            return self._untimed(request, self.time.why_spent)
        began_s, compiled = time.perf_counter(), Compilations()
        try:
            with counting_compilations() as compiled:
                return self._timed(request, say)
        except (MeasurementError, WrongResult) as error:
            failure = error
        finally:
            self.time.spent_s += max(0.0, time.perf_counter() - began_s - compiled.elapsed_s)
        if isinstance(request, CompareRequest):  # an output that is wrong in any call fails where it is checked
            self._untimed(request, "")
        raise failure

    def _untimed(self, request: Request[Any], reason: str) -> CallResult[Any]:
        try:
            return request.call_only(reason)
        except WrongResult:
            self.is_wrong = True
            raise

    def _timed(self, request: Request[Any], say: Say) -> CallResult[Any]:
        if isinstance(request, CompareRequest) and request.settings.reps is None:
            few = replace(request.settings, reps=2 * QUICK_QUADS)
            quick = replace(request, settings=few, limits=Limits(), vary=False, bytes=0).measure(say)
            is_absolute = any(limit.stage not in ("speedup", "totals", "baseline") for limit in request.limits)
            if not self._is_suspect(request, quick.result) and not is_absolute:
                return quick
        noisy = len(request.judged) * sum(limit.is_noisy for limit in request.limits)
        settings = self.alpha.spend(request.settings, noisy)
        found = measure_confirmed(replace(request, settings=settings, pass_alpha=request.settings.alpha), say)
        self.alpha.note(settings, [each for item in found.measurements for each in item.verdicts])
        if isinstance(request, CompareRequest):
            self.outdated |= request.agreement.disproved
        return found

    def _is_suspect(self, request: CompareRequest, quick: Comparison) -> bool:
        """Tell whether a candidate may be the worst so far, or near its limit; steer hypothesis towards worse ones."""
        import hypothesis

        found = False
        for name, item in quick.candidates.items():
            if item.speedup is None:
                continue
            functions, ratio = self._functions(item), item.speedup.ratio
            points = self.points.setdefault(functions, [])
            is_worst = all(ratio < point.value for point in points)
            points.append(Point(self.example.sizes, ratio))
            if hypothesis.currently_in_test_context() and math.isfinite(badness := -math.log(ratio)):
                hypothesis.target(badness, label=f"{functions[0]} against {functions[1]}, comparison {self.calls}")
            found = found or is_worst or ratio < NEAR * request.speedups.get(name, 0.0)
        return found

    def _functions(self, item: Measurement) -> Functions:
        assert item.speedup is not None
        return item.timing.label, item.speedup.reference, self.calls

    def replaced(self, measured: Sequence[Measurement], failed: str = "") -> Sequence[Measurement]:
        """Return the measurements that these replace, as hypothesis repeats examples; failed: a failed call's title."""
        call = failed or self.call
        before, self.left[call] = self.left.get(call, ()), measured
        return before

    def shown_phases(self, before: Iterable[Phases], found: Phases) -> list[Phases]:
        """Return the phases to show, one for each call in the test: those that broke a limit, then the slowest."""
        worst: dict[object, tuple[tuple[bool, float], Phases]] = {}
        for (text, number, *_), known in self.known.items():
            if isinstance(known, RememberedError) or not isinstance(known.result, Phases):
                continue
            verdicts = [each for item in known.measurements for each in item.verdicts]
            badness = any(each.outcome is Outcome.FAIL for each in verdicts), known.result.sum_us
            if number not in worst or badness > worst[number][0]:
                title = f"{known.result.title} at {text}"
                worst[number] = badness, msgspec.structs.replace(known.result, title=title)
        return [phases for _, phases in worst.values()]

    def told(self, verdicts: Sequence[Verdict], warnings: list[str]) -> Sequence[Verdict]:
        """Return verdicts with the sentences to show, and remove outdated warnings."""
        told = self.alpha.told(verdicts)
        warnings[:] = [each for each in warnings if each not in self.alpha.outdated | self.outdated]
        return told

    def note_failure(self, error: Exception, measurement: Measurement) -> None:
        """Note that a limit was broken, and on its error how to keep the example and how the ratio goes with sizes."""
        self.time.has_failed = True
        self._tell_to_keep(error)
        if measurement.speedup is not None and (why := self.explain(*self._functions(measurement)[:2])):
            annotate(error, why)

    def _tell_to_keep(self, error: Exception) -> None:
        """Note how to keep the running example, unless it draws while it runs: hypothesis takes no such example."""
        pasted = self.example.pasted or self.example.text
        origin = " (lazy_tensor is in pytest_gpubench.strategies)" if "lazy_tensor(" in pasted else ""
        if DRAWN_WITHIN not in pasted:
            annotate(error, f"gpu_bench: to keep this example, paste above the test{origin}: @example({pasted})")

    def explain(self, candidate: str, reference: str) -> str:
        """Return the trend of the ratio over the sizes of the examples, and what was compiled."""
        lines = []
        points = self.points.get((candidate, reference, self.calls), [])
        if size := size_that_matters(points):
            trend = ", ".join(f"up to {value}: {round_to_digits(ratio, 3)}x" for value, ratio in steps(points, size))
            lines.append(f"gpu_bench: {candidate} by {size}, over {len(points)} examples: {trend}")
        compiled = self.example.compilations
        if compiled is not None and compiled.number:
            many = compiled.number >= MANY_COMPILATIONS and 4 * compiled.number >= len(self.examples)
            advice = "; for fewer, bucket the shapes: multiple_of=64, say, in their strategy" if many else ""
            lines.append(f"gpu_bench: {self}{advice}")
        return "\n".join(lines)
