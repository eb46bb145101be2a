"""Intercept the examples of a test under @given: no deadline, out-of-memory policy, outcomes that are repeated."""

import functools
import gc
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeVar

from pytest_gpubench.errors import GpuBenchError, LimitBroken, WrongResult, annotate, causes_of
from pytest_gpubench.gpu.context import context_error, may_be_cuda_error
from pytest_gpubench.search.example import Example, ExampleKey
from pytest_gpubench.timing.compilations import counting_compilations
from pytest_gpubench.units import count


class RememberedError:
    """An error as it was first raised, which is how hypothesis tells failures apart."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.traceback = error.__traceback__
        last = list(traceback.walk_tb(error.__traceback__))[-1:]
        self.origin = (type(error), *((frame.f_code.co_filename, line) for frame, line in last))
        """Its kind, and the file and line that raised it."""

    def again(self) -> Exception:
        """Return the error to raise: each raise lengthens its traceback, so it gets its first one back."""
        return self.error.with_traceback(self.traceback)


def clear_frames(error: BaseException) -> None:
    """Drop what the frames of an error and of its causes hold."""
    for each in causes_of(error):
        traceback.clear_frames(each.__traceback__)


# out-of-memory policy: leave out what does not fit, and repeat an example's earlier outcome

MEMORY_FULL = re.compile(r"(CUDA error|Triton Error \[CUDA\]): out of memory|CUBLAS_STATUS_ALLOC_FAILED")
"""The errors for full memory of libraries that do not raise torch.OutOfMemoryError."""
NEARLY_ALL = 0.9
"""From this share of examples without room on, the search has hardly searched."""
T = TypeVar("T")
OnOutOfMemory = Literal["reject", "fail"]


class ContextLost(BaseException):
    """Raised past hypothesis when the CUDA context is broken: every further example would fail."""

    def __init__(self, error: Exception, example: Example) -> None:
        super().__init__(str(error))
        self.error, self.example = error, example


@dataclass
class Examples:
    """The examples of a running test and their outcomes; hypothesis calls a test flaky whose outcomes change."""

    on_out_of_memory: OnOutOfMemory
    outcomes: dict[ExampleKey, RememberedError | Example | None] = field(default_factory=dict)
    """An error of ours or, if that is to fail, of full memory; the example where it did not fit; None if it passed."""
    held: list[object] = field(default_factory=list)
    """The values by which its keys, and those of the search, tell examples apart."""
    last: Exception | None = None

    def draw(self, text: str, sizes: Mapping[str, int], make: Callable[[], object]) -> object:
        """Return a drawn value; one that fits once and not later is rejected all the same."""
        return self.run(Example(text, sizes), make, "draw")

    def run(self, example: Example, call: Callable[[], T], kind: str = "call") -> T | None:
        """Call, with the same outcome as the same example had before; reject it where it does not fit into memory.

        Returns what the call returns; None for an example that passed before and has no room this time.
        """
        if self.last is not None:  # hypothesis keeps its traceback, and with it what its frames hold: tensors above all
            clear_frames(self.last)
            self.last = None
        self.held += example.held
        if isinstance(self.outcomes.get(_key_of(kind, example)), Example):
            _reject()
        result, error = None, None
        try:
            result = call()
        except Exception as raised:
            error = raised
        key = _key_of(kind, example)  # with what was drawn in the call
        if error is not None and may_be_cuda_error(error) and context_error() is not None:
            raise ContextLost(error, example)
        found: RememberedError | Example | None = None
        if error is not None and is_out_of_memory(error) and self.on_out_of_memory == "reject":
            _give_back(error)
            error, found = None, example  # and with the error what its frames hold
        elif isinstance(error, (GpuBenchError, LimitBroken, WrongResult)) or is_out_of_memory(error):
            assert error is not None
            found = RememberedError(error)
        if found is not None or (error is None and kind == "call"):
            self.outcomes.setdefault(key, found)
        before = self.outcomes.get(key)
        if isinstance(before, Example):
            self.last = error
            _reject()
        is_other = isinstance(found, RememberedError) and found.origin != getattr(before, "origin", None)
        if isinstance(before, RememberedError) and (error is None or is_other):
            error = before.again()
        if error is not None:
            self.last = error
            raise error
        return result

    @property
    def rejected(self) -> list[Example]:
        """Examples that did not fit into memory."""
        return [each for each in self.outcomes.values() if isinstance(each, Example)]

    @property
    def sentence(self) -> str:
        """The number of examples that did not fit into memory, and the smallest."""
        examples, total = self.rejected, len(self.outcomes)
        number = len(examples)
        volumes = [(math.prod(max(1, abs(size)) for size in each.sizes.values()), each.text) for each in examples]
        _, smallest = min(volumes)
        which = f"(the smallest {smallest})" if number > 1 else f"({smallest})"
        text = f"{count(number, 'example')} did not fit into GPU memory {which}"
        if number < NEARLY_ALL * total:
            return text
        others = f"of {total} in all: nearly nothing was searched" if number < total else "and no other was tried"
        return f"{text}, {others}; lower max_bytes or max_side, or free memory"


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it was raised from, says that the GPU's memory is full."""
    full: Any = getattr(sys.modules.get("torch"), "OutOfMemoryError", ())
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, full) or (isinstance(error, RuntimeError) and MEMORY_FULL.search(str(error))):
            return True
        error = error.__cause__
    return False


def _give_back(error: Exception) -> None:
    """Free the memory that an example took before it was full."""
    clear_frames(error)
    error.__traceback__ = None
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _key_of(kind: str, example: Example) -> ExampleKey:
    """Return the key of an example; of something drawn its text alone, which says how it is made."""
    return (kind, example.text) if kind == "draw" else (kind, *example.key)


def _reject() -> NoReturn:
    """Let hypothesis go on without the example."""
    import hypothesis

    hypothesis.event("did not fit into GPU memory")
    hypothesis.reject()


@contextmanager
def intercepting_examples(
    function: Any,
    begin: Callable[[Example], None],
    fixtures: Mapping[str, object],
    on_out_of_memory: OnOutOfMemory = "reject",
    warn: Callable[[str], None] = lambda text: None,
) -> Iterator[None]:
    """Call `begin` with each example of a test under @given.

    Lazy tensors in its arguments are made, hypothesis's usual deadline is off, and compilations are counted.

    fixtures: the test's arguments that hypothesis does not draw. on_out_of_memory: what to do with an example that does
    not fit into the GPU's memory; `warn` is called once, with a sentence about all that were rejected.
    """
    from pytest_gpubench.strategies.tensors import made_of, out_of_memory_policies  # imports hypothesis

    inner = function.hypothesis.inner_test
    owner = getattr(function, "__self__", None)
    examples = Examples(on_out_of_memory)
    lost: ContextLost | None = None

    def is_drawn(name: str, value: object) -> bool:
        return name not in fixtures and (owner is None or value is not owner)

    @functools.wraps(inner)
    def intercepted(*args: Any, **kwargs: Any) -> object:
        drawn = {name: value for name, value in kwargs.items() if is_drawn(name, value)}
        example = Example.of(drawn, compilations)
        compilations.watch()

        def call() -> object:
            begin(example)
            return inner(*args, **{name: made_of(value) if name in drawn else value for name, value in kwargs.items()})

        return examples.run(example, call)

    with ExitStack() as stack:
        compilations = stack.enter_context(counting_compilations())
        stack.enter_context(_without_usual_deadline(function))
        function.hypothesis.inner_test = intercepted
        out_of_memory_policies.append(examples.draw)
        try:
            yield
        except ContextLost as error:
            lost = error
        except Exception as error:
            if examples.rejected:
                annotate(error, f"gpu_bench: {examples.sentence}")
            raise
        finally:
            out_of_memory_policies.remove(examples.draw)
            function.hypothesis.inner_test = inner
            if examples.rejected:
                warn(examples.sentence)
    if lost is not None:
        pasted = lost.example.pasted or lost.example.text
        annotate(lost.error, f"gpu_bench: the CUDA context broke in this example, not shrunk: @example({pasted})")
        lost.error.__suppress_context__ = True
        raise lost.error


@contextmanager
def _without_usual_deadline(function: Any) -> Iterator[None]:
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
