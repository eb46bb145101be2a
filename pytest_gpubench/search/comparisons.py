"""The calls of a test under @given: all remembered; comparisons looked at cheaply, the worst by the full protocol."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import msgspec

from pytest_gpubench.bench.comparison import CompareRequest
from pytest_gpubench.bench.request import Request, Say, T
from pytest_gpubench.errors import MeasurementError, WrongResult, annotate
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Outcome, Verdict
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.search.example import Example, Key, described
from pytest_gpubench.search.fixed_reps import FixedReps
from pytest_gpubench.search.raised import Raised, clear
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.trend import Point, size_that_matters, steps
from pytest_gpubench.timing.compilations import Compilations, counting_compilations
from pytest_gpubench.units import count, round_to_digits

__tracebackhide__ = True

QUICK_QUADS = 6
NEAR = 1.1
"""An example that a cheap look finds less than so many times as fast as its limit is judged by the full protocol."""
MANY_COMPILATIONS = 10
"""From this number on, and one for every fourth example, it is said how to have fewer."""
DRAWN_WITHIN = "data(...)"
"""What st.data() looks like, from which a test draws while it runs."""
Functions = tuple[str, str, int]
"""Labels of candidate and reference, and which call of the example compares them."""


@dataclass(frozen=True)
class Found:
    """What a call came to."""

    result: Any
    measurements: tuple[Measurement, ...]


@dataclass
class Search:
    """The calls of one test under @given."""

    has_baseline: ClassVar[bool] = False
    """Whether the next run makes the same calls: no, examples are drawn anew."""
    budget_s: float
    example: Example
    calls: int = 0
    """Public calls so far in this example."""
    spent_s: float = 0.0
    judged: int = 0
    has_failed: bool = False
    is_wrong: bool = False
    """Whether an output was wrong: from then on examples are checked and not timed, right before fast."""
    worst: dict[Functions, float] = field(default_factory=dict)
    known: "dict[Key, Found | Raised]" = field(default_factory=dict)
    """What each call came to, which it comes to again."""
    points: dict[Functions, list[Point]] = field(default_factory=dict)
    fixed: FixedReps = field(default_factory=FixedReps)
    failed: dict[str, Sequence[Measurement]] = field(default_factory=dict)
    """By title, what a failed call left last."""
    held: tuple[object, ...] = ()
    examples: set[Key] = field(default_factory=set)
    """All that have begun."""
    counted: Key = ()
    """The running one, as it is in `examples`."""

    def begin(self, example: Example) -> None:
        """Note that the next example begins."""
        self.example, self.calls = example, 0
        self.fixed.begin()
        self.held += example.held
        self.counted = ()
        self._count()

    def _count(self) -> None:
        """Count the example, by all that is drawn so far: a test may draw on."""
        self.examples.discard(self.counted)
        self.counted = self.example.key
        self.examples.add(self.counted)

    def __str__(self) -> str:
        """Say how much was searched: `42 examples, 17 compilations (31 s)`."""
        compiled = self.example.compilations
        return count(len(self.examples), "example") + (f", {compiled}" if compiled and compiled.number else "")

    @property
    def why_untimed(self) -> str:
        """Why no more is timed; empty while there is time."""
        if self.spent_s < self.budget_s * (1 + self.has_failed):  # as much again to shrink what has failed
            return ""
        return f"--gpu-bench-given-budget of {self.budget_s:g} s is spent"

    @contextmanager
    def paying(self) -> Iterator[None]:
        """Take the time that this lasts from the budget, without that of compiling."""
        began_s, compiled = time.perf_counter(), Compilations()
        try:
            with counting_compilations() as compiled:
                yield
        finally:
            self.spent_s += max(0.0, time.perf_counter() - began_s - compiled.elapsed_s)

    @property
    def example_text(self) -> str:
        """What hypothesis called the test with."""
        return self.example.text

    def obtain(self, request: Request[T], say: Say, measured: list[Measurement]) -> T:
        """Return what a call comes to, which is the same whenever hypothesis comes back to it."""
        try:
            found = self._obtain(request, say, measured)
        except (MeasurementError, WrongResult) as error:
            self.tell_to_keep(error)
            raise
        measured[:] = found.measurements
        return cast(T, found.result)

    def _obtain(self, request: Request[Any], say: Say, measured: list[Measurement]) -> Found:
        key = self._key(request)
        if key not in self.known:
            self.known[key] = self._try(request, say, measured)
        elif isinstance(request, CompareRequest):  # hypothesis follows the lines that run, to tell those that fail
            with suppress(WrongResult) if isinstance(self.known[key], Raised) else nullcontext():
                request.call_only("", [])
        known = self.known[key]
        if isinstance(known, Raised):
            raise known.again()
        return known

    def _key(self, request: Request[Any]) -> Key:
        """Return what the next call of this example is remembered by."""
        self.calls += 1
        self._count()
        arguments = described(request.given)
        return (self.example.text, self.calls, type(request), *request.calls, *arguments, *self.example.key)

    def _try(self, request: Request[Any], say: Say, measured: list[Measurement]) -> "Found | Raised":
        try:
            result = self._first(request, say, measured)
        except (MeasurementError, WrongResult) as error:
            self.has_failed = True
            clear(error)
            return Raised(error)
        return Found(result, tuple(msgspec.structs.replace(item, example=self.example.text) for item in measured))

    def _first(self, request: Request[Any], say: Say, measured: list[Measurement]) -> object:
        """Return what a call comes to the first time: once only checked, an example is never timed."""
        if self.is_wrong and isinstance(request, CompareRequest):
            return self._untimed(request, "an example before gave a wrong result: right before fast", measured)
        if self.why_untimed and not request.settings.disable:
            return self._untimed(request, self.why_untimed, measured)
        try:
            with self.paying():
                return self._timed(request, say, measured)
        except (MeasurementError, WrongResult) as error:
            failure = error
        if isinstance(request, CompareRequest):  # what is wrong in any call is raised by the check, whenever it is made
            self._untimed(request, "", [])
        raise failure

    def _untimed(self, request: Request[Any], reason: str, measured: list[Measurement]) -> object:
        try:
            return request.call_only(reason, measured)
        except WrongResult:
            self.is_wrong = True
            raise

    def _timed(self, request: Request[Any], say: Say, measured: list[Measurement]) -> object:
        if isinstance(request, CompareRequest) and request.settings.reps is None:
            quick = self._quick(request, say, measured)
            absolute = bool(replace(request.limits, min_speedup=None, max_regression=None))
            if not self._may_be_worst(request, quick) and not absolute:  # such a limit no ratio says anything about
                return quick
            measured.clear()
        settings = self.spending(request.settings)
        result = replace(request, settings=settings).measure(say, measured)
        self.fixed.note(settings, [each for item in measured for each in item.verdicts])
        return result

    def _quick(self, request: CompareRequest, say: Say, measured: list[Measurement]) -> Comparison:
        """Return what a few rounds without limits find, and steer hypothesis by it."""
        settings = replace(request.settings, reps=2 * QUICK_QUADS)
        quick = replace(request, settings=settings, limits=Limits(), vary=False, bytes=0).measure(say, measured)
        for item in quick.candidates.values():
            if item.speedup is not None:
                functions = self._functions(item)
                self.points.setdefault(functions, []).append(Point(self.example.sizes, item.speedup.ratio))
                steer(f"{functions[0]} against {functions[1]}, comparison {self.calls}", -math.log(item.speedup.ratio))
        return quick

    def _may_be_worst(self, request: CompareRequest, quick: Comparison) -> bool:
        """Tell whether a candidate is the slowest so far, or near its limit."""
        suspects = [
            self._is_worst(item) or item.speedup.ratio < NEAR * request.speedups.get(name, 0.0)
            for name, item in quick.candidates.items()
            if item.speedup is not None
        ]
        return any(suspects)

    def _is_worst(self, item: Measurement) -> bool:
        assert item.speedup is not None
        functions, ratio = self._functions(item), item.speedup.ratio
        worst = self.worst.get(functions, math.inf)
        self.worst[functions] = min(ratio, worst)
        return ratio < worst

    def _functions(self, item: Measurement) -> Functions:
        assert item.speedup is not None
        return item.timing.label, item.speedup.reference, self.calls

    def spending(self, settings: Settings) -> Settings:
        """Return the settings of the next judgement: all of a test together spend its alpha."""
        self.judged += 1
        self.fixed.judge(self.judged, settings.alpha)
        return replace(settings, alpha=settings.alpha / (self.judged * (self.judged + 1)))

    def replaced(self, title: str, measured: Sequence[Measurement]) -> Sequence[Measurement]:
        """Return what these measurements of a failed call replace: hypothesis comes back to what fails."""
        before, self.failed[title] = self.failed.get(title, ()), measured
        return before

    def shown_phases(self, before: Iterable[Phases], found: Phases) -> list[Phases]:
        """Return the phases to show, one for each call in the test: those that broke a limit, then the slowest."""
        worst: dict[object, tuple[tuple[bool, float], Phases]] = {}
        for (text, number, *_), known in self.known.items():
            if isinstance(known, Raised) or not isinstance(known.result, Phases):
                continue
            verdicts = [each for item in known.measurements for each in item.verdicts]
            badness = any(each.outcome is Outcome.FAIL for each in verdicts), known.result.sum_us
            if number not in worst or badness > worst[number][0]:
                title = f"{known.result.title} at {text}"
                worst[number] = badness, msgspec.structs.replace(known.result, title=title)
        return [phases for _, phases in worst.values()]

    def told(self, verdicts: Sequence[Verdict], warnings: list[str]) -> Sequence[Verdict]:
        """Return verdicts as they are told, and take back warnings that are out of date."""
        told = self.fixed.told(verdicts)
        warnings[:] = [each for each in warnings if each not in self.fixed.outdated]
        return told

    def note_failure(self, error: Exception, measurement: Measurement) -> None:
        """Note that an example failed, and on its error how to keep it and how its ratio goes with the sizes."""
        self.has_failed = True
        self.tell_to_keep(error)
        if measurement.speedup is not None and (why := self.explain(*self._functions(measurement)[:2])):
            annotate(error, why)

    def tell_to_keep(self, error: Exception) -> None:
        """Note how to keep the running example, unless it draws while it runs: hypothesis takes no such example."""
        pasted = self.example.pasted or self.example.text
        note = f"gpu_bench: to keep this example, paste above the test: @example({pasted})"
        if DRAWN_WITHIN not in pasted and note not in getattr(error, "__notes__", ()):  # a remembered one may have it
            annotate(error, note)

    def explain(self, candidate: str, reference: str) -> str:
        """Return what a failure adds to its sentence: how the ratio goes with the sizes of the examples."""
        lines = []
        points = self.points.get((candidate, reference, self.calls), [])
        size = size_that_matters(points)
        if size is not None:
            trend = ", ".join(f"up to {value}: {round_to_digits(ratio, 3)}x" for value, ratio in steps(points, size))
            lines.append(f"gpu_bench: {candidate} by {size}, over {len(points)} examples: {trend}")
        return "\n".join(lines + self._compilation_lines())

    def _compilation_lines(self) -> list[str]:
        compiled = self.example.compilations
        if compiled is None or not compiled.number:
            return []
        many = compiled.number >= MANY_COMPILATIONS and 4 * compiled.number >= len(self.examples)
        advice = "; for fewer, bucket the shapes: multiple_of=64, say, in their strategy" if many else ""
        return [f"gpu_bench: {self}{advice}"]


def steer(label: str, badness: float) -> None:
    """Tell hypothesis how bad an example is, so that it looks for worse ones."""
    import hypothesis

    if hypothesis.currently_in_test_context() and math.isfinite(badness):
        hypothesis.target(badness, label=label)
