"""What changed between two runs: which measurement is which, and which changes are worth a reader's time."""

from pytest_gpubench.results.change import change_between
from pytest_gpubench.results.counterpart import Key, keys_of
from pytest_gpubench.results.model import Measurement, SavedRun
from pytest_gpubench.stats.regression import Change
from pytest_gpubench.stats.tolerance import Tolerance

Place = tuple[str, str, Key]
"""The device's name, the test, and the measurement within it."""

ALPHA = 0.001
SHOWN = Tolerance("speedup", margin=0.01)
"""Changes of less are not counted as changes, however certain they are."""


def measurements_by_place(run: SavedRun) -> dict[Place, Measurement]:
    """Return the measurements of a run by what they have in common with the same measurement in another run."""
    return {
        (record.device.name, record.nodeid, key): item
        for record in run.records
        for key, item in zip(keys_of(record.measurements), record.measurements, strict=True)
    }


def change_of(old: Measurement, new: Measurement) -> Change | None:
    """Return how much slower a measurement is, by its speedup where both have one; None without samples to tell."""
    try:
        return change_between(old, new, SHOWN, ALPHA)
    except ValueError:
        return None


def word_for(change: Change) -> str:
    """Return `slower` or `faster` where that is certain and worth showing; empty otherwise."""
    margin = SHOWN.margin or 0.0
    if change.interval is None:
        return ""
    if change.interval.low > 1 + margin:
        return "slower"
    return "faster" if change.interval.high < 1 / (1 + margin) else ""
