"""What a file has in it: what only this plugin reads, beside what has pytest-benchmark's form."""

from typing import Any

import msgspec

from pytest_gpubench.results.model import CommitInfo, SavedRun, TestRecord, plain
from pytest_gpubench.results.store.benchmarks import PYTEST_BENCHMARK, benchmark_entries

__tracebackhide__ = True

SCHEMA = 2
"""Of the `gpu_bench` block; it grows when a reader of the one before would misread it."""


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
