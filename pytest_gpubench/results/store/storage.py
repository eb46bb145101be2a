"""The folder that runs are saved in, numbered and named, with one folder for each GPU model."""

import hashlib
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timezone
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
from filelock import FileLock

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.counterpart import by_test
from pytest_gpubench.results.files import explaining_os_errors, shown, write_file
from pytest_gpubench.results.model import SavedRun, TestRecord, text_of
from pytest_gpubench.results.provenance import moment
from pytest_gpubench.results.store.run_file import encode_run, read_run
from pytest_gpubench.units import count, first_few, printable

LONGEST_PART = 180
"""Bytes of a run's name in its file's name; file systems allow 255 with the number and the ending."""

FAILED = "~failed"
"""The end of the name that a run is saved under which failed its limits: nobody's baseline."""


def file_part(name: str) -> str:
    """Return a name as part of a file's name, with the letters that do not fit escaped as in URLs: `a%2Fb`.

    Different names give different parts; one that is too long is cut and ends in a hash of the whole.
    """
    text = text_of(unicodedata.normalize("NFC", name.strip()))
    pieces = [each if re.match(r"[\w.+=@ -]", each) else quote(each, safe="") for each in text]
    part = "".join(pieces)
    if len(part.encode()) <= LONGEST_PART:
        return part
    digest = hashlib.sha256(part.encode()).hexdigest()[:16]
    while len("".join(pieces).encode()) > LONGEST_PART - len(digest) - 1:
        pieces = pieces[: min(len(pieces) - 1, LONGEST_PART)]
    return f"{''.join(pieces)}-{digest}"


def part_of(path: Path) -> str:
    """Return the part of a file's name that stands for the run's name."""
    return path.name.partition("_")[2].removesuffix(".json")


def device_folder(device: str) -> str:
    """Return the name of a GPU model's folder: `NVIDIA-H200`."""
    return re.sub(r"[^\w.]+", "-", text_of(device)).strip("-.")[:80] or "unknown"


MOST_RUNS_NAMED = 8
"""Runs that the error about a missing one names."""
LOCK = ".lock"
"""Held in a device's folder from choosing the next number until its file is there; killing the holder frees it."""
LOCK_MODE = 0o666
"""Colleagues who share the storage take the same lock."""
LOCK_TIMEOUT_S = 600.0
"""Holding the lock takes as long as reading and writing one file."""


class NoSuchRun(BadFile):
    """Raised for a run that is not there."""


@dataclass(frozen=True)
class Stored:
    """A saved run in a storage folder, by the name of its file, which has not been read."""

    path: Path
    device: str
    """The name of the folder: the GPU model's, with hyphens for what does not fit a file's name."""
    number: int
    """Counted from 1 in each device's folder."""
    name: str
    """The name that it was saved under; without one, the commit and the time."""

    @property
    def has_failed(self) -> bool:
        """True for a run that failed its limits."""
        return part_of(self.path).endswith(FAILED)


class Storage:
    """The folder that runs are saved in, with one folder for each GPU model.

    root: made when something is saved for the first time, with a `.gitignore` that keeps it out of the repository.
    device: a part of the name of the GPU models whose runs are meant, in any spelling (`h200`); empty for all.
    """

    def __init__(self, root: Path, device: str = "") -> None:
        self.root = root
        self.device = device

    def save_each(
        self,
        run: SavedRun,
        name: str = "",
        is_gone: Callable[[str], bool] = lambda nodeid: False,
        has_failed: bool = False,
    ) -> dict[Path, int]:
        """Write a run's results to the folder of each GPU model, under the next number; return the sessions by file.

        The run becomes a session of the newest run of its name where that is of the same commit and machine. The files
        are in the order of the models' first records. name: any text; empty for the commit and the time. is_gone: tells
        whether a test of an older run exists no more, rather than that it was left out. has_failed: True keeps the run
        under another name. Raises BadFile where nothing was measured or it cannot be written.
        """
        if not run.records:
            raise BadFile(f"there is nothing to save in {shown(self.root)}: no test measured anything")
        records, earlier = defaultdict[str, list[TestRecord]](list), defaultdict[str, list[TestRecord]](list)
        for by_folder, found in ((records, run.records), (earlier, run.earlier)):
            for record in found:
                by_folder[device_folder(record.device.name)].append(record)
        with explaining_os_errors(self.root, "written"):
            make_root(self.root)
        saved = {}
        for device, kept in records.items():
            own = msgspec.structs.replace(run, records=tuple(kept), earlier=tuple(earlier[device]), name=name)
            path, whole = _save_one(own, self.root / device, is_gone, has_failed)
            saved[path] = count_sessions(whole)
        return saved

    def runs(self, device: str | None = None) -> list[Stored]:
        """Return the saved runs, each device's oldest first; device: of this GPU model or folder only.

        Raises BadFile where the folder cannot be read, or has runs of other devices than those that are meant only. A
        folder that is not there holds none.
        """
        wanted = None if device is None else device_folder(device)
        with explaining_os_errors(self.root, "read"):
            folders = sorted(path for path in self.root.iterdir() if path.is_dir()) if self.root.exists() else []
            found = [stored for folder in folders if wanted in (None, folder.name) for stored in _stored_in(folder)]
        kept = [stored for stored in found if _letters(self.device) in _letters(stored.device)]
        if found and not kept:
            there = ", ".join(dict.fromkeys(stored.device for stored in found))
            raise BadFile(f"--device={self.device}: {shown(self.root)} has runs of {there} only")
        return kept

    def find(self, which: str) -> list[Path]:
        """Return the newest matching run of each device.

        which: `latest`, a name that was saved, a number as in `3` or `0003`, or the path of a file; the first of these
        that there is. Raises NoSuchRun where there is none, naming what there is.
        """
        stored = self._runs_beside(which)
        part = file_part(which)
        matches = stored if which == "latest" else _named(stored, part) or _named(stored, part + FAILED)
        return list({path.parent: path for path in self._else(which, stored, matches)}.values())

    def baselines(self, which: str, errors: list[str] | None = None) -> list[tuple[Path, SavedRun]]:
        """Read the newest matching run of each device, and of older ones the tests that it left out; oldest first.

        No failed run, unless it is named as such. which: as in `find`; raises NoSuchRun as that does, and BadFile.
        errors: why an older run cannot be read is added to it, and the run is skipped; None raises that too.
        """
        stored = self._runs_beside(which)
        kept = [one for one in stored if not one.has_failed]
        by_folder: dict[Path, list[Path]] = {}
        for path in self._else(which, stored, kept if which == "latest" else _named(stored, file_part(which))):
            by_folder.setdefault(path.parent, []).append(path)
        return [found for inside in by_folder.values() for found in reversed(list(_newest_first(inside, errors)))]

    def _runs_beside(self, which: str) -> list[Stored]:
        """Return the saved runs; none where they cannot be told and `which` is a file."""
        try:
            return self.runs()
        except BadFile:
            if os.path.isfile(which):
                return []
            raise

    def _else(self, which: str, stored: Sequence[Stored], matches: Sequence[Stored]) -> list[Path]:
        """Return the files of matches; without any, of the number, or the path itself."""
        if found := matches or [one for one in stored if str(one.number) == which.lstrip("0")]:
            return [one.path for one in found]
        if os.path.isfile(which):
            return [Path(which)]
        absent, folder = f"there is no saved run and no file {printable(which)!r}", shown(self.root.absolute())
        if not stored:
            raise NoSuchRun(f"{absent}; in {folder} nothing is saved yet: save one with --gpu-bench-save=NAME")
        names = list(dict.fromkeys(f"{one.number:04d} ({one.name})" for one in reversed(stored)))
        meant = get_close_matches(which, {one.name for one in stored}, 1)
        guess = f"; did you mean {printable(meant[0])!r}?" if meant else ""
        there = f"{count(len(stored), 'run')}: {first_few(names, MOST_RUNS_NAMED)}"
        raise NoSuchRun(f"{absent}; {folder} has {there}{guess}")


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def make_root(root: Path) -> None:
    """Make a storage folder and a .gitignore in it; a folder that is there may have none."""
    root.parent.mkdir(parents=True, exist_ok=True)
    try:
        root.mkdir()
    except FileExistsError:
        if not root.is_dir():
            raise
        return
    (root / ".gitignore").write_text("*\n")


def _named(stored: Sequence[Stored], part: str) -> Sequence[Stored]:
    return [one for one in stored if part_of(one.path) == part]


def _save_one(run: SavedRun, folder: Path, is_gone: Callable[[str], bool], has_failed: bool) -> tuple[Path, SavedRun]:
    part = file_part(run.name)
    if not part:  # its commit, its time, and whether files differed
        commit = re.sub(r"\W", "", run.commit_info.id or "")[:8] or "unversioned"
        ended = moment(run.datetime).astimezone(timezone.utc)
        part = f"{commit}_{ended:%Y%m%d_%H%M%S}" + ("_dirty" if run.commit_info.dirty else "")
    part += FAILED if has_failed else ""
    with explaining_os_errors(folder, "written"):
        folder.mkdir(exist_ok=True)
        with FileLock(folder / LOCK, LOCK_TIMEOUT_S, LOCK_MODE):
            stored = _stored_in(folder)
            same = [one.path for one in stored if run.name and part_of(one.path) == part]
            kept = [one.path for one in stored if not one.has_failed]
            run = _with_left_out(run, {*same[-1:], *kept[-1:]}, is_gone)
            if has_failed and run.name:
                run = msgspec.structs.replace(run, name=run.name + FAILED)
            older = None
            if same and run.commit_info.dirty is False:
                with suppress(BadFile):  # what cannot be read is left alone
                    older = read_run(same[-1])
            if older is not None and _is_same_code_and_machine(older, run):
                path, run = same[-1], _with_sessions_of(older, run)
            else:
                path = folder / f"{max((one.number for one in stored), default=0) + 1:04d}_{part}.json"
            write_file(encode_run(run), path)
    return path, run


def _stored_in(folder: Path) -> list[Stored]:
    """Return a device's runs, oldest first."""
    found = [
        Stored(path=path, device=folder.name, number=int(match[1]), name=unquote(match[2]))
        for path in folder.iterdir()
        if (match := re.fullmatch(r"(\d+)_(.+)\.json", path.name, re.DOTALL))
    ]
    return sorted(found, key=lambda one: (one.number, one.path.name))


# the tests that a run left out


def _with_left_out(run: SavedRun, older: Iterable[Path], is_gone: Callable[[str], bool]) -> SavedRun:
    """Return a run that names the tests of older ones that it has no numbers of, and that are not gone."""
    known: set[str] = set()
    for path in older:
        with suppress(BadFile):  # what cannot be read is left alone
            before = read_run(path)
            known.update(before.left_out, (record.nodeid for record in before.records))
    measured = {record.nodeid for record in run.records}
    left_out = tuple(sorted(nodeid for nodeid in known - measured if not is_gone(nodeid)))
    return msgspec.structs.replace(run, left_out=left_out)


def _newest_first(paths: Sequence[Path], errors: list[str] | None) -> Iterator[tuple[Path, SavedRun]]:
    """Yield the newest run, and of each older one the tests that all newer ones left out."""
    wanted: set[str] | None = None
    for path in reversed(paths):
        try:
            run = read_run(path)
        except BadFile as error:
            if wanted is None or errors is None:
                raise
            errors.append(str(error))
            continue
        left_out = set(run.left_out)
        if wanted is not None:
            both = run.records, run.earlier
            records, earlier = (tuple(each for each in found if each.nodeid in wanted) for found in both)
            run = msgspec.structs.replace(run, records=records, earlier=earlier)
            left_out &= wanted
        if run.records or wanted is None:
            yield path, run
        wanted = left_out
        if not wanted:
            return


# the sessions of a run


def _is_same_code_and_machine(older: SavedRun, newer: SavedRun) -> bool:
    """Tell whether two runs measured the same commit, without changed files, on the same machine in the same state.

    On whichever card of a model: tests take the one that is free.
    """
    commits = older.commit_info, newer.commit_info
    is_clean = all(each.id and each.dirty is False for each in commits) and commits[0].id == commits[1].id
    models = ({msgspec.structs.replace(one.device, uuid=None) for one in run.records} for run in (older, newer))
    return is_clean and older.machine_info == newer.machine_info and next(models) == next(models)


def _with_sessions_of(older: SavedRun, newer: SavedRun) -> SavedRun:
    """Return the newer run with an older one as its earlier sessions; tests that only that has stay as they are."""
    measured = {record.key for record in newer.records}
    again = [record for record in older.records if record.key in measured]
    kept = [record for record in older.records if record.key not in measured]
    return msgspec.structs.replace(
        newer,
        records=(*kept, *newer.records),
        earlier=(*older.earlier, *again, *newer.earlier),
        name=older.name,
        left_out=tuple(nodeid for nodeid in newer.left_out if nodeid not in {record.nodeid for record in kept}),
    )


def count_sessions(run: SavedRun) -> int:
    """Return the most sessions that a test of the run has."""
    return 1 + max(map(len, by_test(run.earlier).values()), default=0)
