"""Measurements and comparisons: a module for each public call but the plain one of `request`, and what they share.

For scripts and tuners the package itself has `measure`, `compare` and `do_bench`, loaded when they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_gpubench.engine import compare, do_bench, measure

__all__ = ["compare", "do_bench", "measure"]


if not TYPE_CHECKING:  # which would believe that every name exists

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module("pytest_gpubench.engine"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
