"""`pytest-gpubench replay`: time a call of a saved run again, without its code."""

import argparse
from pathlib import Path

from pytest_gpubench.cli.arguments import RUN_HELP, add_storage, add_trust_calls
from pytest_gpubench.cli.output import write
from pytest_gpubench.cli.saved import find_path, matches
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.model import Measurement, SavedRun, Timing
from pytest_gpubench.results.store import read_run
from pytest_gpubench.results.store.calls import CallStore
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import count, first_few, format_time, printable

ABOUT = "time a call of a saved run again, without its code"
EXAMPLES = """replay main test_softmax
replay 3 test_softmax[4096] --label softmax"""
MADE_UP = "its inputs are made up: random numbers, and 0 where numbers are whole"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("which", metavar="RUN", help=RUN_HELP)
    parser.add_argument("test", metavar="TEST", help="part of the id of a test; * and ? stand for others")
    parser.add_argument("--label", metavar="NAME", help="of several calls of the test, the one of this name")
    add_trust_calls(parser)
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    """Time the call, and write its time now and then; 0."""
    nodeid, item = find_call(read_run(find_path(arguments.which, arguments)), arguments.test, arguments.label)
    timing = _timed(item, arguments)
    now, then = (format_time(each.median_us) for each in (timing, item.timing))
    takes = f"{printable(timing.label)} takes {now} ({count(timing.reps, 'rep')})"
    lines = [f"{printable(nodeid)}: {takes}, and took {then} when it was saved"]
    lines += [f"  {printable(kernel.name)}: {format_time(kernel.median_us)}" for kernel in timing.kernels]
    write("\n".join([*lines, MADE_UP]))
    return 0


def find_call(run: SavedRun, pattern: str, label: str | None) -> tuple[str, Measurement]:
    """Return the measurement of the call that is meant, after the id of its test.

    Raises BadRequest where there is none, or are several.
    """
    there = [(record.nodeid, item) for record in run.records for item in record.measurements]
    meant = [each for each in there if matches(each[0], pattern) and label in (None, each[1].timing.label)]
    found = [(nodeid, item) for nodeid, item in meant if item.call]
    if len(found) == 1:
        return found[0]
    asked = f"{pattern!r}" + (f" with the label {label!r}" if label else "")
    if found:
        names = first_few([f"{nodeid} {item.timing.label}" for nodeid, item in found], 3)
        raise BadRequest(f"{asked} means {count(len(found), 'call')}: {printable(names)}; say more, or give --label")
    if not meant:
        names = first_few(list(dict.fromkeys(f"{nodeid} {item.timing.label}" for nodeid, item in there)), 3)
        raise BadRequest(f"no call of this run is meant by {asked}: it has {printable(names) or 'none'}")
    reason = next((item.no_call for _, item in meant if item.no_call), "the run was saved without calls")
    raise BadRequest(f"the run has no call for {asked}: {printable(reason)}")


def _timed(item: Measurement, arguments: argparse.Namespace) -> Timing:
    from pytest_gpubench.bench.plan import plan_of
    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.gpu.turn import turn_at
    from pytest_gpubench.replay.baselines import read_captured
    from pytest_gpubench.replay.stored import time_stored

    captured = read_captured(item.call, CallStore(Path(arguments.storage)), arguments.trust_calls)
    settings = Settings()
    device = find_device("cuda")
    with turn_at(device, settings, "pytest-gpubench replay"):
        return time_stored(captured, device, settings, plan_of(settings))
