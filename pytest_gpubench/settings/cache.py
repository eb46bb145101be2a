"""The state of the L2 cache before each rep: by its name, or as a producer leaves it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pytest_gpubench.errors import annotating
from pytest_gpubench.units import name_of, printable

CacheName = Literal["cold", "dirty", "hot"]


@dataclass(eq=False)
class Producer:
    """A function that is called before each rep, after the cache was flushed: the call finds what it left there.

    Raises ValueError for what is no function.
    """

    function: Callable[[], object]
    is_left_out: bool = False
    """True while the other values of checked rounds are in its place: it would write those as given."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError("it must be a function without arguments (in tests only)")

    def __str__(self) -> str:
        return f"producer {printable(name_of(self.function))}"

    def run(self, synchronize: Callable[[], object]) -> object:
        """Call the function, and wait until the device has done what it launched; return what it returns."""
        with annotating(lambda: f"gpu_bench: raised in {self}, which cache= has called without arguments"):
            output = None if self.is_left_out else self.function()
            synchronize()
        return output


Cache = CacheName | Producer
"""Its text is the state's name in tables and saved runs."""


def cache_words(state: str) -> str:
    """Return the name of a state in a sentence: `cold cache`, `after producer fill`."""
    return f"after {state}" if state.startswith("producer ") else f"{state} cache"
