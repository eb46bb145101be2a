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


def list_stored(arguments: argparse.Namespace) -> list[Stored]:
    """Return the saved runs of the devices asked for, the oldest of each first.

    Raises BadRequest where only others have some.
    """
    found = Storage(Path(arguments.storage)).runs()
    kept = [stored for stored in found if _is_wanted(stored.device, arguments.device)]
    if found and not kept:
        folders = ", ".join(sorted({stored.device for stored in found}))
        raise BadRequest(f"--device={arguments.device}: {arguments.storage} has runs of {folders} only")
    return kept


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
    return f"{arguments.storage}: there are no saved runs; pytest --gpu-bench-save=NAME saves one"


def _is_wanted(folder: str, device: str | None) -> bool:
    """Tell whether a device's folder is that of the device asked for, in any spelling; None asks for any."""
    wanted, name = ("".join(filter(str.isalnum, text.lower())) for text in (device or "", folder))
    return wanted in name


def find_paths(which: str, arguments: argparse.Namespace) -> list[Path]:
    """Return the files that a name, a number, a path or `latest` means: one, or one for each device.

    Raises BadFile where there is none, and BadRequest where none is of the device asked for.
    """
    return _of_wanted_devices(Storage(Path(arguments.storage)).find(which), which, arguments)


def find_baselines(which: str, arguments: argparse.Namespace) -> dict[Path, list[SavedRun]]:
    """Return the files that `which` means, as in `find_paths`, each with its run, and older ones before it.

    Those have the tests that it left out, as where pytest compares. A failed run is meant where there is no other.
    """
    storage = Storage(Path(arguments.storage))
    try:
        found = storage.baselines(which)
    except NoSuchRun:
        found = [(path, read_run(path)) for path in storage.find(which)]
    newest = {path.parent: path for path, _ in found}
    return {
        each: [msgspec.structs.replace(run, name=run.name or path.name) for path, run in found if path.parent == folder]
        for folder, each in newest.items()
        if each in _of_wanted_devices([*newest.values()], which, arguments)
    }


def _of_wanted_devices(found: list[Path], which: str, arguments: argparse.Namespace) -> list[Path]:
    """Return the files of the device asked for; raise BadRequest where there are only others."""
    if found == [Path(which)]:
        return found
    kept = [path for path in found if _is_wanted(path.parent.name, arguments.device)]
    if not kept:
        folders = ", ".join(path.parent.name for path in found)
        raise BadRequest(f"--device={arguments.device}: {which} is a run of {folders or 'no device'} only")
    return kept


def find_path(which: str, arguments: argparse.Namespace) -> Path:
    """Return the file that `which` means, as in `find_paths`; raise BadRequest too where it is one for each device."""
    path, *others = find_paths(which, arguments)
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
