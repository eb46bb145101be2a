"""The state of the L2 cache before each rep: by its name, or as a producer leaves it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from pytest_gpubench.errors import annotating
from pytest_gpubench.units import name_of, printable

CacheName = Literal["cold", "dirty", "hot"]


@dataclass(eq=False)
class Producer:
    """A function that is called before each rep, after the cache was flushed: the call finds what it left there."""

    function: Callable[[], object]
    is_left_out: bool = False

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


def cache_state(given: object) -> Cache:
    """Parse the name of a state, or take a function as a producer."""
    if callable(given):
        return Producer(given)
    names: tuple[CacheName, ...] = get_args(CacheName)
    for name in names:
        if name == given:
            return name
    raise ValueError(f"it must be one of {', '.join(names)}, or in a test a function without arguments")


def cache_words(state: str) -> str:
    """Return the name of a state in a sentence: `cold cache`, `after producer fill`."""
    return f"after {state}" if state.startswith("producer ") else f"{state} cache"


@contextmanager
def without_producer(cache: Cache) -> Iterator[None]:
    """Leave out the producer, if there is one, within a block: the cache is cold there."""
    if isinstance(cache, Producer):
        cache.is_left_out = True
    try:
        yield
    finally:
        if isinstance(cache, Producer):
            cache.is_left_out = False
