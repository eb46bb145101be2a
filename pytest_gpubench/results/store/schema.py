"""The content of a run's file: a block of our own beside pytest-benchmark's form."""

from typing import Any

import msgspec

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.model import CommitInfo, SavedRun, TestRecord, plain
from pytest_gpubench.results.store.benchmarks import PYTEST_BENCHMARK, benchmark_entries
from pytest_gpubench.units import format_bytes, printable

__tracebackhide__ = True

SCHEMA = 3
"""The version of the `gpu_bench` block: a new one where readers of the last would misread a file."""


class Block(msgspec.Struct, kw_only=True):
    """Hold the block that only this plugin reads."""

    schema: int
    version: str = ""
    name: str = ""
    settings: dict[str, str] = {}
    records: tuple[TestRecord, ...]
    earlier: tuple[TestRecord, ...] = ()


class File(msgspec.Struct, kw_only=True):
    """Hold the parts of a file that are read; `benchmarks` adds nothing to the block, and is skipped."""

    machine_info: dict[str, Any]
    commit_info: CommitInfo
    datetime: str
    gpu_bench: Block


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
        "gpu_bench": Block(
            schema=SCHEMA,
            version=run.version,
            name=run.name,
            settings=run.settings,
            records=records,
            earlier=earlier,
        ),
    }
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:  # a lone surrogate somewhere: the name of a file that is not UTF-8
        return msgspec.json.encode(plain(msgspec.to_builtins(content)))


def decode(data: bytes) -> File:
    """Decode a file; raise BadFile with the rest of a sentence that begins with its name."""
    try:
        try:
            file = msgspec.json.decode(data, type=File)
        except msgspec.ValidationError:
            _refuse_other_schema(data)
            raise
        if file.gpu_bench.schema != SCHEMA:
            _refuse_other_schema(data)
        return file
    except msgspec.ValidationError as error:
        raise BadFile(f"has a field that is not as it should be: {error}; save the run again") from error
    except msgspec.DecodeError as error:
        what = f"is damaged: {error}"
        if "truncated" in str(error):
            what = f"is cut off after {format_bytes(len(data))}: it was copied or written only in part"
        raise BadFile(f"{what}; save the run again, or copy it again") from error
    except UnicodeDecodeError as error:
        raise BadFile("is damaged: its text is not UTF-8; save the run again, or copy it again") from error
    except RecursionError as error:
        raise BadFile("is damaged: it is nested too deeply to be a saved run; save the run again") from error


# other schemas


class _Outline(msgspec.Struct):
    """Hold as much of a file as tells its kind."""

    gpu_bench: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    benchmarks: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    machine_info: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _BlockOutline(msgspec.Struct):
    """Hold the schema of a block, whatever it is."""

    schema: Any = None


def _refuse_other_schema(data: bytes) -> None:
    """Raise BadFile for a foreign file, and for one of another schema."""
    schema = _schema(data)
    if schema > SCHEMA:
        raise BadFile(f"was written by a newer pytest-gpubench (schema {schema}, this one reads {SCHEMA}): update it")
    if schema < SCHEMA:
        raise BadFile(f"has schema {schema}, and this pytest-gpubench reads {SCHEMA}: save the run again")


def _schema(data: bytes) -> int:
    try:
        outline = msgspec.json.decode(data, type=_Outline)
    except msgspec.ValidationError:
        raise BadFile("is JSON but not a saved run: it is a list where an object is expected") from None
    if isinstance(outline.gpu_bench, msgspec.UnsetType):
        raise BadFile(_foreign(outline))
    try:
        schema = msgspec.json.decode(outline.gpu_bench, type=_BlockOutline).schema
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


def _foreign(outline: _Outline) -> str:
    if isinstance(outline.benchmarks, msgspec.UnsetType) or isinstance(outline.machine_info, msgspec.UnsetType):
        return "is JSON but not a saved run: it has no `gpu_bench` block; name a file that --gpu-bench-save wrote"
    return (
        "was written by pytest-benchmark, not by pytest-gpubench: it has no `gpu_bench` block,"
        " and so no kernels, clocks or devices to compare by; name a file that --gpu-bench-save wrote"
    )
