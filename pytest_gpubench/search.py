"""A test whose examples hypothesis makes: a cheap look at each, the full protocol for the worst, all remembered.

What is remembered is a comparison by the arguments it was made with: where hypothesis calls a test again with the same
arguments, to shrink or to replay, it gets the same verdict, and never has to call a test flaky. The same holds for an
example that did not fit into memory, and for one that failed by an error of ours.
"""

import functools
import gc
import math
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, TypeVar

import msgspec

from pytest_gpubench.contest import Contest
from pytest_gpubench.correctness import flatten
from pytest_gpubench.errors import GpuBenchError, LimitBroken, MeasurementError, WrongResult, annotate
from pytest_gpubench.explaining import without_our_lines
from pytest_gpubench.fitting import keepers
from pytest_gpubench.gpu.context import context_error, speaks_of_cuda
from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Comparison, Measurement, Outcome
from pytest_gpubench.results.phases import Phases
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
NEARLY_ALL = 0.9
"""Where so large a share of the examples did not fit into memory, the search has not seen what it was to search."""
MEMORY_FULL = re.compile(r"(CUDA error|Triton Error \[CUDA\]): out of memory|CUBLAS_STATUS_ALLOC_FAILED")
"""What full memory is called by those who do not raise torch.OutOfMemoryError."""

T = TypeVar("T")
OnOutOfMemory = Literal["reject", "fail"]
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
    pasted: str = ""
    """As keywords of @example, where that is not its text: without making tensors where the test is defined."""
    compilations: Compilations | None = field(default=None, compare=False, repr=False)
    """Those of the whole search, which go on; None where nobody counts them."""

    @property
    def key(self) -> Key:
        """What it is remembered by."""
        return (self.text, *map(id, self.opaque))


class Raised:
    """An error as it was raised first, which is what hypothesis tells failures apart by."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.traceback = error.__traceback__
        self.origin = origin(error)

    def again(self) -> Exception:
        """Return it to be raised, without what its traceback has grown by each time that it was raised."""
        return self.error.with_traceback(self.traceback)


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
    held: tuple[object, ...] = ()
    kept: dict[int, tuple[Comparison, list[Measurement]]] = field(default_factory=dict)
    examples: set[Key] = field(default_factory=set)
    """All that have begun."""

    def begin(self, example: Example) -> None:
        """Note that the next example begins."""
        self.example, self.comparisons = example, 0
        self.held += example.opaque  # whose addresses must not come back as another's
        self.examples.add(example.key)

    def __str__(self) -> str:
        """Say how much was searched: `42 examples, 17 compilations (31 s)`."""
        compiled = self.example.compilations
        return count(len(self.examples), "example") + (f", {compiled}" if compiled and compiled.number else "")

    def compare(self, contest: Contest, say: Callable[[str], None]) -> Comparison:
        """Check every candidate; time them cheaply, and by the full protocol where they may be the worst."""
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
        if self.spent_s >= self.budget_s * (1 + self.has_failed):  # as much again to shrink what has failed
            return self._checked(contest, f"--gpu-bench-given-budget of {self.budget_s:g} s is spent")
        found = self._attempt(contest, say)
        if isinstance(found, Exception):  # what is wrong in any call is raised where it is whenever it is looked for
            checked = self._checked(contest)
            return checked if isinstance(checked, Exception) else found
        return found

    def _attempt(self, contest: Contest, say: Callable[[str], None]) -> Comparison | Exception:
        began_s, compiled = time.perf_counter(), Compilations()
        try:
            with counting_compilations() as compiled:
                return self._timed(contest, say)
        except (MeasurementError, WrongResult) as error:
            return error
        finally:
            self.spent_s += max(0.0, time.perf_counter() - began_s - compiled.elapsed_s)

    def _checked(self, contest: Contest, reason: str = "") -> Comparison | Exception:
        try:
            return contest.checked(reason)
        except WrongResult as error:
            self.is_wrong = True
            return error

    def key(self, names: Sequence[str], arguments: object) -> Key:
        """Return what the next comparison or measurement of this example is remembered by."""
        self.comparisons += 1
        return (self.example.text, self.comparisons, *names, *described(arguments), *map(id, self.example.opaque))

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
        return replace(contest, settings=self.spending(contest.settings)).run(say)

    def spending(self, settings: Settings) -> Settings:
        """Return the settings of the next judgement: all of a test together spend its alpha."""
        self.judged += 1
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

    def explain(self, name: str, reference: str) -> str:
        """Return what a failure adds to its sentence: the example to paste, and how the ratio goes with its sizes."""
        self.has_failed = True
        pasted = self.example.pasted or self.example.text
        lines = [f"gpu_bench: to keep this example, paste above the test: @example({pasted})"]
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


class ContextLost(BaseException):
    """Raised past hypothesis, which could not shrink any more: every example that it tried would fail."""

    def __init__(self, error: Exception, example: Example) -> None:
        super().__init__(str(error))
        self.error, self.example = error, example


@dataclass
class Examples:
    """What became of the examples of a running test: by their arguments, so that it stays with that."""

    on_out_of_memory: OnOutOfMemory
    rejected: dict[Key, Example] = field(default_factory=dict)
    """Those that did not fit into memory."""
    failed: dict[Key, Raised] = field(default_factory=dict)
    """By an error of ours or, where that is to fail, for want of memory."""
    passed: set[Key] = field(default_factory=set)
    held: list[object] = field(default_factory=list)
    last: Exception | None = None

    def draw(self, text: str, sizes: Mapping[str, int], make: Callable[[], object]) -> object:
        """Return what is drawn; what could be made once is rejected if it cannot be again, however late that is."""
        drawn = self.run(Example(text, sizes), make, "draw")
        assert drawn is not None
        return drawn

    def run(self, example: Example, call: Callable[[], T], kind: str = "call") -> T | None:
        """Call, and come to what the same example came to before; reject what does not fit into memory.

        Returns what the call does, None for an example that did not fail before and has no room this time.
        """
        self.let_go()
        self.held += example.opaque
        key = (kind, *example.key)
        if key in self.rejected:
            reject()
        result, error = attempt(call)
        if error is not None and speaks_of_cuda(error) and context_error() is not None:
            raise ContextLost(error, example)
        before = self.failed.get(key)
        if error is not None and is_out_of_memory(error) and self.on_out_of_memory == "reject":
            give_back(error)
            error = None  # and with it what its frames hold
            if before is None and key not in self.passed:
                self.rejected[key] = example
                reject()
        elif error is not None and before is None and is_ours(error):
            self.failed[key] = before = Raised(error)
        if before is not None and (error is None or (is_ours(error) and origin(error) != before.origin)):
            error = before.again()
        if error is not None:
            self.last = error
            raise error
        if kind == "call":
            self.passed.add(key)
        return result

    def let_go(self) -> None:
        """Let go of what the frames of the last failure hold, tensors above all: hypothesis keeps its traceback."""
        if self.last is not None:
            clear(self.last)
            self.last = None

    @property
    def sentence(self) -> str:
        """How many examples did not fit into memory, and the smallest."""
        number, total = len(self.rejected), len(self.rejected.keys() | self.passed | self.failed.keys())
        smallest = min(self.rejected.values(), key=lambda example: (size_of(example), example.text))
        which = f"(the smallest {smallest.text})" if number > 1 else f"({smallest.text})"
        text = f"{count(number, 'example')} did not fit into GPU memory {which}"
        if number < NEARLY_ALL * total:
            return text
        others = f"of {total} in all: nearly nothing was searched" if number < total else "and no other was tried"
        return f"{text}, {others}; lower max_bytes or max_side, or free memory"


def attempt(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Return what a call returns, and what it raises."""
    try:
        return call(), None
    except Exception as error:
        return None, error


def reject() -> NoReturn:
    """Let hypothesis go on without the example."""
    import hypothesis

    hypothesis.event("did not fit into GPU memory")
    hypothesis.reject()


def is_ours(error: Exception) -> bool:
    """Tell whether what failed was a measurement, a comparison or the GPU's memory, and not the test itself."""
    return isinstance(error, (GpuBenchError, LimitBroken, WrongResult)) or is_out_of_memory(error)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it was raised from, is that of a GPU whose memory is full."""
    full: Any = getattr(sys.modules.get("torch"), "OutOfMemoryError", ())
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, full) or (isinstance(error, RuntimeError) and MEMORY_FULL.search(str(error))):
            return True
        error = error.__cause__
    return False


def origin(error: Exception) -> tuple[object, ...]:
    """Return what hypothesis tells failures apart by: the kind of an error, and where it was raised."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return (type(error), *((last.tb_frame.f_code.co_filename, last.tb_lineno) if last is not None else ()))


def clear(error: BaseException | None) -> None:
    """Let go of what the frames of an error, and of those behind it, hold."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def give_back(error: Exception) -> None:
    """Give the memory back that an example took before there was none left."""
    clear(error)
    error.__traceback__ = None
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def size_of(example: Example) -> int:
    """Return about how large an example is: the product of its sizes."""
    return math.prod(max(1, abs(size)) for size in example.sizes.values())


@contextmanager
def following_examples(
    function: Any,
    begin: Callable[[Example], None],
    fixtures: Mapping[str, object],
    on_out_of_memory: OnOutOfMemory = "reject",
    warn: Callable[[str], None] = lambda text: None,
) -> Iterator[None]:
    """Tell `begin` what a test under @given is called with, each time; does nothing for any other test.

    Lazy tensors in its arguments are made, hypothesis's usual deadline is off, and what was compiled is counted.

    fixtures: the test's arguments that hypothesis does not draw. on_out_of_memory: what to do with an example that does
    not fit into the GPU's memory; those rejected are told to `warn`, once and together.
    """
    handle = getattr(function, "hypothesis", None)
    inner = getattr(handle, "inner_test", None)
    if handle is None or inner is None:
        yield
        return

    owner = getattr(function, "__self__", None)
    found = Examples(on_out_of_memory)
    lost: ContextLost | None = None

    def is_drawn(name: str, value: object) -> bool:
        return name not in fixtures and (owner is None or value is not owner)

    @functools.wraps(inner)
    def told(*args: Any, **kwargs: Any) -> object:
        __tracebackhide__ = True
        drawn = {name: value for name, value in kwargs.items() if is_drawn(name, value)}
        example = replace(example_of(drawn), compilations=compilations)
        compilations.watch()

        def call() -> object:
            __tracebackhide__ = True
            begin(example)
            return inner(*args, **{name: made(value) if name in drawn else value for name, value in kwargs.items()})

        return found.run(example, call)

    with ExitStack() as stack:
        compilations = stack.enter_context(counting_compilations())
        stack.enter_context(without_usual_deadline(function))
        stack.enter_context(without_our_lines())
        handle.inner_test = told
        keepers.append(found.draw)
        try:
            yield
        except ContextLost as error:
            lost = error
        except Exception as error:
            if found.rejected:
                annotate(error, f"gpu_bench: {found.sentence}")
            raise
        finally:
            keepers.remove(found.draw)
            handle.inner_test = inner
            if found.rejected:
                warn(found.sentence)
    if lost is not None:
        pasted = lost.example.pasted or lost.example.text
        annotate(lost.error, f"gpu_bench: the CUDA context broke in this example, not shrunk: @example({pasted})")
        lost.error.__suppress_context__ = True
        raise lost.error


@contextmanager
def without_usual_deadline(function: Any) -> Iterator[None]:
    """Switch hypothesis's deadline off where it is the profile's: measuring takes longer, and compiling far longer."""
    import hypothesis

    name = "_hypothesis_internal_use_settings"
    holder = getattr(function, "__func__", function)
    asked = getattr(holder, name, None)
    if not isinstance(asked, hypothesis.settings) or asked.deadline != hypothesis.settings().deadline:
        yield
        return
    setattr(holder, name, hypothesis.settings(asked, deadline=None))
    try:
        yield
    finally:
        setattr(holder, name, asked)


def made(value: object) -> object:
    """Return an argument with the lazy tensors of our strategies made."""
    tensors: Any = sys.modules.get("pytest_gpubench.strategies.tensors")
    return value if tensors is None else tensors.made_of(value)


def example_of(drawn: Mapping[str, object]) -> Example:
    """Return an example by what was drawn for it."""
    sizes: dict[str, int] = {}
    for name, value in drawn.items():
        sizes |= sizes_in(name, value)
    texts = {name: text_of(value) for name, value in drawn.items()}
    opaque = tuple(value for name, value in drawn.items() if "<" in texts[name])
    text = keywords(texts)
    pasted = keywords({name: text_of(value, pasted=True) for name, value in drawn.items()})
    return Example(text, sizes, opaque, pasted if pasted != text else "")


def keywords(texts: Mapping[str, str]) -> str:
    """Return texts as the arguments of a call."""
    return ", ".join(f"{name}={text}" for name, text in texts.items())


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


def text_of(value: object, pasted: bool = False) -> str:
    """Return an argument as text, one that makes the same again as far as it can: tensors of our strategies as calls.

    pasted: for a decorator, where they are made later.
    """
    pretty = getattr(getattr(value, "_repr_pretty_", None), "pasted" if pasted else "text", None)
    if isinstance(pretty, str):
        return pretty
    if hasattr(value, "stride") and hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{type(value).__name__}({tuple(value.shape)}, {value.dtype}, strides={tuple(value.stride())})"
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        inner = ", ".join(text_of(part, pasted) for part in value)
        inner += "," if isinstance(value, tuple) and len(value) == 1 else ""
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    text = repr(value)
    return f"<{type(value).__name__}>" if re.search(r" at 0x[0-9a-f]+>", text) else text


def described(arguments: object) -> list[str]:
    """Return what arguments look like."""
    return [f"{name}={text_of(leaf)}" for name, leaf in flatten(arguments, "arguments")]
