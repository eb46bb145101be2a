"""Saved runs: one JSON file each, which tools that know pytest-benchmark's can read, in one folder per GPU model."""

import errno
import gc
import hashlib
import math
import os
import re
import secrets
import stat
import statistics
import time
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import msgspec

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.model import CommitInfo, Measurement, SavedRun, TestRecord, Timing, plain, text_of
from pytest_gpubench.units import count, format_bytes, printable

__tracebackhide__ = True

SCHEMA = 1
"""Of the `gpu_bench` block; it grows when a reader of the one before would misread it."""

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""By schema, what turns a whole file of it into one of the next."""

PYTEST_BENCHMARK = "5.3.1"
"""The version of pytest-benchmark whose form the rest of the file has."""

MOST_BYTES = 2 << 30
"""The largest file that is read: a hundred times what five thousand tests take."""

LONGEST_PART = 180
"""Bytes of a name in a file's name; file systems allow 255, number and ending included."""

ABANDONED_S = 3600.0
"""A temporary file that was not written to for so long is of a process that was killed: writing takes seconds."""

MOST_NAMED = 8
"""Runs that the sentence about one that is not there names."""


class Block(msgspec.Struct, kw_only=True):
    """Hold what only this plugin reads of a file."""

    schema: int
    version: str = ""
    name: str = ""
    settings: dict[str, str] = {}
    records: tuple[TestRecord, ...]


class File(msgspec.Struct, kw_only=True):
    """Hold what is read of a file; `benchmarks` says nothing that the block does not, and is skipped."""

    machine_info: dict[str, Any]
    commit_info: CommitInfo
    datetime: str
    gpu_bench: Block


class Outline(msgspec.Struct):
    """Hold as much of a file as tells what kind of file it is."""

    gpu_bench: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    benchmarks: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    machine_info: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class BlockOutline(msgspec.Struct):
    """Hold the schema of a block, whatever it is."""

    schema: Any = None


# writing


def write_run(run: SavedRun, path: Path) -> None:
    """Write a run to a file, whole or not at all; folders on the way are made.

    Raises BadFile where it cannot be written.
    """
    data = encode_run(run)
    with _telling_why(path, "written"):
        target = Path(os.path.realpath(path))  # what a link leads to is replaced, not the link
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(data)  # a pipe or a device: there is nothing to replace
            return
        temporary = target.with_name(f".gpu-bench-{secrets.token_hex(8)}.tmp")
        with open(temporary, "xb") as file:
            _put(data, file, temporary, target)
        _remove_abandoned(target)


def encode_run(run: SavedRun) -> bytes:
    """Return a run as the JSON of a file; what JSON has no form for in what users gave is written as text."""
    records = [_plain_record(record) for record in run.records]
    content = {
        "machine_info": plain(run.machine_info),
        "commit_info": run.commit_info,
        "benchmarks": [entry for record in records for entry in benchmark_entries(record)],
        "datetime": run.datetime,
        "version": PYTEST_BENCHMARK,
        "gpu_bench": Block(
            schema=SCHEMA, version=run.version, name=run.name, settings=run.settings, records=tuple(records)
        ),
    }
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:  # a lone surrogate somewhere: the name of a file that is not UTF-8
        return msgspec.json.encode(plain(msgspec.to_builtins(content)))


def _plain_record(record: TestRecord) -> TestRecord:
    if not record.extra_info:
        return record
    return msgspec.structs.replace(record, extra_info=plain(record.extra_info))


def _put(data: bytes, file: BinaryIO, temporary: Path, target: Path) -> None:
    """Fill the temporary file and give it the target's name; whatever happens, no part of a file has that name."""
    try:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def _telling_why(path: Path, done: str) -> Iterator[None]:
    """Turn what the operating system refuses into one sentence; done: what cannot be done to the path."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, BadFile):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        number = error.errno if isinstance(error, OSError) else None
        raise BadFile(f"{_shown(path)} cannot be {done}: {reason}{_remedy(number, done)}") from error


def _remedy(number: int | None, done: str) -> str:
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "; make room there, or name another place"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"; name a place that may be {done}"
    return ""


def _shown(path: Path) -> str:
    return printable(str(path))


# the part that pytest-benchmark wrote first


def benchmark_entries(record: TestRecord) -> list[dict[str, Any]]:
    """Return what pytest-benchmark's JSON would say of each measurement that has samples, in seconds."""
    head, bracket, parameters = record.nodeid.partition("[")
    name = head.rsplit("::", 1)[-1] + bracket + parameters
    return [
        {
            "group": None,
            "name": name + suffix,
            "fullname": record.nodeid + suffix,
            "params": record.params or None,
            "param": parameters.removesuffix("]") if bracket else None,
            "extra_info": record.extra_info,
            "options": _options(item.timing),
            "stats": sample_stats([sample / 1e6 for sample in item.timing.samples_us]),
        }
        for item, suffix in zip(record.measurements, _suffixes(record.measurements), strict=True)
        if item.timing.measured
    ]


def _suffixes(measurements: Sequence[Measurement]) -> list[str]:
    """Return what tells a test's measurements apart: nothing for one of its own, else its label, example and number."""
    if len(measurements) == 1 and not measurements[0].example:
        return [""]
    suffixes: dict[str, None] = {}
    for item in measurements:
        suffix = f" {item.timing.label}" + (f" ({item.example})" if item.example else "")
        number, numbered = 1, suffix
        while numbered in suffixes:
            number += 1
            numbered = f"{suffix} #{number}"
        suffixes[numbered] = None
    return list(suffixes)


def _options(timing: Timing) -> dict[str, Any]:
    return {
        "timer": timing.timer,
        "cache": timing.cache,
        "device": timing.device,
        "min_rounds": timing.reps,
        "warmup": timing.warmup_calls > 0,
    }


def sample_stats(data: Sequence[float]) -> dict[str, Any]:
    """Return pytest-benchmark's statistics of samples, by its names and its definitions; at least one sample."""
    ordered, rounds, total = sorted(data), len(data), math.fsum(data)
    mean = total / rounds
    stddev = math.sqrt(math.fsum((sample - mean) ** 2 for sample in data) / (rounds - 1)) if rounds > 1 else 0
    q1, q3 = _quartiles(ordered)
    iqr = q3 - q1
    low, high = q1 - 1.5 * iqr, q3 + 1.5 * iqr
    iqr_outliers = _outside(ordered, low, high)
    stddev_outliers = _outside(ordered, mean - stddev, mean + stddev)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": rounds,
        "median": statistics.median(ordered),
        "iqr": iqr,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": iqr_outliers,
        "stddev_outliers": stddev_outliers,
        "outliers": f"{stddev_outliers};{iqr_outliers}",
        "ld15iqr": ordered[bisect_left(ordered, low)],
        "hd15iqr": ordered[bisect_right(ordered, high) - 1],
        "ops": rounds / total if total else 0,
        "total": total,
        "data": data,
        "iterations": 1,
    }


def _quartiles(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the outer quartiles: medians of the halves, of an odd number between those with and without the middle."""
    rounds = len(ordered)
    if rounds == 1:
        return ordered[0], ordered[0]
    if rounds % 2 == 0:
        return statistics.median(ordered[: rounds // 2]), statistics.median(ordered[rounds // 2 :])
    n = rounds // 4
    if rounds % 4 == 1:
        return (0.25 * ordered[n - 1] + 0.75 * ordered[n]), (0.75 * ordered[3 * n] + 0.25 * ordered[3 * n + 1])
    return (0.75 * ordered[n] + 0.25 * ordered[n + 1]), (0.25 * ordered[3 * n + 1] + 0.75 * ordered[3 * n + 2])


def _outside(ordered: Sequence[float], low: float, high: float) -> int:
    return bisect_left(ordered, low) + len(ordered) - bisect_right(ordered, high)


# reading


def read_run(path: Path) -> SavedRun:
    """Read a run from a file.

    Raises BadFile, with one sentence, for a file that is missing, too large, damaged, not one of ours, or newer.
    """
    data = _read(path)
    try:
        with _without_collecting():
            file = _decode(data)
            _check(file)
    except BadFile as error:
        raise BadFile(f"{_shown(path)} {error}") from error.__cause__
    return SavedRun(
        records=file.gpu_bench.records,
        datetime=file.datetime,
        name=file.gpu_bench.name,
        version=file.gpu_bench.version,
        commit_info=file.commit_info,
        machine_info=file.machine_info,
        settings=file.gpu_bench.settings,
    )


def _read(path: Path) -> bytes:
    """Return what is in a file, having looked at its size and at its first characters before the rest is read."""
    with _telling_why(path, "read"):
        facts = os.stat(path)
        if stat.S_ISDIR(facts.st_mode):
            raise BadFile(f"{_shown(path)} is a folder: name a file in it")
        if not stat.S_ISREG(facts.st_mode):
            raise BadFile(f"{_shown(path)} is not a file but a pipe or a device: save what comes from it first")
        if facts.st_size > MOST_BYTES:
            size, most = format_bytes(facts.st_size), format_bytes(MOST_BYTES)
            raise BadFile(f"{_shown(path)} is too large to be a saved run: {size}, and {most} are read at most")
        with open(path, "rb") as file:
            start = file.read(4096)
            _check_start(start, path)
            file.seek(0)
            return file.read()


def _check_start(start: bytes, path: Path) -> None:
    if not start:
        raise BadFile(f"{_shown(path)} is empty: save the run again")
    text = start.lstrip(b" \t\r\n")
    if b"\0" in start or start.startswith((b"\x1f\x8b", b"PK\x03\x04")):
        raise BadFile(f"{_shown(path)} is not text: a saved run is a JSON file, not a binary or packed one")
    if text and not text.startswith((b"{", b"[")):
        raise BadFile(f"{_shown(path)} is not JSON: name a file that --gpu-bench-save or --gpu-bench-json wrote")


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Keep the garbage collector from looking, again and again, at what is being decoded: it takes twice as long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _decode(data: bytes) -> File:
    """Decode a file; raise BadFile with the rest of a sentence that begins with its name."""
    try:
        try:
            file = msgspec.json.decode(data, type=File)
        except msgspec.ValidationError as error:
            return _decode_other(data, error)
        return file if file.gpu_bench.schema == SCHEMA else _decode_other(data, None)
    except msgspec.ValidationError as error:
        raise BadFile(f"has a field that is not as it should be: {error}; save the run again") from error
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            what = f"is cut off after {format_bytes(len(data))}: it was copied or written only in part"
        else:
            what = f"is damaged: {error}"
        raise BadFile(f"{what}; save the run again, or copy it again") from error
    except UnicodeDecodeError as error:
        raise BadFile("is damaged: its text is not UTF-8; save the run again, or copy it again") from error
    except RecursionError as error:
        raise BadFile("is damaged: it is nested too deeply to be a saved run; save the run again") from error


def _decode_other(data: bytes, found: msgspec.ValidationError | None) -> File:
    """Decode a file of an older schema; raise BadFile for a foreign or newer one, else what was found."""
    schema = _schema(data)
    if schema > SCHEMA:
        raise BadFile(
            f"was written by a newer pytest-gpubench (schema {schema}, this one reads up to {SCHEMA}): update it"
        )
    if schema == SCHEMA and found is not None:
        raise found
    content = msgspec.json.decode(data)
    for step in range(schema, SCHEMA):
        if step not in MIGRATIONS:
            raise BadFile(f"has schema {schema}, which no pytest-gpubench wrote: save the run again")
        try:
            content = MIGRATIONS[step](content)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise BadFile(f"is damaged: as schema {schema} it lacks what belongs there; save the run again") from error
    return msgspec.convert(content, type=File)


def _schema(data: bytes) -> int:
    try:
        outline = msgspec.json.decode(data, type=Outline)
    except msgspec.ValidationError:
        raise BadFile("is JSON but not a saved run: it is a list where an object is expected") from None
    if isinstance(outline.gpu_bench, msgspec.UnsetType):
        raise BadFile(_foreign(outline))
    try:
        schema = msgspec.json.decode(outline.gpu_bench, type=BlockOutline).schema
    except msgspec.ValidationError as error:
        raise BadFile(
            "has a field that is not as it should be: `$.gpu_bench` is no object; save the run again"
        ) from error
    if not isinstance(schema, int) or isinstance(schema, bool):
        shown = printable(repr(schema))[:40]
        raise BadFile(
            f"has no schema that can be read: `$.gpu_bench.schema` is {shown}, not a whole number; save the run again"
        )
    return schema


def _foreign(outline: Outline) -> str:
    if isinstance(outline.benchmarks, msgspec.UnsetType) or isinstance(outline.machine_info, msgspec.UnsetType):
        return "is JSON but not a saved run: it has no `gpu_bench` block; name a file that --gpu-bench-save wrote"
    return (
        "was written by pytest-benchmark, not by pytest-gpubench: it has no `gpu_bench` block,"
        " and so no kernels, clocks or devices to compare by; name a file that --gpu-bench-save wrote"
    )


def _check(file: File) -> None:
    """Raise BadFile for numbers that no measurement gives."""
    for r, record in enumerate(file.gpu_bench.records):
        for m, measurement in enumerate(record.measurements):
            wrong = _wrong_number(measurement)
            if wrong:
                field = f"`$.gpu_bench.records[{r}].measurements[{m}].{wrong}"
                raise BadFile(f"has a number that cannot have been measured: {field}; save the run again")


def _wrong_number(measurement: Measurement) -> str | None:
    """Return the path and value of a time, or ratio of times, that is not above 0; None where all are."""
    timing, speedup = measurement.timing, measurement.speedup
    if timing.samples_us and not min(timing.samples_us) > 0:
        index = next(index for index, sample in enumerate(timing.samples_us) if not sample > 0)
        return f"timing.samples_us[{index}]` is {timing.samples_us[index]:g}, not above 0"
    for name in ("ratio", "reference_us"):
        if speedup is not None and not getattr(speedup, name) > 0:
            return f"speedup.{name}` is {getattr(speedup, name):g}, not above 0"
    return None


# the folders


@dataclass(frozen=True)
class Stored:
    """A saved run in a storage folder, as its file's name tells it; nothing of it has been read."""

    path: Path
    device: str
    """The name of the folder: the GPU model's, with hyphens for what does not fit a file's name."""
    number: int
    """Counted from 1 in each device's folder."""
    name: str
    """What it was saved as; of one that was given no name, the commit and the time."""


class Storage:
    """The folder that runs are saved in, with one folder for each GPU model.

    root: made when something is saved for the first time, with a `.gitignore` that keeps it out of the repository.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def save(self, run: SavedRun, name: str = "") -> Path:
        """Write a run into the folder of its GPU model under the next number, and return where.

        name: any text; empty for the commit and the time. Of a run over several GPU models each is saved on its own,
        and the first one's file is returned. Raises BadFile where nothing was measured or it cannot be written.
        """
        return self.save_each(run, name)[0]

    def save_each(self, run: SavedRun, name: str = "") -> list[Path]:
        """Write a run as `save` does, and return the files of all GPU models, in the order of their records."""
        if not run.records:
            raise BadFile(f"there is nothing to save in {_shown(self.root)}: no test measured anything")
        by_device: dict[str, list[TestRecord]] = {}
        for record in run.records:
            by_device.setdefault(device_folder(record.device.name), []).append(record)
        with _telling_why(self.root, "written"):
            self._make_root()
        return [
            self._save_one(msgspec.structs.replace(run, records=tuple(records), name=name), device)
            for device, records in by_device.items()
        ]

    def runs(self, device: str | None = None) -> list[Stored]:
        """Return the saved runs, oldest first; device: of this GPU model or folder only.

        Raises BadFile where the folder cannot be read. A folder that is not there holds none.
        """
        wanted = None if device is None else device_folder(device)
        with _telling_why(self.root, "read"):
            if not self.root.exists():
                return []
            folders = sorted(path for path in self.root.iterdir() if path.is_dir())
            aged = [pair for folder in folders if wanted in (None, folder.name) for pair in _by_age(_stored_in(folder))]
        return [stored for _, stored in sorted(aged, key=lambda pair: pair[0])]

    def find(self, which: str) -> list[Path]:
        """Return the newest matching run of each device.

        which: `latest`, a name that was saved, a number as in `3` or `0003`, or the path of a file; the first of these
        that there is. Raises BadFile where there is none, naming what there is.
        """
        stored = self.runs()
        number = int(which) if which.isascii() and which.isdigit() else None
        part = file_part(which)
        matches = (
            [one for one in stored if which == "latest"]
            or [one for one in stored if _part_of(one.path) == part]
            or [one for one in stored if one.number == number]
        )
        if matches:
            return list({one.device: one.path for one in matches}.values())
        if os.path.isfile(which):
            return [Path(which)]
        raise BadFile(self._not_there(which, stored))

    def abandoned(self) -> list[Path]:
        """Return what runs that were killed while they were saved left behind in its folders.

        Raises BadFile where a folder cannot be read.
        """
        with _telling_why(self.root, "read"):
            if not self.root.exists():
                return []
            folders = sorted(path for path in self.root.iterdir() if path.is_dir())
            return [path for folder in folders for path in abandoned(folder)]

    def _not_there(self, which: str, stored: Sequence[Stored]) -> str:
        if not stored:
            return (
                f"there is no saved run and no file {printable(which)!r}; in {_shown(self.root)} nothing is saved yet:"
                " save one with --gpu-bench-save=NAME"
            )
        names = list(dict.fromkeys(f"{one.number:04d} ({printable(one.name)})" for one in reversed(stored)))
        more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
        return (
            f"there is no saved run and no file {printable(which)!r}; {_shown(self.root)} has"
            f" {count(len(stored), 'run')}: {', '.join([*names[:MOST_NAMED], *more])}"
        )

    def _make_root(self) -> None:
        """Make the folder, and with it, but never later, what keeps it out of the repository."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.root.mkdir()
        except FileExistsError:
            if not self.root.is_dir():
                raise
            return
        (self.root / ".gitignore").write_text("*\n")

    def _save_one(self, run: SavedRun, device: str) -> Path:
        data = encode_run(run)
        part = file_part(run.name) or automatic_name(run)
        folder = self.root / device
        with _telling_why(folder, "written"):
            folder.mkdir(exist_ok=True)
            number, temporary, file = _claim_number(folder)
            with file:
                target = folder / f"{number:04d}_{part}.json"
                _put(data, file, temporary, target)
            _remove_abandoned(target, number)
        return target


def _claim_number(folder: Path) -> tuple[int, Path, BinaryIO]:
    """Return the next number, and the file, open for writing, that is to become the run's and keeps it meanwhile.

    Somebody else may have claimed a number, saved and given up the claim between our look at the folder and our claim:
    one look after it is therefore needed, and enough, since a saved file is there before its claim is gone.
    """
    number = _next_number(folder)
    while True:
        claim = folder / f".{number:04d}.tmp"
        try:
            file = open(claim, "xb")  # noqa: SIM115 # the caller closes it
        except FileExistsError:  # somebody is writing, or was killed while writing
            number += 1
            continue
        free = _next_number(folder)
        if free <= number:
            return number, claim, file
        file.close()
        claim.unlink()
        number = free


def _remove_abandoned(saved: Path, below: int = 0) -> None:
    """Remove what killed processes left beside a file that was just saved, by whose time their age is told.

    below: also the claims of smaller numbers than this. Nobody claims those anew, with a run of this number there: no
    claim can be taken away from somebody who has just made it.
    """
    with suppress(OSError):  # the run is saved, whatever becomes of the rest
        for path in abandoned(saved.parent, saved.stat().st_mtime):
            number = claimed_number(path)
            if number is None or number < below:
                path.unlink(missing_ok=True)


def abandoned(folder: Path, now_s: float | None = None) -> list[Path]:
    """Return the temporary files that killed processes left in a folder, told by name and age.

    now_s: seconds since the epoch; None is the clock of this host. Raises OSError where the folder cannot be read.
    """
    now_s = time.time() if now_s is None else now_s
    return sorted(path for path in folder.iterdir() if is_temporary(path.name) and _age_s(path, now_s) > ABANDONED_S)


def is_temporary(name: str) -> bool:
    """Tell whether a file's name is one that runs have while they are written."""
    return re.fullmatch(r"\.(gpu-bench-[0-9a-f]{16}|\d{4,})\.tmp", name, re.ASCII) is not None


def claimed_number(path: Path) -> int | None:
    """Return the number that a temporary file keeps for a run; None for one that keeps none."""
    return int(path.stem[1:]) if path.stem[1:].isdigit() else None


def _age_s(path: Path, now_s: float) -> float:
    """Return how long ago a file was written to; less than nothing for what is gone, or is no file of its own."""
    try:
        facts = path.lstat()
    except OSError:
        return -1.0
    return now_s - facts.st_mtime if stat.S_ISREG(facts.st_mode) else -1.0


def _next_number(folder: Path) -> int:
    return max((one.number for one in _stored_in(folder)), default=0) + 1


def _stored_in(folder: Path) -> list[Stored]:
    """Return a device's runs, oldest first."""
    found = [
        Stored(path=path, device=folder.name, number=int(match[1]), name=unquote(match[2]))
        for path in folder.iterdir()
        if (match := re.fullmatch(r"(\d+)_(.+)\.json", path.name, re.DOTALL))
    ]
    return sorted(found, key=lambda one: (one.number, one.path.name))


def _by_age(stored: Sequence[Stored]) -> list[tuple[tuple[float, str, int, str], Stored]]:
    """Return a device's runs with what orders them among other devices': the time, never against the numbers.

    Files that were copied have times of their own; the numbers say which came first.
    """
    pairs, latest = [], 0.0
    for one in stored:
        with suppress(FileNotFoundError):  # pruned since we looked
            latest = max(latest, one.path.stat().st_mtime)
            pairs.append(((latest, one.device, one.number, one.path.name), one))
    return pairs


def _part_of(path: Path) -> str:
    return path.name.partition("_")[2].removesuffix(".json")


def file_part(name: str) -> str:
    """Return a name as part of a file's name: what does not fit is written as in addresses, `a/b` as `a%2Fb`.

    Different names give different parts; one that is too long is cut and ends in a hash of the whole.
    """
    text = text_of(unicodedata.normalize("NFC", name.strip()))
    pieces = [each if re.match(r"[\w.+=@ -]", each) else _escaped(each) for each in text]
    part = "".join(pieces)
    if len(part.encode()) <= LONGEST_PART:
        return part
    digest = hashlib.sha256(part.encode()).hexdigest()[:16]
    while len("".join(pieces).encode()) > LONGEST_PART - len(digest) - 1:
        pieces = pieces[: min(len(pieces) - 1, LONGEST_PART)]
    return f"{''.join(pieces)}-{digest}"


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def device_folder(device: str) -> str:
    """Return the name of a GPU model's folder: `NVIDIA-H200`."""
    return re.sub(r"[^\w.]+", "-", text_of(device)).strip("-.")[:80] or "unknown"


def automatic_name(run: SavedRun) -> str:
    """Return the name of a run that was given none: its commit, its time in UTC and whether files differed."""
    commit = re.sub(r"\W", "", run.commit_info.id or "")[:8] or "unversioned"
    try:
        ended = datetime.fromisoformat(run.datetime.replace("Z", "+00:00"))
    except ValueError:
        ended = datetime.now(timezone.utc)
    moment = ended.astimezone(timezone.utc).strftime("%Y%m%d_%H%M%S")
    return f"{commit}_{moment}" + ("_dirty" if run.commit_info.dirty else "")
