"""Find the saved runs that a command is about, and name them."""

import argparse
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.provenance import minute_text
from pytest_gpubench.results.store import NoSuchRun, Storage, Stored, read_run


def storage_of(arguments: argparse.Namespace) -> Storage:
    """Return the storage that the arguments name, with the runs of the devices asked for."""
    return Storage(Path(arguments.storage), arguments.device or "")


def read_each(found: Iterable[Stored], errors: list[str]) -> Iterator[tuple[Stored, SavedRun]]:
    """Yield each saved run; why one cannot be read is added to errors."""
    for stored in found:
        try:
            run = read_run(stored.path)
        except BadFile as error:
            errors.append(str(error))
        else:
            yield stored, run


def nothing_saved(arguments: argparse.Namespace) -> str:
    """Return the sentence for an empty storage."""
    return f"{arguments.storage}: there are no saved runs; pytest --gpu-bench-save=NAME saves one; see --storage too"


def find_baselines(which: str, arguments: argparse.Namespace, errors: list[str]) -> dict[Path, list[SavedRun]]:
    """Return the newest file that `which` means on each device, with its run, and older ones before it.

    Those have the tests that it left out, as where pytest compares. A failed run is meant where there is no other. Why
    an older one cannot be read is added to errors.
    """
    storage = storage_of(arguments)
    try:
        found = storage.baselines(which, errors)
    except NoSuchRun:
        found = [(path, read_run(path)) for path in storage.find(which)]
    newest = {path.parent: path for path, _ in found}
    named = [(path.parent, msgspec.structs.replace(run, name=run.name or path.name)) for path, run in found]
    return {path: [run for place, run in named if place == folder] for folder, path in newest.items()}


def find_path(which: str, arguments: argparse.Namespace) -> Path:
    """Return the file that `which` means; raise BadFile for none, and BadRequest where it is one for each device."""
    path, *others = storage_of(arguments).find(which)
    if others:
        devices = ", ".join(each.parent.name for each in (path, *others))
        raise BadRequest(f"{which} is a run of several devices ({devices}): choose one with --device")
    return path


def run_title(path: Path, run: SavedRun) -> str:
    """Return a line that says which run it is: file, date, commit."""
    return ", ".join(filter(None, [path.name, minute_text(run.datetime), commit_text(run) or "commit not known"]))


def commit_text(run: SavedRun) -> str:
    """Return the commit's first eight letters, and whether files differed from it; empty where it is not known."""
    commit = run.commit_info
    return f"{commit.id[:8]}{'+dirty' if commit.dirty else ''}" if commit.id else ""


def matches(nodeid: str, pattern: str) -> bool:
    """Tell whether a test's id has a pattern in it; brackets stand for themselves, as parameters have them."""
    return pattern in nodeid or fnmatchcase(nodeid, f"*{pattern.replace('[', '[[]')}*")
