"""The `perf` marker: its legal keywords are the limits, the settings a test may choose, and `gpus`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.bounds import checked_count
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.settings import MARKER_SETTINGS, ROWS
from pytest_gpubench.spelling import hint
from pytest_gpubench.units import count, repr_of

if TYPE_CHECKING:
    from pytest_gpubench.verdict.limits import Limits

NAME = "perf"
TURN_NAME = "gpu_turn"
GPUS = "gpus"
MOST_GPUS = 1024


@dataclass(frozen=True)
class MergedMarks:
    """The keywords of all `perf` marks of one test."""

    limits: "Limits"
    settings: dict[str, object]
    gpus: int
    """The number of GPUs that the test needs for itself at once."""
    keywords: dict[str, object] = field(compare=False)
    """All of them as they were given."""
    inherited: dict[str, str] = field(compare=False)
    """The class or file whose mark gives a keyword, by keyword; without those of the test's own marks."""


SUMMARY = f"{NAME}(limits and settings): a performance test, as every test is that uses gpu_bench"
ON_TURN = f"{TURN_NAME}({GPUS}=1): hold the GPU, or several, alone while the test runs, as a perf test does"


def gpus_needed(item: pytest.Item) -> int:
    """Return how many GPUs a test holds while it runs; raise BadRequest for illegal marks."""
    mark = item.get_closest_marker(TURN_NAME)
    if mark is None:
        return merge_marks(item).gpus
    unknown = [*map(repr_of, mark.args), *(name for name in mark.kwargs if name != GPUS)]
    if unknown:
        raise BadRequest(f"{TURN_NAME}() takes {GPUS}= only, found {unknown[0]}")
    return _gpu_count(mark.kwargs.get(GPUS), TURN_NAME)


def merge_marks(item: pytest.Item) -> MergedMarks:
    """Merge a test's `perf` marks, the nearest winning per keyword; raise BadRequest for what is not legal."""
    from pytest_gpubench.verdict.limits import NAMES, Limits

    merged: dict[str, object] = {}
    owners: dict[str, object] = {}
    for node, mark in reversed(list(item.iter_markers_with_node(NAME))):
        if mark.args:
            found = f"{count(len(mark.args), 'positional argument')}: {repr_of(mark.args[0])}"
            raise BadRequest(f"perf() takes keywords only, found {found}: name the limit, as in perf(min_speedup=1.5)")
        merged.update(mark.kwargs)
        owners.update(dict.fromkeys(mark.kwargs, node))
    for name in merged:
        _refuse_illegal(name, NAMES)
    chosen = {name: value for name, value in merged.items() if value is not None}
    gpus = _gpu_count(chosen.pop(GPUS, None), NAME)
    limits = {name: chosen.pop(name) for name in NAMES if name in chosen}
    inherited = {
        name: f"{'class' if isinstance(node, pytest.Class) else 'file'} {getattr(node, 'name', '')}".rstrip()
        for name, node in owners.items()
        if node is not item
    }
    return MergedMarks(Limits(**limits), chosen, gpus, merged, inherited)


def _refuse_illegal(name: str, limits: Sequence[str]) -> None:
    if name not in ROWS and name not in limits and name != GPUS:
        settings = [*MARKER_SETTINGS, GPUS]
        raise BadRequest(
            f"perf({name}=...) is not known"
            + (
                hint("mark", name, [*limits, *settings], "=")
                or f"; legal are the limits {', '.join(limits)} and the settings {', '.join(settings)}"
            )
        )
    if name in ROWS and name not in MARKER_SETTINGS:
        raise BadRequest(f"perf({name}=...) can only be set for the whole run, as an option or in the ini file")


def _gpu_count(value: object, mark: str) -> int:
    return 1 if value is None else checked_count(f"{mark}({GPUS}={{}})", value, most=MOST_GPUS)
