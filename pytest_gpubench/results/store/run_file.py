"""The file of a run: a block of our own beside pytest-benchmark's form; one that is damaged or no run is refused."""

import math
import statistics
from bisect import bisect_left, bisect_right
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.files import UNREADABLE, explaining_os_errors, shown, write_file
from pytest_gpubench.results.model import LONGEST_US, CommitInfo, SavedRun, TestRecord, plain
from pytest_gpubench.units import numbered, printable

SCHEMA = 3
"""The version of the `gpu_bench` block: a new one where readers of the last would misread a file."""
PYTEST_BENCHMARK = "5.3.1"
"""The version of pytest-benchmark whose form `benchmarks` is."""


class GpuBenchBlock(msgspec.Struct, kw_only=True):
    """Hold the block that only this plugin reads."""

    schema: int
    version: str = ""
    name: str = ""
    settings: dict[str, str] = {}
    records: tuple[TestRecord, ...]
    earlier: tuple[TestRecord, ...] = ()
    left_out: tuple[str, ...] = ()


class File(msgspec.Struct, kw_only=True):
    """Hold the parts of a file that are read; `benchmarks` adds nothing to the block, and is skipped."""

    machine_info: dict[str, Any]
    commit_info: CommitInfo
    datetime: str
    gpu_bench: GpuBenchBlock


def encode_run(run: SavedRun) -> bytes:
    """Return a run as the JSON of a file; values of the user's that JSON has no form for are written as text."""
    records, earlier = (
        tuple(
            msgspec.structs.replace(record, extra_info=plain(record.extra_info)) if record.extra_info else record
            for record in found
        )
        for found in (run.records, run.earlier)
    )
    content = {
        "machine_info": plain(run.machine_info),
        "commit_info": run.commit_info,
        "benchmarks": [entry for record in records for entry in benchmark_entries(record)],
        "datetime": run.datetime,
        "version": PYTEST_BENCHMARK,
        "gpu_bench": GpuBenchBlock(
            schema=SCHEMA, **_own_fields(msgspec.structs.replace(run, records=records, earlier=earlier))
        ),
    }
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:  # a lone surrogate somewhere: the name of a file that is not UTF-8
        return msgspec.json.encode(plain(msgspec.to_builtins(content)))


def write_run(run: SavedRun, path: Path) -> None:
    """Write a run to a file, whole or not at all; raise BadFile."""
    write_file(encode_run(run), path)


def read_run(path: Path) -> SavedRun:
    """Read a run from a file.

    Raises BadFile, with one sentence, for a file that is missing, damaged, not one of ours, or newer.
    """
    with explaining_os_errors(path, "read"):
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise BadFile(f"{shown(path)} is not a file: name one that --gpu-bench-save or --gpu-bench-json wrote")
        data = path.read_bytes().removeprefix(BOM_UTF8)  # some editors and shells write one
    try:
        file = _decode_file(data, path.suffix == ".py")
        _check((*file.gpu_bench.records, *file.gpu_bench.earlier))
    except BadFile as error:
        raise BadFile(f"{shown(path)} {error}") from error.__cause__
    about = msgspec.structs.asdict(file)
    return SavedRun(**_own_fields(about.pop("gpu_bench")), **about)


def _own_fields(run: SavedRun | GpuBenchBlock) -> dict[str, Any]:
    return {name: getattr(run, name) for name in GpuBenchBlock.__struct_fields__ if name != "schema"}


def _check(records: Iterable[TestRecord]) -> None:
    """Raise BadFile for a time, or ratio of times, that is not above 0 or too long."""
    for record in records:
        for item in record.measurements:
            ratios = (item.speedup.ratio, item.speedup.reference_us) if item.speedup else ()
            wrong = [each for each in (*item.timing.samples_us, *ratios) if not 0 < each < LONGEST_US]
            if wrong:
                what = printable(f"{wrong[0]:g} for {item.timing.label} in {record.nodeid}")
                raise BadFile(f"has a number that cannot have been measured: {what}; save the run again")


def _decode_file(data: bytes, is_source: bool) -> File:
    """Decode a file; raise BadFile with the rest of a sentence that begins with its name."""
    try:
        block = msgspec.json.decode(data, type=_Outline).gpu_bench
        if block is None:
            words = "has no `gpu_bench` block, as a file of pytest-benchmark has none"
            raise BadFile(f"{words}: name a file that --gpu-bench-save wrote")
        if block.schema > SCHEMA:
            words = f"was written by a newer pytest-gpubench (schema {block.schema}, this one reads {SCHEMA})"
            raise BadFile(f"{words}: update it")
        if block.schema < SCHEMA:
            words = f"has schema {block.schema}, and this pytest-gpubench reads {SCHEMA}"
            raise BadFile(f"{words}: save the run again")
        return msgspec.json.decode(data, type=File)
    except msgspec.ValidationError as error:
        raise BadFile(f"has a field that is not as it should be: {error}; save the run again") from error
    except UNREADABLE as error:
        if is_source:
            raise BadFile("is Python source, and no saved run: write latest for the newest one") from None
        raise BadFile(f"is damaged, or no saved run: {error}; save or copy it again, or name another") from error


class _BlockOutline(msgspec.Struct):
    schema: int


class _Outline(msgspec.Struct):
    gpu_bench: _BlockOutline | None = None


# pytest-benchmark's form


def benchmark_entries(record: TestRecord) -> list[dict[str, Any]]:
    """Return pytest-benchmark's entry, in seconds, for each measurement that has samples.

    The name of one that is not alone in its test ends in its label, its example and its number.
    """
    head, bracket, parameters = record.nodeid.partition("[")
    name = head.rsplit("::", 1)[-1] + bracket + parameters
    items = record.measurements
    labels = (f" {item.timing.label}" + (f" ({item.example})" if item.example else "") for item in items)
    suffixes = [""] if len(items) == 1 and not items[0].example else numbered(labels, " #")
    return [
        {
            "group": None,
            "name": name + suffix,
            "fullname": record.nodeid + suffix,
            "params": record.params or None,
            "param": parameters.removesuffix("]") if bracket else None,
            "extra_info": record.extra_info,
            "options": {
                "timer": item.timing.timer,
                "cache": item.timing.cache,
                "device": item.timing.device,
                "min_rounds": item.timing.reps,
                "warmup": item.timing.warmup_calls > 0,
            },
            "stats": sample_stats([sample / 1e6 for sample in item.timing.samples_us]),
        }
        for item, suffix in zip(record.measurements, suffixes, strict=True)
        if item.timing.measured
    ]


def sample_stats(data: Sequence[float]) -> dict[str, Any]:
    """Return pytest-benchmark's statistics of samples, by its names and its definitions; at least one sample."""
    ordered, rounds, total = sorted(data), len(data), math.fsum(data)
    mean = total / rounds
    stddev = math.sqrt(math.fsum((sample - mean) ** 2 for sample in data) / (rounds - 1)) if rounds > 1 else 0
    q1, q3 = _quartiles(ordered)
    iqr = q3 - q1
    low, high = q1 - 1.5 * iqr, q3 + 1.5 * iqr
    iqr_outliers, stddev_outliers = (
        bisect_left(ordered, least) + rounds - bisect_right(ordered, most)
        for least, most in ((low, high), (mean - stddev, mean + stddev))
    )
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
