"""The sessions of a saved run, and the spread of their tests between processes."""

import math
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from pytest_gpubench.results.counterpart import PastTest
from pytest_gpubench.results.model import DeviceFacts, SavedRun, TestRecord
from pytest_gpubench.stats.process_spread import (
    UNKNOWN_SPEEDUP,
    UNKNOWN_TIME,
    ProcessSpread,
    spread_of,
    spread_of_suite,
)


def is_same_code_and_machine(older: SavedRun, newer: SavedRun) -> bool:
    """Tell whether two runs measured the same commit, without changed files, on the same machine in the same state."""
    commits = older.commit_info, newer.commit_info
    is_clean = all(each.id and each.dirty is False for each in commits) and commits[0].id == commits[1].id
    return is_clean and older.machine_info == newer.machine_info and _devices(older) == _devices(newer)


def add_session(older: SavedRun, newer: SavedRun) -> SavedRun:
    """Return the newer run with an older one as its earlier sessions; tests that only that has stay as they are."""
    measured = {record.key for record in newer.records}
    again = [record for record in older.records if record.key in measured]
    kept = [record for record in older.records if record.key not in measured]
    return msgspec.structs.replace(
        newer,
        records=(*kept, *newer.records),
        earlier=(*older.earlier, *again, *newer.earlier),
        name=older.name,
        left_out=tuple(nodeid for nodeid in newer.left_out if nodeid not in {record.nodeid for record in kept}),
    )


def count_sessions(run: SavedRun) -> int:
    """Return the most sessions that a test of the run has."""
    return 1 + max(map(len, by_test(run.earlier).values()), default=0)


def by_test(records: Iterable[TestRecord]) -> dict[tuple[str, str], list[TestRecord]]:
    """Return the records of each test on each device, by its key."""
    found: dict[tuple[str, str], list[TestRecord]] = defaultdict(list)
    for record in records:
        found[record.key].append(record)
    return found


def spreads_of(tests: Iterable[PastTest]) -> dict[str, ProcessSpread]:
    """Return the expected spread between processes of a test, for `speedup` and for `time`."""
    found: dict[str, list[ProcessSpread]] = {"speedup": [], "time": []}
    for test in tests:
        for key, latest in test.by_key.items() if test.earlier else ():
            items = [each for each in (*test.earlier_of(key), latest) if each.timing.measured and not each.why_invalid]
            times = [math.log(each.timing.median_us) for each in items]
            speedups = [math.log(each.speedup.ratio) for each in items if each.speedup is not None]
            for kind, logs in (("time", times), ("speedup", speedups)):
                if spread := spread_of(logs):
                    found[kind].append(spread)
    unknown = {"speedup": UNKNOWN_SPEEDUP, "time": UNKNOWN_TIME}
    return {kind: spread_of_suite(spreads, unknown[kind]) for kind, spreads in found.items()}


def _devices(run: SavedRun) -> set[DeviceFacts]:
    """Return the devices of a run, whichever card of a model it was: tests take the one that is free."""
    return {msgspec.structs.replace(record.device, uuid=None) for record in run.records}
