"""`pytest-gpubench merge`: the shards of a suite, or its runs on several hosts, as one run."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pytest_gpubench.cli.arguments import RUN_HELP, add_output, add_storage
from pytest_gpubench.cli.output import write
from pytest_gpubench.cli.saved import storage_of
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.model import CommitInfo, SavedRun, TestRecord
from pytest_gpubench.results.store import read_run, write_run
from pytest_gpubench.units import count, printable

ABOUT = "make one run of several: shards, or hosts"
EXAMPLES = """merge shard1.json shard2.json -o all.json
merge h200.json a100.json -o nightly.json --name nightly
merge first.json again.json -o all.json --keep last"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("which", nargs="+", metavar="RUN", help=RUN_HELP)
    add_output(parser, "-o", "--output", required=True, help="the file to write")
    help = "of a test measured twice on one GPU model, keep the result of the RUN named first or last (default: refuse)"
    parser.add_argument("--keep", choices=("first", "last"), help=help)
    parser.add_argument("--any-commit", action="store_true", help="merge runs of different commits, too")
    parser.add_argument("--name", default="", help="the name of the new run")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the new run, and say what is in it; 0."""
    paths = [path for which in arguments.which for path in storage_of(arguments).find(which)]
    sources = [(path, read_run(path)) for path in dict.fromkeys(paths)]
    runs = [run for _, run in sources]
    records = _merge_records(sources, arguments.keep)
    own = set(map(id, records))
    tests = [{record.key for record in run.records if id(record) in own} for run in runs]
    names = dict.fromkeys(name for run in runs for name in run.settings)
    hosts = dict.fromkeys(str(run.machine_info["node"]) for run in runs if "node" in run.machine_info)
    machines = [run.machine_info.items() for run in runs]
    merged = SavedRun(
        records=tuple(records),
        earlier=tuple(each for run, kept in zip(runs, tests, strict=True) for each in run.earlier if each.key in kept),
        datetime=max(run.datetime for run in runs),
        name=arguments.name,
        version=runs[-1].version,
        commit_info=_merge_commits(sources, arguments.any_commit),
        machine_info={
            **dict(fact for fact in machines[0] if all(fact in other for other in machines)),
            **({"node": ", ".join(hosts)} if hosts else {}),
        },
        settings={name: " / ".join(dict.fromkeys(run.settings.get(name, "default") for run in runs)) for name in names},
    )
    write_run(merged, Path(arguments.output))
    write(printable(f"{arguments.output}: {count(len(records), 'test')} of {count(len(sources), 'run')}"))
    return 0


def _merge_records(sources: Sequence[tuple[Path, SavedRun]], keep: str | None) -> list[TestRecord]:
    """Return the tests of all runs, in their order; repeats within one run stay.

    Raises BadRequest for a test that two of them measured, unless it is said which to keep.
    """
    kept: dict[tuple[str, str], tuple[Path, list[TestRecord]]] = {}
    for path, run in sources:
        for record in run.records:
            owner, records = kept.setdefault(record.key, (path, []))
            if owner == path:
                records.append(record)
            elif keep == "last":
                kept[record.key] = path, [record]
            elif keep is None:
                raise BadRequest(
                    f"{printable(record.nodeid)} was measured on {record.device.name} in {owner} and in {path}: "
                    f"choose with --keep=first or --keep=last"
                )
    return [record for _, records in kept.values() for record in records]


def _merge_commits(sources: Sequence[tuple[Path, SavedRun]], any_commit: bool) -> CommitInfo:
    """Return the commit of all runs; raise BadRequest where they are of several, unless they may be."""
    known = [(path, run.commit_info) for path, run in sources if run.commit_info.id]
    for path, commit in known[1:]:
        first_path, first = known[0]
        if commit.id != first.id and not any_commit:
            raise BadRequest(
                f"{first_path} is of commit {str(first.id)[:8]}, {path} of {str(commit.id)[:8]}: one run is of one "
                f"commit, unless --any-commit says otherwise"
            )
    if not known:
        return sources[0][1].commit_info
    last = known[-1][1]
    is_dirty = any(commit.dirty or commit.id != last.id for _, commit in known)
    return msgspec.structs.replace(last, dirty=is_dirty or last.dirty)
