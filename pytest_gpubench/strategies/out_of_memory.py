"""Who decides what becomes of a drawn value that does not fit into memory: a search of ours, where one runs."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, cast

T = TypeVar("T")


class Keeper(Protocol):
    """Makes what is drawn, by its text and its sizes, or refuses the example."""

    def __call__(self, text: str, sizes: Mapping[str, int], make: Callable[[], object]) -> object:
        """Return what `make` makes."""


keepers: list[Keeper] = []
"""Those of the searches that run, the innermost last."""


def draw_fitting(text: str, sizes: Mapping[str, int], make: Callable[[], T]) -> T:
    """Return what is drawn; where it does not fit into memory, as the search that runs was told."""
    return cast(T, keepers[-1](text, sizes, make)) if keepers else make()
