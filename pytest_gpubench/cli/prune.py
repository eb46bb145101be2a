"""`pytest-gpubench list --prune`: old runs, removed."""

import argparse
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pytest_gpubench.cli.arguments import checked
from pytest_gpubench.cli.output import complain, write
from pytest_gpubench.cli.saved import list_stored, read_each
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.provenance import moment
from pytest_gpubench.settings.parsers import whole_number, whole_number_or_zero
from pytest_gpubench.units import count, printable

UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def add_pruning(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of --prune."""
    number, age = checked(whole_number), checked(parse_age)
    group = parser.add_argument_group("removing old runs")
    group.add_argument("--prune", action="store_true", help="remove old runs; those that were given a name stay")
    group.add_argument("--keep", type=number, metavar="N", help="keep the newest N of each device")
    parser.add_argument("--older-than", type=age, metavar="AGE", help="remove only what is older: 36h, 90d, 12w")
    group.add_argument("--named", action="store_true", help="remove runs that were given a name, too")
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")


def prune(arguments: argparse.Namespace) -> int:
    """Remove what is too old, and say what; 2 where a file cannot be removed, or its age is not known."""
    if arguments.keep is None and arguments.older_than is None:
        raise BadRequest("--prune: say what to remove: --keep N, --older-than AGE, or both")
    errors: list[str] = []
    removed = [path for path in _old_runs(arguments, errors) if arguments.dry_run or _remove(path, errors)]
    verb = "would remove" if arguments.dry_run else "removed"
    lines = [f"{verb} {printable(str(path))}" for path in removed]
    nothing = "nothing to remove" if arguments.named else "nothing to remove; --named removes named runs, too"
    write("\n".join([*lines, f"{verb} {count(len(removed), 'run')}" if removed else nothing]))
    complain("list", errors)
    return 2 if errors else 0


def parse_age(text: str) -> timedelta:
    """Parse an age in hours, days or weeks: 36h, 90d, 12w."""
    try:
        return whole_number_or_zero(text[:-1]) * UNITS[text[-1:]]
    except (ValueError, KeyError, OverflowError):
        raise ValueError("it must be a number of hours, days or weeks: 36h, 90d, 12w") from None


def _old_runs(arguments: argparse.Namespace, errors: list[str]) -> list[Path]:
    """Return the runs to remove; what cannot be read is added to errors, and kept."""
    unreadable: list[str] = []
    by_device: dict[str, list[tuple[Path, datetime]]] = defaultdict(list)
    for stored, run in read_each(list_stored(arguments), unreadable):
        try:
            if arguments.named or not run.name:
                by_device[stored.device].append((stored.path, moment(run.datetime)))
        except ValueError:
            unreadable.append(f"{stored.path}: it does not say when it ended")
    errors += [f"{sentence} (kept)" for sentence in unreadable]
    beyond = [each for runs in by_device.values() for each in runs[: max(len(runs) - (arguments.keep or 0), 0)]]
    age, now = arguments.older_than, datetime.now(timezone.utc)
    return [path for path, ended in beyond if age is None or now - ended > age]


def _remove(path: Path, errors: list[str]) -> bool:
    """Remove a file, and tell whether it is gone; why it is not is added to errors."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        errors.append(f"{path} cannot be removed: {error.strerror}")
        return False
    return True
