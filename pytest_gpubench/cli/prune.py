"""`pytest-gpubench prune`: old runs, removed."""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_gpubench.cli.output import write
from pytest_gpubench.cli.saved import add_parser, add_storage, is_wanted, list_stored, open_storage
from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.settings import whole_number
from pytest_gpubench.units import count, printable

if TYPE_CHECKING:
    from pytest_gpubench.results.store import Stored

EXAMPLES = """prune --keep 30 --dry-run
prune --older-than 90d
prune --keep 10 --older-than 4w --named"""
UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the parser of all."""
    parser = add_parser(commands, "prune", "remove old runs; those that were given a name stay", EXAMPLES)
    parser.add_argument("--keep", metavar="N", help="keep the newest N of each device")
    parser.add_argument("--older-than", metavar="AGE", help="remove only what is older: 36h, 90d, 12w")
    parser.add_argument("--named", action="store_true", help="remove runs that were given a name, too")
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    add_storage(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Remove what is too old, and say what; 2 where something cannot be removed, or cannot be told how old it is."""
    keep = parse_keep(arguments.keep)
    oldest = None if arguments.older_than is None else datetime.now(timezone.utc) - parse_age(arguments.older_than)
    if keep is None and oldest is None:
        raise BadRequest("say what to remove: --keep N, --older-than AGE, or both")
    errors: list[str] = []
    aged = [one for stored in list_stored(arguments) for one in look_at(stored, errors)]
    old = [one for one in beyond(aged, keep or 0, arguments.named) if oldest is None or one.ended < oldest]
    removed = [one.path for one in old if arguments.dry_run or remove(one.path, errors)]
    left = [path for path in left_behind(arguments) if arguments.dry_run or remove(path, errors)]
    verb = "would remove" if arguments.dry_run else "removed"
    lines = [f"{verb} {printable(str(path))}" for path in removed]
    lines += [f"{verb} {printable(str(path))}, of a run that was killed" for path in left]
    write("\n".join([*lines, total(len(removed), len(left), verb)]))
    for sentence in errors:
        print(f"pytest-gpubench prune: {sentence}", file=sys.stderr)
    return 2 if errors else 0


def left_behind(arguments: argparse.Namespace) -> list[Path]:
    """Return what runs that were killed while they were saved left in the folders of the devices asked for."""
    return [path for path in open_storage(arguments).abandoned() if is_wanted(path.parent.name, arguments.device)]


def total(runs: int, left: int, verb: str) -> str:
    """Return how many runs were removed, and how many temporary files."""
    found = [*([count(runs, "run")] if runs else []), *([count(left, "temporary file")] if left else [])]
    return f"{verb} {' and '.join(found)}" if found else "nothing to remove"


def parse_keep(text: str | None) -> int | None:
    """Return how many runs to keep; raise BadRequest where it is no count of at least 1."""
    try:
        return None if text is None else whole_number(text)
    except ValueError as error:
        raise BadRequest(f"--keep={text}: {error}") from None


def parse_age(text: str) -> timedelta:
    """Return an age in hours, days or weeks: 36h, 90d, 12w; raise BadRequest for anything else."""
    try:
        return int(text[:-1]) * UNITS[text[-1:]] if int(text[:-1]) >= 0 else UNITS[""]
    except (ValueError, KeyError, OverflowError):
        raise BadRequest(f"--older-than={text}: it must be a number of hours, days or weeks: 36h, 90d, 12w") from None


@dataclass(frozen=True)
class Aged:
    """A saved run that has been read for its age."""

    path: Path
    device: str
    name: str
    """Empty for one that was given none."""
    ended: datetime


def look_at(stored: "Stored", errors: list[str]) -> Iterator[Aged]:
    """Yield a run with its age; what cannot be read is added to errors, and kept."""
    from pytest_gpubench.results.provenance import moment
    from pytest_gpubench.results.store import read_run

    try:
        run = read_run(stored.path)
        ended = moment(run.datetime)
    except BadFile as error:
        errors.append(f"{error} (kept)")
    except ValueError:
        errors.append(f"{stored.path}: it does not say when it ended (kept)")
    else:
        yield Aged(stored.path, stored.device, run.name, ended)


def beyond(found: Iterable[Aged], keep: int, named: bool) -> list[Aged]:
    """Return the runs that are not among the newest of their device; those with a name count only if named."""
    folders: dict[str, list[Aged]] = defaultdict(list)
    for one in found:
        if named or not one.name:
            folders[one.device].append(one)
    return [one for runs in folders.values() for one in runs[: max(len(runs) - keep, 0)]]


def remove(path: Path, errors: list[str]) -> bool:
    """Remove a file, and tell whether it is gone; why it is not is added to errors."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        errors.append(f"{path} cannot be removed: {error.strerror}")
        return False
    return True
