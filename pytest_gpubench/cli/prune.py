"""`pytest-gpubench prune`: old runs, removed."""

import argparse
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pytest_gpubench.cli.arguments import Commands, add_parser, add_storage
from pytest_gpubench.cli.output import complain, write
from pytest_gpubench.cli.saved import list_stored, read_each
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.provenance import moment
from pytest_gpubench.settings.parsers import whole_number
from pytest_gpubench.units import count, printable

EXAMPLES = """prune --keep 30 --dry-run
prune --older-than 90d
prune --keep 10 --older-than 4w --named"""
UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@dataclass(frozen=True)
class Aged:
    """A saved run and its age."""

    path: Path
    device: str
    name: str
    """Empty for one that was given none."""
    ended: datetime


def add(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = add_parser(commands, "prune", "remove old runs; those that were given a name stay", EXAMPLES)
    parser.add_argument("--keep", metavar="N", help="keep the newest N of each device")
    parser.add_argument("--older-than", metavar="AGE", help="remove only what is older: 36h, 90d, 12w")
    parser.add_argument("--named", action="store_true", help="remove runs that were given a name, too")
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    add_storage(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Remove what is too old, and say what; 2 where a file cannot be removed, or its age is not known."""
    keep = _parse_keep(arguments.keep)
    oldest = None if arguments.older_than is None else datetime.now(timezone.utc) - parse_age(arguments.older_than)
    if keep is None and oldest is None:
        raise BadRequest("say what to remove: --keep N, --older-than AGE, or both")
    errors: list[str] = []
    aged = _read_ages(arguments, errors)
    old = [one.path for one in _beyond(aged, keep or 0, arguments.named) if oldest is None or one.ended < oldest]
    removed = [path for path in old if arguments.dry_run or _remove(path, errors)]
    verb = "would remove" if arguments.dry_run else "removed"
    lines = [f"{verb} {printable(str(path))}" for path in removed]
    write("\n".join([*lines, f"{verb} {count(len(removed), 'run')}" if removed else "nothing to remove"]))
    complain("prune", errors)
    return 2 if errors else 0


def _parse_keep(text: str | None) -> int | None:
    try:
        return None if text is None else whole_number(text)
    except ValueError as error:
        raise BadRequest(f"--keep={text}: {error}") from None


def parse_age(text: str) -> timedelta:
    """Parse an age in hours, days or weeks: 36h, 90d, 12w; raise BadRequest."""
    try:
        return int(text[:-1]) * UNITS[text[-1:]] if int(text[:-1]) >= 0 else UNITS[""]
    except (ValueError, KeyError, OverflowError):
        raise BadRequest(f"--older-than={text}: it must be a number of hours, days or weeks: 36h, 90d, 12w") from None


def _read_ages(arguments: argparse.Namespace, errors: list[str]) -> list[Aged]:
    """Return the saved runs with their ages; what cannot be read is added to errors, and kept."""
    unreadable: list[str] = []
    aged = []
    for stored, run in read_each(list_stored(arguments), unreadable):
        try:
            aged.append(Aged(stored.path, stored.device, run.name, moment(run.datetime)))
        except ValueError:
            unreadable.append(f"{stored.path}: it does not say when it ended")
    errors += [f"{sentence} (kept)" for sentence in unreadable]
    return aged


def _beyond(found: Iterable[Aged], keep: int, named: bool) -> list[Aged]:
    """Return the runs that are not among the newest of their device; those with a name count only if named."""
    folders: dict[str, list[Aged]] = defaultdict(list)
    for one in found:
        if named or not one.name:
            folders[one.device].append(one)
    return [one for runs in folders.values() for one in runs[: max(len(runs) - keep, 0)]]


def _remove(path: Path, errors: list[str]) -> bool:
    """Remove a file, and tell whether it is gone; why it is not is added to errors."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        errors.append(f"{path} cannot be removed: {error.strerror}")
        return False
    return True
