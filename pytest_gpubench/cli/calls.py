"""The calls of saved runs: how much they take, and which no run refers to any more."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_gpubench.errors import BadFile
from pytest_gpubench.replay.call_data import decode_call
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import Storage, read_run
from pytest_gpubench.results.store.calls import CallStore
from pytest_gpubench.units import count, format_bytes


def calls_in(run: SavedRun) -> list[str]:
    """Return the names of the calls of a run."""
    return [item.call for record in run.records for item in record.measurements if item.call]


def calls_line(storage: Path) -> str:
    """Return how much the calls in a storage folder take; empty where there are none."""
    store = CallStore(storage)
    sizes = [store.size(name) for name in store.names()]
    return f"calls of these runs: {count(len(sizes), 'file')}, {format_bytes(sum(sizes))}" if sizes else ""


def remove_unused_calls(storage: Path) -> int:
    """Remove the calls, and the images of kernels, that no saved run refers to; return the bytes that this frees.

    Raises BadFile where a run cannot be read: what it refers to is not known.
    """
    store = CallStore(storage)
    calls = {name for stored in Storage(storage).runs() for name in calls_in(read_run(stored.path))}
    return store.remove_others({*calls, *_images_of(calls, store)})


def _images_of(calls: Iterable[str], store: CallStore) -> Iterator[str]:
    for name in calls:
        try:
            yield from decode_call(store.read(name, trusted=True)).images
        except BadFile:  # it cannot be replayed, with images or without
            continue
