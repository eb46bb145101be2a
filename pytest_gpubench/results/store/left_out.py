"""The tests that a saved run left out: a name is looked up test by test, the newest run first."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store.run_file import read_run


def with_left_out(run: SavedRun, older: Iterable[Path], is_gone: Callable[[str], bool]) -> SavedRun:
    """Return a run that names the tests of older ones that it has no numbers of, and that are not gone."""
    known: set[str] = set()
    for path in older:
        with suppress(BadFile):  # what cannot be read is left alone
            before = read_run(path)
            known.update(before.left_out, (record.nodeid for record in before.records))
    measured = {record.nodeid for record in run.records}
    left_out = tuple(sorted(nodeid for nodeid in known - measured if not is_gone(nodeid)))
    return msgspec.structs.replace(run, left_out=left_out)


def read_by_test(paths: Iterable[Path]) -> list[tuple[Path, SavedRun]]:
    """Read the newest run in each folder, and of older ones the tests that it left out; both ways oldest first."""
    by_folder: dict[Path, list[Path]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path)
    return [found for inside in by_folder.values() for found in reversed(list(_newest_first(inside)))]


def _newest_first(paths: Sequence[Path]) -> Iterator[tuple[Path, SavedRun]]:
    """Yield the newest run, and of each older one the tests that all newer ones left out."""
    wanted: set[str] | None = None
    for path in reversed(paths):
        run = read_run(path)
        left_out = set(run.left_out)
        if wanted is not None:
            run = _only(run, wanted)
            left_out &= wanted
        if run.records or wanted is None:
            yield path, run
        wanted = left_out
        if not wanted:
            return


def _only(run: SavedRun, nodeids: Container[str]) -> SavedRun:
    records, earlier = (
        tuple(record for record in found if record.nodeid in nodeids) for found in (run.records, run.earlier)
    )
    return msgspec.structs.replace(run, records=records, earlier=earlier)
