"""What became of a test's examples: those that passed, failed or did not fit into memory stay with that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn, TypeVar

from pytest_gpubench.errors import GpuBenchError, LimitBroken, WrongResult
from pytest_gpubench.gpu.context import context_error, may_be_cuda_error
from pytest_gpubench.search.example import Example, Key, size_of
from pytest_gpubench.search.out_of_memory import give_back, is_out_of_memory
from pytest_gpubench.search.raised import Raised, clear, origin
from pytest_gpubench.units import count

__tracebackhide__ = True

NEARLY_ALL = 0.9
"""Where so large a share of the examples did not fit into memory, the search has not seen what it was to search."""
T = TypeVar("T")
OnOutOfMemory = Literal["reject", "fail"]


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
        self.held += example.held
        if key_of(kind, example) in self.rejected:
            reject()
        result, error = attempt(call)
        key = key_of(kind, example)  # with what was drawn in the call
        if error is not None and may_be_cuda_error(error) and context_error() is not None:
            raise ContextLost(error, example)
        if key in self.rejected:
            self.last = error
            reject()
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


def key_of(kind: str, example: Example) -> Key:
    """Return what an example is remembered by; something drawn, by its text alone, which says how it is made."""
    return (kind, example.text) if kind == "draw" else (kind, *example.key)


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
