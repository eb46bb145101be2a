"""The content of a file of any schema: old ones are migrated, newer ones and what is not ours are refused."""

from collections.abc import Callable
from typing import Any

import msgspec

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.model import VALIDITY
from pytest_gpubench.results.store.content import SCHEMA, File
from pytest_gpubench.units import format_bytes, printable

__tracebackhide__ = True


def _split_limits(content: dict[str, Any]) -> dict[str, Any]:
    """Migrate schema 1, whose verdicts have the limit in one text: `max_time_us=40`."""
    for record in content["gpu_bench"]["records"]:
        for measurement in record.get("measurements", ()):
            for verdict in measurement.get("verdicts", ()):
                limit = verdict.pop("limit")
                kind, equals, asked = limit.partition("=")
                verdict |= {"kind": kind, "asked": asked} if equals else {"kind": VALIDITY, "asked": limit}
    return content


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _split_limits}
"""By schema, what turns a whole file of it into one of the next."""


class Outline(msgspec.Struct):
    """Hold as much of a file as tells what kind of file it is."""

    gpu_bench: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    benchmarks: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    machine_info: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class BlockOutline(msgspec.Struct):
    """Hold the schema of a block, whatever it is."""

    schema: Any = None


def decode(data: bytes) -> File:
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
