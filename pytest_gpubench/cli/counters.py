"""`pytest-gpubench doctor --counters`: which counters ncu takes here, and how well each repeats.

Two processes run the same tests as a user's would run, and each takes the counters in a further one under ncu.
"""

import tempfile
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest_gpubench
from pytest_gpubench.child_process import INTERRUPTS, raise_interrupt, signals_handled
from pytest_gpubench.cli.noise import TEXT_WIDTH, take_run
from pytest_gpubench.cli.output import say, table, write
from pytest_gpubench.counters import COUNTERS
from pytest_gpubench.report.layout import Column
from pytest_gpubench.results.model import Counts, SavedRun
from pytest_gpubench.units import format_share, printable
from pytest_gpubench.verdict.limits.counters import says_nothing, spread_of_captures

COUNTER_TESTS = Path(pytest_gpubench.__file__).parent / "plugin" / "counter_tests.py"
COUNTER_PROCESSES = 2
COUNTER_SECONDS = 60
COUNTER_OPTIONS = ("--gpu-bench-counters=all", "--gpu-bench-reps=12", "--gpu-bench-resources=limits")
SPREAD_LEGEND = (
    "Spread: the largest less the smallest of all captures of a call, over the largest. A limit on a change that is "
    "smaller than the spread of its counter cannot be decided. Reads from memory are those of calls that read more "
    "than the cache holds."
)


def tell_counters() -> int:
    """Take the counters, and print a table; return 0 if ncu takes them here, else 1."""
    if why := _why_never():
        return _say_untaken(why)
    say(f"{COUNTER_PROCESSES} processes take the counters of a dozen calls by ncu (about {COUNTER_SECONDS} s)")
    runs: list[SavedRun] = []
    with (
        tempfile.TemporaryDirectory(prefix="gpubench-counters-") as name,
        signals_handled(raise_interrupt, *INTERRUPTS),
    ):
        for number in range(COUNTER_PROCESSES):
            runs.append(take_run(COUNTER_TESTS, Path(name) / f"{number}.json", Path(name) / "log", *COUNTER_OPTIONS))
            if why := why_untaken(counts_by_call(runs)):
                return _say_untaken(why)
    write("\n".join(spread_lines(counts_by_call(runs))))
    return 0


def _why_never() -> str:
    """Return why no counters can be taken, as far as that is known at once; empty where they may."""
    from pytest_gpubench.gpu.device import find_device, why_no_gpu
    from pytest_gpubench.structure.ncu import NeverCounted, find_ncu

    if find_device("auto").type == "cpu":
        return f"there is no GPU: {why_no_gpu()}"
    try:
        find_ncu()
    except NeverCounted as error:
        return str(error)
    return ""


def _say_untaken(why: str) -> int:
    write(printable(f"counters (ncu): NOT taken: {why}"))
    return 1


def counts_by_call(runs: Iterable[SavedRun]) -> dict[str, list[Counts]]:
    """Return the counters of each call, of each process that timed it."""
    found: dict[str, list[Counts]] = {}
    for run in runs:
        for record in run.records:
            for item in record.measurements:
                if item.timing.counts is not None:
                    found.setdefault(item.timing.label, []).append(item.timing.counts)
    return found


def why_untaken(calls: dict[str, list[Counts]]) -> str:
    """Return why no call has counters; empty where one has."""
    found = [each for counts in calls.values() for each in counts]
    if any(each.captures for each in found):
        return ""
    return next((each.untaken or each.wrong for each in found), "counters are taken on a GPU, by ncu")


def spread_lines(calls: dict[str, list[Counts]]) -> list[str]:
    """Return a table of counters, with the spread over all captures of each call, and what it means."""
    rows = {each.name: _spreads(each.name, calls) for each in COUNTERS}
    columns = [
        Column("Counter", list(rows)),
        Column("Same in", [_same_in(list(of.values())) for of in rows.values()], right=True),
        Column("Spread", [_share(max(of.values(), default=0.0)) for of in rows.values()], right=True),
        Column("of", [max(of, key=lambda name: of[name], default="-") for of in rows.values()]),
        Column("", [each.help for each in COUNTERS]),
    ]
    wrong = [f"{name}: {each.wrong or each.untaken}" for name, of in calls.items() for each in of if not each.captures]
    return [*table(columns), "", textwrap.fill(SPREAD_LEGEND, TEXT_WIDTH), *map(printable, dict.fromkeys(wrong))]


def _same_in(spreads: Sequence[float]) -> str:
    return f"{spreads.count(0.0)} of {len(spreads)} calls"


def _share(spread: float) -> str:
    return format_share(spread) if spread else "0"


def _spreads(name: str, calls: dict[str, list[Counts]]) -> dict[str, float]:
    """Return the spread of a counter in each call of which it says something."""
    return {
        call: spread_of_captures([value for each in of for value in each.captures[name]])
        for call, of in calls.items()
        if all(name in each.captures and not says_nothing(each, name) for each in of)
    }
