"""`pytest-gpubench list`: the runs that were saved."""

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_gpubench.cli.output import table, write
from pytest_gpubench.cli.saved import add_parser, add_storage, commit_text, list_stored, nothing_saved, when
from pytest_gpubench.errors import BadFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_gpubench.report.layout import Column
    from pytest_gpubench.results.model import SavedRun
    from pytest_gpubench.results.store import Stored


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the parser of all."""
    parser = add_parser(commands, "list", "list the saved runs, oldest first", "list\nlist --device h200")
    add_storage(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write a line for each saved run; 2 where one of them cannot be read, after the others."""
    rows, errors = [], []
    for stored in list_stored(arguments):
        try:
            rows.append(row_of(stored))
        except BadFile as error:
            errors.append(str(error))
    write("\n".join(table(columns_of(rows))) if rows or errors else nothing_saved(arguments))
    for sentence in errors:
        print(f"pytest-gpubench list: {sentence}", file=sys.stderr)
    return 2 if errors else 0


def columns_of(rows: "Sequence[Sequence[str]]") -> "list[Column]":
    """Return the columns of the table."""
    from pytest_gpubench.report.layout import Column

    number, name, date, gpu, commit, tests, limits = zip(*rows, strict=True) if rows else [()] * 7
    return [
        Column("Number", number),
        Column("Name", name, least=12),
        Column("Date", date),
        Column("GPU", gpu, least=12),
        Column("Commit", commit, rank=1),
        Column("Tests", tests, right=True),
        Column("Limits", limits, least=12, rank=2),
    ]


def row_of(stored: "Stored") -> tuple[str, ...]:
    """Return what a line says of a saved run."""
    from pytest_gpubench.results.store import read_run

    run = read_run(stored.path)
    return (
        f"{stored.number:04}",
        run.name or "-",
        when(run),
        ", ".join(dict.fromkeys(record.device.name for record in run.records)) or "-",
        commit_text(run) or "-",
        str(len(run.records)),
        outcome_counts(run) or "-",
    )


def outcome_counts(run: "SavedRun") -> str:
    """Return how many limits were judged how, the worst of a measurement last."""
    from pytest_gpubench.results.model import Outcome

    found = Counter(each.outcome for record in run.records for item in record.measurements for each in item.verdicts)
    return ", ".join(f"{found[outcome]} {outcome.value}" for outcome in Outcome if found[outcome])
