"""`pytest-gpubench list`: the runs that were saved, and with --prune the removal of old ones."""

import argparse
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pytest_gpubench.cli.arguments import add_storage, add_value
from pytest_gpubench.cli.output import complain, table, write
from pytest_gpubench.cli.saved import commit_text, nothing_saved, read_each, storage_of
from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.replay.call_data import decode_call
from pytest_gpubench.report.layout import Column
from pytest_gpubench.report.rows import verdicts_of
from pytest_gpubench.results.model import Outcome, SavedRun
from pytest_gpubench.results.provenance import minute_text, moment
from pytest_gpubench.results.store import Storage, read_run
from pytest_gpubench.results.store.calls import CallStore
from pytest_gpubench.results.store.storage import count_sessions
from pytest_gpubench.settings.parsers import positive_count, whole_number_or_zero
from pytest_gpubench.units import count, format_bytes, printable

ABOUT = "list the saved runs, oldest first, or remove old ones"
EXAMPLES = """list --device h200
list --prune --keep 30 --dry-run
list --prune --older-than 90d
list --prune --keep 10 --older-than 4w --named"""
AGES = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def add(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("removing old runs")
    group.add_argument("--prune", action="store_true", help="remove old runs; those that were given a name stay")
    add_value(group, "--keep", parse=positive_count, metavar="N", help="keep the newest N of each device")
    add_value(group, "--older-than", parse=parse_age, metavar="AGE", help="remove only what is older: 36h, 90d, 12w")
    group.add_argument("--named", action="store_true", help="remove runs that were given a name, too")
    group.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write a line for each saved run, or remove old ones; 2 where one of them cannot be read, after the others."""
    if arguments.prune:
        return _prune(arguments)
    if any((arguments.keep, arguments.older_than, arguments.named, arguments.dry_run)):
        raise BadRequest("--keep, --older-than, --named and --dry-run say what --prune removes: give it too")
    errors: list[str] = []
    found = sorted(read_each(storage_of(arguments).runs(), errors), key=lambda each: each[1].datetime)
    runs = [run for _, run in found]
    sessions, calls = [count_sessions(run) for run in runs], [len(calls_in(run)) for run in runs]
    devices = [dict.fromkeys(record.device.name for record in run.records) for run in runs]
    judged = [Counter(each.outcome for each in verdicts_of(run.records)) for run in runs]
    limits = [", ".join(f"{found[each]} {each.value}" for each in Outcome if found[each]) for found in judged]
    columns = [
        Column("Number", [f"{stored.number:04}" for stored, _ in found]),
        Column("Name", [run.name or "-" for run in runs], least=12),
        Column("Date", [minute_text(run.datetime) for run in runs]),
        Column("Device", [", ".join(names) or "-" for names in devices], least=12),
        Column("Commit", [commit_text(run) or "-" for run in runs], rank=1),
        Column("Tests", [str(len(run.records)) for run in runs], right=True),
        *([Column("Sessions", list(map(str, sessions)), right=True)] if max(sessions, default=1) > 1 else []),
        *([Column("Calls", list(map(str, calls)), right=True, rank=3)] if any(calls) else []),
        Column("Limits", [each or "-" for each in limits], least=12, rank=2),
    ]
    store = CallStore(Path(arguments.storage))
    sizes = [store.size(name) for name in store.names()]
    kept = [f"calls of these runs: {count(len(sizes), 'file')}, {format_bytes(sum(sizes))}"] if sizes else []
    write("\n".join([*table(columns), *kept]) if runs or errors else nothing_saved(arguments))
    complain("list", errors)
    return 2 if errors else 0


# removal


def _prune(arguments: argparse.Namespace) -> int:
    """Remove what is too old, and say what; 2 where a file cannot be removed, or its age is not known."""
    if arguments.keep is None and arguments.older_than is None:
        raise BadRequest("--prune: say what to remove: --keep N, --older-than AGE, or both")
    errors: list[str] = []
    old, named = _old_runs(arguments, errors)
    removed = [path for path in old if arguments.dry_run or _remove(path, errors)]
    verb = "would remove" if arguments.dry_run else "removed"
    lines = [f"{verb} {printable(str(path))}" for path in removed]
    freed = 0 if arguments.dry_run or not removed else _remove_unused_calls(Path(arguments.storage), errors)
    lines += [f"removed the calls that only they had: {format_bytes(freed)}"] if freed else []
    told = f"{verb} {count(len(removed), 'run')}" if removed else "nothing to remove"
    told += f"; {count(named, 'run')} with a name not looked at, which --named removes too" if named else ""
    write("\n".join([*lines, told]))
    complain("list", errors)
    return 2 if errors else 0


def _remove_unused_calls(storage: Path, errors: list[str]) -> int:
    """Remove the calls, and the images of kernels, that no run refers to; return the bytes that this frees.

    New ones stay, as a run that is not saved yet may refer to them. Nothing is removed where a run cannot be read, as
    what it refers to is not known: that is added to errors.
    """
    store = CallStore(storage)
    try:
        used = {name for stored in Storage(storage).runs() for name in calls_in(read_run(stored.path))}
    except BadFile as error:
        errors.append(f"calls of saved runs were left as they are: {error}")
        return 0
    for name in list(used):
        with suppress(BadFile):  # it cannot be replayed, with images or without
            used.update(decode_call(store.read(name, trusted=True)).images)
    unused = {name: store.size(name) for name in store.names() if name not in used and not store.is_new(name)}
    return sum(size for name, size in unused.items() if _remove(store.path(name), errors))


def parse_age(text: str) -> timedelta:
    """Parse an age in hours, days or weeks: 36h, 90d, 12w."""
    try:
        return whole_number_or_zero(text[:-1]) * AGES[text[-1:]]
    except (ValueError, KeyError):
        raise ValueError("it must be a number of hours, days or weeks: 36h, 90d, 12w") from None


def _old_runs(arguments: argparse.Namespace, errors: list[str]) -> tuple[list[Path], int]:
    """Return the runs to remove, and how many have a name that keeps them; what cannot be read is told in errors."""
    unreadable, named = list[str](), 0
    by_device: dict[str, list[tuple[Path, datetime]]] = defaultdict(list)
    for stored, run in read_each(storage_of(arguments).runs(), unreadable):
        try:
            if arguments.named or not run.name:
                by_device[stored.device].append((stored.path, moment(run.datetime)))
            else:
                named += 1
        except ValueError:
            unreadable.append(f"{stored.path}: it does not say when it ended")
    errors += [f"{sentence} (kept)" for sentence in unreadable]
    beyond = [each for runs in by_device.values() for each in runs[: max(len(runs) - (arguments.keep or 0), 0)]]
    age, now = arguments.older_than, datetime.now(timezone.utc)
    return [path for path, ended in beyond if age is None or now - ended > age], named


def _remove(path: Path, errors: list[str]) -> bool:
    """Remove a file, and tell whether it is gone; why it is not is added to errors."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        errors.append(f"{path} cannot be removed: {error.strerror}")
        return False
    return True


def calls_in(run: SavedRun) -> list[str]:
    """Return the names of the calls of a run."""
    return [item.call for record in run.records for item in record.measurements if item.call]
