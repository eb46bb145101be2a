"""The `perf` marker: its legal keywords are the limits and the settings a test may choose."""

from dataclasses import dataclass, fields

import pytest

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import Limits
from pytest_gpubench.settings import MARKER_SETTINGS, ROWS, Resolver, Settings
from pytest_gpubench.units import count

NAME = "perf"
TURN_NAME = "gpu_turn"
GPUS = "gpus"


@dataclass(frozen=True)
class Demands:
    """What the marks of one test ask for, merged."""

    limits: dict[str, object]
    settings: dict[str, object]
    gpus: int = 1
    """How many GPUs the test needs for itself at once."""


def describe() -> str:
    """Return the marker's line for `pytest --markers`."""
    limits = "; ".join(f"{row.name}: {row.metadata['help']}" for row in fields(Limits))
    return (
        f"{NAME}({', '.join([*legal_limits(), *MARKER_SETTINGS, GPUS])}): a performance test (put on every "
        f"test that uses gpu_bench by itself). Limits on each of its measurements: {limits}. "
        f"Settings as the options of the same names: {', '.join(MARKER_SETTINGS)}. "
        "gpus: how many GPUs the test needs for itself at once, cuda:0 and those after it; with fewer it is skipped. "
        "Marks of class and module apply too; the closest wins, keyword by keyword."
    )


def describe_turn() -> str:
    """Return the line of the mark for tests that use a GPU, but not gpu_bench."""
    return f"{TURN_NAME}(gpus=1): hold the GPU, or several, alone while the test runs, as a perf test does"


def gpus_needed(item: pytest.Item) -> int:
    """Return how many GPUs a test holds while it runs; raise BadRequest for what is not such a number."""
    mark = item.get_closest_marker(TURN_NAME)
    if mark is None:
        return merge_marks(item).gpus
    unknown = [*map(repr, mark.args), *(name for name in mark.kwargs if name != GPUS)]
    if unknown:
        raise BadRequest(f"{TURN_NAME}() takes {GPUS}= only, found {unknown[0]}")
    return checked_gpus(mark.kwargs.get(GPUS), TURN_NAME)


def checked_gpus(value: object, mark: str) -> int:
    """Return a number of GPUs, 1 for None; raise BadRequest for what is none."""
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequest(f"{mark}({GPUS}={value!r}): it must be a whole number of at least 1")
    return value


def legal_limits() -> tuple[str, ...]:
    """Return the keywords that are limits."""
    return tuple(row.name for row in fields(Limits))


def merge_marks(item: pytest.Item) -> Demands:
    """Merge a test's `perf` marks, the closest winning keyword by keyword; raise BadRequest for what is not legal."""
    merged: dict[str, object] = {}
    for mark in reversed(list(item.iter_markers(NAME))):
        if mark.args:
            raise BadRequest(
                f"perf() takes keywords only, found {count(len(mark.args), 'positional argument')}: {mark.args[0]!r}"
            )
        merged.update(mark.kwargs)
    return split_keywords(merged)


def split_keywords(keywords: dict[str, object]) -> Demands:
    """Tell limits from settings; raise BadRequest naming the legal keywords for any other."""
    legal = legal_limits()
    gpus = checked_gpus(keywords.get(GPUS), NAME)
    keywords = {name: value for name, value in keywords.items() if name != GPUS}
    unknown = [name for name in keywords if name not in legal and name not in ROWS]
    misplaced = [name for name in keywords if name in ROWS and name not in MARKER_SETTINGS]
    if unknown:
        raise BadRequest(
            f"perf({unknown[0]}=...) is not known; legal are the limits {', '.join(legal)} "
            f"and the settings {', '.join([*MARKER_SETTINGS, GPUS])}"
        )
    if misplaced:
        raise BadRequest(f"perf({misplaced[0]}=...) can only be set for the whole run, as an option or in the ini file")
    return Demands(
        limits={name: value for name, value in keywords.items() if name in legal and value is not None},
        settings={name: value for name, value in keywords.items() if name not in legal and value is not None},
        gpus=gpus,
    )


def apply_settings(demands: Demands, resolver: Resolver) -> Settings:
    """Return the settings of a marked test."""
    return resolver.override(resolver.run, demands.settings, "perf({}=...)")
