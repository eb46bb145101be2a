"""A test whose examples hypothesis makes: a cheap look at each, the full protocol for the worst, all remembered.

What is remembered is a comparison by the arguments it was made with: where hypothesis calls a test again with the same
arguments, to shrink or to replay, it gets the same verdict, and never has to call a test flaky.
"""

import functools
import math
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from pytest_gpubench.contest import Contest
from pytest_gpubench.correctness import flatten
from pytest_gpubench.errors import MeasurementError, WrongResult
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement
from pytest_gpubench.stats.trend import Point, size_that_matters, steps
from pytest_gpubench.units import round_to_digits

__tracebackhide__ = True

QUICK_QUADS = 6
NEAR = 1.1
"""An example that a cheap look finds less than so many times as fast as its limit is judged by the full protocol."""

Key = tuple[object, ...]
Arms = tuple[str, str, int]
"""Candidate, reference, and which comparison of the example it is."""


@dataclass(frozen=True)
class Example:
    """What hypothesis called the test with."""

    text: str
    """As keywords: `shape=(1, 100), seed=3`."""
    sizes: Mapping[str, int]
    """Every whole number in it by name: `shape[1]`, `x.shape[0]`, `rows`."""
    opaque: tuple[object, ...] = ()
    """What its text does not tell from others of its kind."""


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
    known: dict[Key, Comparison | Exception] = field(default_factory=dict)
    points: dict[Arms, list[Point]] = field(default_factory=dict)
    measured: dict[Key, Measurement] = field(default_factory=dict)
    held: tuple[object, ...] = ()
    kept: dict[int, tuple[Comparison, list[Measurement]]] = field(default_factory=dict)

    def begin(self, example: Example) -> None:
        """Note that the next example begins."""
        self.example, self.comparisons = example, 0
        self.held += example.opaque  # whose addresses must not come back as another's

    def compare(self, contest: Contest, say: Callable[[str], None]) -> Comparison:
        """Check every candidate; time them cheaply, and by the full protocol where they may be the worst."""
        arguments = contest.agreement.arguments
        key = self.key(list(contest.calls), (arguments.args, arguments.kwargs))
        if key in self.known:
            remembered = self.known[key]
            if isinstance(remembered, Exception):
                raise remembered  # where it was raised first: hypothesis tells failures apart by that
            contest.checked()
            return remembered
        if self.is_wrong:
            return contest.checked("an example before gave a wrong result: right before fast")
        if self.spent_s >= self.budget_s * (1 + self.has_failed):  # as much again to shrink what has failed
            return contest.checked(f"--gpu-bench-given-budget of {self.budget_s:g} s is spent")
        found = self._attempt(contest, say)
        if isinstance(found, Exception):
            self.has_failed = True
            self._check_again(contest)
            traceback.clear_frames(found.__traceback__)
            self.known[key] = found
            raise found
        self.known[key] = found
        return found

    def _attempt(self, contest: Contest, say: Callable[[str], None]) -> Comparison | Exception:
        began_s = time.perf_counter()
        try:
            return self._timed(contest, say)
        except (MeasurementError, WrongResult) as error:
            return error
        finally:
            self.spent_s += time.perf_counter() - began_s

    def _check_again(self, contest: Contest) -> None:
        """Let what is wrong in any call say so by itself: it will again, where hypothesis comes back to it."""
        try:
            contest.checked()
        except WrongResult:
            self.is_wrong = True
            raise

    def key(self, names: Sequence[str], arguments: object) -> Key:
        """Return what the next comparison or measurement of this example is remembered by."""
        self.comparisons += 1
        return (self.example.text, self.comparisons, *names, *described(arguments), *map(id, self.example.opaque))

    def _timed(self, contest: Contest, say: Callable[[str], None]) -> Comparison:
        if contest.settings.reps is not None:
            return contest.run(say)
        settings = replace(contest.settings, reps=2 * QUICK_QUADS)
        quick = replace(contest, settings=settings, limits=Limits(), speedups={}, vary=False, bytes=0).run(say)
        ratios = {name: item.speedup.ratio for name, item in quick.candidates.items() if item.speedup is not None}
        for name, ratio in ratios.items():
            arms = (name, contest.reference, self.comparisons)
            self.points.setdefault(arms, []).append(Point(self.example.sizes, ratio))
            steer(f"{name} against {contest.reference}, comparison {self.comparisons}", -math.log(ratio))
        suspects = [name for name, ratio in ratios.items() if self._may_be_worst(contest, name, ratio)]
        absolute = contest.limits.max_time_us is not None or contest.limits.max_rel_std is not None
        if not suspects and not absolute:  # such a limit no ratio says anything about
            return quick
        self.judged += 1
        alpha = contest.settings.alpha / (self.judged * (self.judged + 1))  # all judgements together spend alpha
        return replace(contest, settings=replace(contest.settings, alpha=alpha)).run(say)

    def _may_be_worst(self, contest: Contest, name: str, ratio: float) -> bool:
        arms = (name, contest.reference, self.comparisons)
        is_worst = ratio < self.worst.get(arms, math.inf)
        self.worst[arms] = min(ratio, self.worst.get(arms, math.inf))
        return is_worst or ratio < NEAR * contest.speedups.get(name, 0.0)

    def told_apart(self, comparison: Comparison, measurements: Sequence[Measurement]) -> list[Measurement]:
        """Return the measurements of a comparison with their example; the same ones where it was only remembered."""
        if id(comparison) not in self.kept:
            told = [msgspec.structs.replace(item, example=self.example.text) for item in measurements]
            self.kept[id(comparison)] = comparison, told
        return self.kept[id(comparison)][1]

    def explain(self, name: str, reference: str) -> str:
        """Return what a failure adds to its sentence: the example to paste, and how the ratio goes with its sizes."""
        self.has_failed = True
        lines = [f"gpu_bench: to keep this example, paste above the test: @example({self.example.text})"]
        points = self.points.get((name, reference, self.comparisons), [])
        size = size_that_matters(points)
        if size is not None:
            trend = ", ".join(f"up to {value}: {round_to_digits(ratio, 3)}x" for value, ratio in steps(points, size))
            lines.append(f"gpu_bench: {name} by {size}, over {len(points)} examples: {trend}")
        return "\n".join(lines)


def steer(label: str, badness: float) -> None:
    """Tell hypothesis how bad an example is, so that it looks for worse ones."""
    import hypothesis

    if hypothesis.currently_in_test_context() and math.isfinite(badness):
        hypothesis.target(badness, label=label)


@contextmanager
def following_examples(
    function: Any, begin: Callable[[Example], None], fixtures: Mapping[str, object]
) -> Iterator[None]:
    """Tell `begin` what a test under @given is called with, each time; does nothing for any other test.

    fixtures: the test's arguments that hypothesis does not draw.
    """
    handle = getattr(function, "hypothesis", None)
    inner = getattr(handle, "inner_test", None)
    if handle is None or inner is None:
        yield
        return

    owner = getattr(function, "__self__", None)

    def is_drawn(name: str, value: object) -> bool:
        return name not in fixtures and (owner is None or value is not owner)

    @functools.wraps(inner)
    def told(*args: object, **kwargs: object) -> object:
        begin(example_of({name: value for name, value in kwargs.items() if is_drawn(name, value)}))
        return inner(*args, **kwargs)

    handle.inner_test = told
    try:
        yield
    finally:
        handle.inner_test = inner


def example_of(drawn: Mapping[str, object]) -> Example:
    """Return an example by what was drawn for it."""
    sizes: dict[str, int] = {}
    for name, value in drawn.items():
        sizes |= sizes_in(name, value)
    texts = {name: text_of(value) for name, value in drawn.items()}
    opaque = tuple(value for name, value in drawn.items() if "<" in texts[name])
    return Example(", ".join(f"{name}={text}" for name, text in texts.items()), sizes, opaque)


def sizes_in(name: str, value: object) -> dict[str, int]:
    """Return the whole numbers in an argument by name."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {name: value}
    shape = getattr(value, "shape", None)
    if shape is not None:
        return sizes_in(f"{name}.shape", tuple(shape))
    if not isinstance(value, (tuple, list)):
        return {}
    names = getattr(value, "_fields", None)
    parts = [(f"{name}.{names[index]}" if names else f"{name}[{index}]", part) for index, part in enumerate(value)]
    return {key: size for part_name, part in parts for key, size in sizes_in(part_name, part).items()}


def text_of(value: object) -> str:
    """Return an argument as it can be pasted, as far as it can: tensors of our strategies as their call."""
    pretty = getattr(getattr(value, "_repr_pretty_", None), "text", None)
    if isinstance(pretty, str):
        return pretty
    if hasattr(value, "stride") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{type(value).__name__}({tuple(value.shape)}, {value.dtype}, strides={tuple(value.stride())})"
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        inner = ", ".join(map(text_of, value)) + ("," if isinstance(value, tuple) and len(value) == 1 else "")
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    text = repr(value)
    return f"<{type(value).__name__}>" if re.search(r" at 0x[0-9a-f]+>", text) else text


def described(arguments: object) -> list[str]:
    """Return what arguments look like."""
    return [f"{name}={text_of(leaf)}" for name, leaf in flatten(arguments, "arguments")]
