"""Plant causes of slowdowns: does the first reason name each, and has the same call none?

Each call is measured before and after a change, as two runs of a test are, and fails a limit that no call keeps.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from typing import Literal

import msgspec

from pytest_gpubench import LimitBroken, Measurement
from pytest_gpubench.results.baseline import Baseline
from pytest_gpubench.results.model import SavedRun, TestRecord
from pytest_gpubench.results.provenance import machine_info
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.saved_runs import BaselineLimit
from tests.on_gpu.study.harness import bench_of, parser_of, print_head, print_row, start_profiler, study_test_with
from tests.on_gpu.study.neighbour import neighbour
from tests.on_gpu.study.reasons_planted import PLANTED, SAME, Planted

UNKEPT_US = 1e-3
"""A limit that no call keeps."""
REPS = 30
"""Enough to fail it; so few count as independent, whatever the clock does meanwhile."""
SLOWER = 1.3


def test_of(timer: Literal["profiler", "wall"], limits: Limits) -> CurrentTest:
    test = study_test_with(limits, seed=1)
    return replace(test, settings=replace(test.settings, timer=timer, json="run.json", reps=REPS))


def saved(function: Callable[[], object], timer: Literal["profiler", "wall"]) -> TestRecord:
    """Return the record of a test that measures a call."""
    test = test_of(timer, Limits())
    bench_of(test).measure(function, label="call")
    return test.record("master", None, [])


def reasons_of(
    before: TestRecord, after: Callable[[], object], timer: Literal["profiler", "wall"], neighbours: tuple[str, ...]
) -> list[str]:
    """Return the reasons why a call fails that is compared with a saved one."""
    run = SavedRun(records=(before,), datetime=datetime.now(timezone.utc).isoformat(), machine_info=machine_info())
    past = Baseline([("before", run)]).find(before.nodeid, before.source, before.device, before.params)
    test = test_of(timer, Limits(max_time_us=UNKEPT_US))
    test.past, test.neighbours = lambda facts: BaselineLimit(past, None), neighbours
    try:
        bench_of(test).measure(after, label="call")
    except LimitBroken as error:
        return str(error).splitlines()[1:]
    raise AssertionError(f"a limit that no call keeps was kept: {test.measurements[-1].verdicts}")


def at_a_faster_clock(record: TestRecord) -> TestRecord:
    """Return a record as it would be of a GPU whose clock is higher."""

    def faster(item: Measurement) -> Measurement:
        timing = item.timing
        kernels = (msgspec.structs.replace(each, median_us=each.median_us / SLOWER) for each in timing.kernels)
        timing = msgspec.structs.replace(
            timing,
            samples_us=tuple(us / SLOWER for us in timing.samples_us),
            sm_clock_mhz=tuple(mhz * SLOWER for mhz in timing.sm_clock_mhz),
            kernels=tuple(kernels),
        )
        return msgspec.structs.replace(item, timing=timing)

    return msgspec.structs.replace(record, measurements=tuple(map(faster, record.measurements)))


def first_reasons(planted: Planted) -> list[str]:
    """Return what is said with a call that fails after a cause was planted, the first reason first."""
    before, after = planted.make()
    record = saved(before, planted.timer)
    record = at_a_faster_clock(record) if planted.beside == "faster clock before" else record
    with neighbour() if planted.beside == "neighbour" else nullcontext(()) as said:
        return reasons_of(record, after, planted.timer, said)


def plant_all(causes: Sequence[Planted]) -> int:
    """Print the reasons of each cause; return how many the first one names."""
    named = 0
    print_head("cause | named | reasons")
    for planted in causes:
        try:
            found = first_reasons(planted)
        except Exception as error:  # the other causes are tried all the same
            found = [f"{type(error).__name__}: {error}"]
        is_named = bool(found) and planted.words in found[0]
        named += is_named
        print_row(f"{planted.name} | {'yes' if is_named else 'NO'} | {'; '.join(found)}")
    return named


def compare_the_same(number: int) -> int:
    """Compare so many calls with themselves, and print the reasons of any; return how many have none."""
    silent = 0
    for place, (name, make) in zip(range(number), itertools.cycle(SAME.items()), strict=False):
        timer: Literal["profiler", "wall"] = "wall" if place % 5 == 4 else "profiler"
        function = make()
        found = reasons_of(saved(function, timer), function, timer, ())
        silent += not found
        if found:
            print_row(f"the same, {name} | NO | {'; '.join(found)}")
    return silent


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("reasons", __doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of causes")
    parser.add_argument("--same", type=int, default=20, help="calls that are compared with themselves")
    chosen = parser.parse_args(arguments)
    start_profiler()
    causes = [each for each in PLANTED if any(part in each.name for part in chosen.only)]
    named, silent = plant_all(causes), compare_the_same(chosen.same)
    print(
        f"\n{named} of {len(causes)} causes are named first; {silent} of {chosen.same} calls and themselves have none"
    )
