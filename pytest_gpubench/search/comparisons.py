"""The comparisons of a search: a cheap look at each, the full protocol for the worst, all remembered."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import msgspec

from pytest_gpubench.bench.comparison import Contest
from pytest_gpubench.errors import MeasurementError, WrongResult, annotate
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Outcome
from pytest_gpubench.results.phases import Phases
from pytest_gpubench.search.example import Example, Key, described
from pytest_gpubench.search.fixed_reps import FixedReps
from pytest_gpubench.search.raised import Raised, clear
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.trend import Point, size_that_matters, steps
from pytest_gpubench.timing.compilations import Compilations, counting_compilations
from pytest_gpubench.timing.ranks import Ranks
from pytest_gpubench.units import count, round_to_digits

__tracebackhide__ = True

QUICK_QUADS = 6
NEAR = 1.1
"""An example that a cheap look finds less than so many times as fast as its limit is judged by the full protocol."""
MANY_COMPILATIONS = 10
"""From this number on, and one for every fourth example, it is said how to have fewer."""
DRAWN_WITHIN = "data(...)"
"""What st.data() looks like, from which a test draws while it runs."""
Arms = tuple[str, str, int]
"""Candidate, reference, and which comparison of the example it is."""


@dataclass
class Search:
    """The comparisons of one test under @given."""

    budget_s: float
    example: Example
    comparisons: int = 0
    """Made so far in this example, and measurements."""
    spent_s: float = 0.0
    judged: int = 0
    has_failed: bool = False
    is_wrong: bool = False
    """Whether an output was wrong: from then on examples are checked and not timed, right before fast."""
    worst: dict[Arms, float] = field(default_factory=dict)
    known: dict[Key, "Comparison | Raised"] = field(default_factory=dict)
    points: dict[Arms, list[Point]] = field(default_factory=dict)
    measured: dict[Key, Measurement] = field(default_factory=dict)
    phased: dict[Key, tuple[Phases, Sequence[Measurement]]] = field(default_factory=dict)
    ranked: dict[Key, tuple[Ranks, Measurement]] = field(default_factory=dict)
    fixed: FixedReps = field(default_factory=FixedReps)
    interrupted: tuple[Measurement, ...] = ()
    """What was measured when an error was raised last."""
    held: tuple[object, ...] = ()
    kept: dict[int, tuple[Comparison, list[Measurement]]] = field(default_factory=dict)
    examples: set[Key] = field(default_factory=set)
    """All that have begun."""
    counted: Key = ()
    """The running one, as it is in `examples`."""

    def begin(self, example: Example) -> None:
        """Note that the next example begins."""
        self.example, self.comparisons = example, 0
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

    def compare(self, contest: Contest, say: Callable[[str], None]) -> Comparison:
        """Check every candidate; time them cheaply, and by the full protocol where they may be the worst."""
        try:
            return self._compare(contest, say)
        except (MeasurementError, WrongResult) as error:
            self.tell_to_keep(error)
            raise

    def _compare(self, contest: Contest, say: Callable[[str], None]) -> Comparison:
        arguments = contest.agreement.arguments
        key = self.key(list(contest.calls), (arguments.args, arguments.kwargs))
        if key in self.known:
            remembered = self.known[key]
            if isinstance(remembered, Raised):
                with suppress(WrongResult):  # hypothesis follows the lines that run, to say which of them only fail
                    contest.checked()
                raise remembered.again()
            contest.checked()
            return remembered
        found = self._found(contest, say)
        if isinstance(found, Exception):
            self.has_failed = True
            clear(found)
            self.known[key] = raised = Raised(found)
            raise raised.again()
        self.known[key] = found
        return found

    def _found(self, contest: Contest, say: Callable[[str], None]) -> Comparison | Exception:
        """Return what a comparison comes to the first time: once only checked, an example is never timed."""
        if self.is_wrong:
            return self._checked(contest, "an example before gave a wrong result: right before fast")
        if self.why_untimed:
            return self._checked(contest, self.why_untimed)
        found = self._attempt(contest, say)
        if isinstance(found, Exception):  # what is wrong in any call is raised where it is whenever it is looked for
            checked = self._checked(contest)
            return checked if isinstance(checked, Exception) else found
        return found

    def _attempt(self, contest: Contest, say: Callable[[str], None]) -> Comparison | Exception:
        try:
            with self.paying():
                return self._timed(contest, say)
        except (MeasurementError, WrongResult) as error:
            return error

    def _checked(self, contest: Contest, reason: str = "") -> Comparison | Exception:
        try:
            return contest.checked(reason)
        except WrongResult as error:
            self.is_wrong = True
            return error

    def key(self, names: Sequence[str], arguments: object) -> Key:
        """Return what the next comparison or measurement of this example is remembered by."""
        self.comparisons += 1
        self._count()
        return (self.example.text, self.comparisons, *names, *described(arguments), *self.example.key)

    def _timed(self, contest: Contest, say: Callable[[str], None]) -> Comparison:
        if contest.settings.reps is not None:
            return self._judged(contest, say)
        settings = replace(contest.settings, reps=2 * QUICK_QUADS)
        quick = replace(contest, settings=settings, limits=Limits(), speedups={}, vary=False, bytes=0).run(say)
        ratios = {name: item.speedup.ratio for name, item in quick.candidates.items() if item.speedup is not None}
        for name, ratio in ratios.items():
            arms = (name, contest.reference, self.comparisons)
            self.points.setdefault(arms, []).append(Point(self.example.sizes, ratio))
            steer(f"{name} against {contest.reference}, comparison {self.comparisons}", -math.log(ratio))
        suspects = [name for name, ratio in ratios.items() if self._may_be_worst(contest, name, ratio)]
        absolute = bool(replace(contest.limits, min_speedup=None, max_regression=None))
        if not suspects and not absolute:  # such a limit no ratio says anything about
            return quick
        return self._judged(contest, say)

    def _judged(self, contest: Contest, say: Callable[[str], None]) -> Comparison:
        settings = self.spending(contest.settings)
        found = replace(contest, settings=settings).run(say)
        self.fixed.note(settings, [each for item in found.candidates.values() for each in item.verdicts])
        return found

    def spending(self, settings: Settings) -> Settings:
        """Return the settings of the next judgement: all of a test together spend its alpha."""
        self.judged += 1
        self.fixed.judge(self.judged, settings.alpha)
        return replace(settings, alpha=settings.alpha / (self.judged * (self.judged + 1)))

    def _may_be_worst(self, contest: Contest, name: str, ratio: float) -> bool:
        arms = (name, contest.reference, self.comparisons)
        is_worst = ratio < self.worst.get(arms, math.inf)
        self.worst[arms] = min(ratio, self.worst.get(arms, math.inf))
        return is_worst or ratio < NEAR * contest.speedups.get(name, 0.0)

    def worst_phases(self) -> list[Phases]:
        """Return the phases to show, one for each call in the test: those that broke a limit, then the slowest."""
        worst: dict[object, tuple[tuple[bool, float], Phases]] = {}
        for (text, number, *_), (found, measurements) in self.phased.items():
            badness = (
                any(each.outcome is Outcome.FAIL for item in measurements for each in item.verdicts),
                found.sum_us,
            )
            if number not in worst or badness > worst[number][0]:
                worst[number] = badness, msgspec.structs.replace(found, title=f"{found.title} at {text}")
        return [found for _, found in worst.values()]

    def told_apart(self, comparison: Comparison, measurements: Sequence[Measurement]) -> list[Measurement]:
        """Return the measurements of a comparison with their example; the same ones where it was only remembered."""
        if id(comparison) not in self.kept:
            told = [msgspec.structs.replace(item, example=self.example.text) for item in measurements]
            self.kept[id(comparison)] = comparison, told
        return self.kept[id(comparison)][1]

    def tell_to_keep(self, error: Exception) -> None:
        """Note how to keep the running example, unless it draws while it runs: hypothesis takes no such example."""
        pasted = self.example.pasted or self.example.text
        note = f"gpu_bench: to keep this example, paste above the test: @example({pasted})"
        if DRAWN_WITHIN not in pasted and note not in getattr(error, "__notes__", ()):  # a remembered one may have it
            annotate(error, note)

    def explain(self, name: str, reference: str) -> str:
        """Return what a failure adds to its sentence: how the ratio goes with the sizes of the examples."""
        lines = []
        points = self.points.get((name, reference, self.comparisons), [])
        size = size_that_matters(points)
        if size is not None:
            trend = ", ".join(f"up to {value}: {round_to_digits(ratio, 3)}x" for value, ratio in steps(points, size))
            lines.append(f"gpu_bench: {name} by {size}, over {len(points)} examples: {trend}")
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
