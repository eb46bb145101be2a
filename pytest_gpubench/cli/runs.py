"""`pytest-gpubench list`: the runs that were saved."""

import argparse
from collections import Counter

from pytest_gpubench.cli.arguments import add_storage
from pytest_gpubench.cli.output import complain, table, write
from pytest_gpubench.cli.prune import add_pruning, prune
from pytest_gpubench.cli.saved import commit_text, list_stored, nothing_saved, read_each
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.report.layout import Column
from pytest_gpubench.report.rows import verdicts_of
from pytest_gpubench.results.model import Outcome, SavedRun
from pytest_gpubench.results.provenance import minute_text
from pytest_gpubench.results.sessions import count_sessions

ABOUT = "list the saved runs, oldest first, or remove old ones"
EXAMPLES = """list --device h200
list --prune --keep 30 --dry-run
list --prune --older-than 90d
list --prune --keep 10 --older-than 4w --named"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_pruning(parser)
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write a line for each saved run, or remove old ones; 2 where one of them cannot be read, after the others."""
    if arguments.prune:
        return prune(arguments)
    if any((arguments.keep, arguments.older_than, arguments.named, arguments.dry_run)):
        raise BadRequest("--keep, --older-than, --named and --dry-run say what --prune removes: give it too")
    errors: list[str] = []
    found = list(read_each(list_stored(arguments), errors))
    runs = [run for _, run in found]
    sessions = [count_sessions(run) for run in runs]
    columns = [
        Column("Number", [f"{stored.number:04}" for stored, _ in found]),
        Column("Name", [run.name or "-" for run in runs], least=12),
        Column("Date", [minute_text(run.datetime) for run in runs]),
        Column("Device", [_devices(run) or "-" for run in runs], least=12),
        Column("Commit", [commit_text(run) or "-" for run in runs], rank=1),
        Column("Tests", [str(len(run.records)) for run in runs], right=True),
        *([Column("Sessions", list(map(str, sessions)), right=True)] if max(sessions, default=1) > 1 else []),
        Column("Limits", [_outcomes(run) or "-" for run in runs], least=12, rank=2),
    ]
    write("\n".join(table(columns)) if runs or errors else nothing_saved(arguments))
    complain("list", errors)
    return 2 if errors else 0


def _devices(run: SavedRun) -> str:
    return ", ".join(dict.fromkeys(record.device.name for record in run.records))


def _outcomes(run: SavedRun) -> str:
    found = Counter(each.outcome for each in verdicts_of(run.records))
    return ", ".join(f"{found[outcome]} {outcome.value}" for outcome in Outcome if found[outcome])
