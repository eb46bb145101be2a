"""`pytest-gpubench doctor --noise`: the smallest slowdowns that this machine can see, from several fresh processes.

Each process is a run of pytest with default settings, so the limits are judged as in a user's tests, and the GPU's lock
is taken as by those. What processes differ by matters as much as what reps differ by: a saved run, or a limit on a
time, is compared with another process.
"""

import argparse
import math
import os
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

import pytest_gpubench
from pytest_gpubench.child_process import ending, inner_environment, interrupts_raised, run_logged
from pytest_gpubench.cli.output import say, table, write
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.report.layout import Column
from pytest_gpubench.report.remedies import remedy_lines
from pytest_gpubench.results.files import write_text
from pytest_gpubench.results.model import Measurement, SavedRun
from pytest_gpubench.results.store import read_run
from pytest_gpubench.settings import LIMIT_TIME_S, Settings, environment_name
from pytest_gpubench.settings.cache import cache_words
from pytest_gpubench.stats.process_spread import UNKNOWN_TIME, ProcessSpread, shrunk, spread_of, spread_of_suite
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import format_share, format_time

PLUGIN = "pytest_gpubench.plugin.hooks"
TESTS = Path(pytest_gpubench.__file__).parent / "plugin" / "doctor_tests.py"
NOISE_PROCESSES = 5
SECONDS = 60
SHORT_US = 10.0
"""Shorter calls are worse to tell apart, for the ticks of a GPU's clock."""
ROUND_SHARES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Room for noise that a limit may leave."""
TEXT_WIDTH = 80
LEGEND = (
    "Within: the standard deviation of the reps of a process. Between: that of the medians of processes. "
    f"Slowdown seen: the smallest that breaks min_speedup=1 within {LIMIT_TIME_S:g} s in every process. "
    "min_speedup, max_regression: the strictest that code as fast as its reference, or as when it was saved, keeps."
)


@dataclass(frozen=True)
class CallNoise:
    """The noise of a call, as several processes measured it."""

    median_us: float
    medians_us: tuple[float, ...]
    """Of each process."""
    reps: int
    """The reps of each arm in the budget, in the slowest process."""
    within: float
    """The standard deviation of a process's reps over their mean: the median over the processes."""
    between: float
    """The standard deviation of the processes' medians."""
    slowdown_seen: float
    """The smallest slowdown that default limits see; infinite where too few reps were taken."""
    least_margin: float
    """Room that a limit on the speedup must leave to a call that is as fast as its reference."""
    least_tolerance: float
    """The smallest tolerance against a saved run of one process that the same code passes, 9 times in 10."""


def run(arguments: argparse.Namespace) -> int:
    """Measure the noise and write it; return the exit status 0."""
    say(f"{NOISE_PROCESSES} processes measure calls against themselves, which takes about {SECONDS} s")
    runs = list(take_runs("test_against_itself", NOISE_PROCESSES))
    calls = call_noises(runs)
    write("\n".join(noise_lines(runs, calls)))
    if arguments.json:
        timing = runs[0].records[0].measurements[0].timing
        about = {"device": timing.device, "timer": timing.timer, "cache": timing.cache, "processes": NOISE_PROCESSES}
        limits = {"budget_s": LIMIT_TIME_S, "alpha": Settings.alpha}
        found = {"calls": [asdict(call) | safe_limits([call])._asdict() for call in calls]}
        text = msgspec.json.format(msgspec.json.encode(about | limits | found)).decode()
        write_text(text, Path(arguments.json))
    return 0


def take_runs(test: str, processes: int, *options: str) -> Iterator[SavedRun]:
    """Yield what a test of TESTS measures in each of so many runs of pytest; an interrupt ends the one that runs."""
    with tempfile.TemporaryDirectory(prefix="gpubench-doctor-") as folder, interrupts_raised():
        for number in range(1, processes + 1):
            began_s = time.monotonic()
            run = _take_run(f"{TESTS}::{test}", Path(folder, f"{number}.json"), Path(folder, "log"), *options)
            say(f"process {number} of {processes}: {time.monotonic() - began_s:.0f} s")
            yield run


def _take_run(test: str, results: Path, log: Path, *others: str) -> SavedRun:
    """Return what a run of pytest with default settings, but for other options, measures; raise BadRequest.

    Variables that change the settings, or the plugins of pytest, are not for it.
    """
    (results.parent / "pytest.ini").touch()
    options = ["-c", str(results.parent / "pytest.ini"), "--noconftest", "-p", "no:cacheprovider", "-p", PLUGIN]
    command = [sys.executable, "-m", "pytest", *options, f"--gpu-bench-json={results}", *others, test]
    ours = tuple(map(environment_name, ("lock_folder", "lock_timeout")))
    kept = {name: value for name, value in os.environ.items() if name in ours}
    variables = inner_environment("PYTEST_", "GPU_BENCH_") | kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    status = run_logged(command, Path.cwd(), variables, log)
    run = read_run(results) if results.exists() else None
    if run is None or not any(item.timing.measured for record in run.records for item in record.measurements):
        raise BadRequest(f"a process measured nothing {ending(status, log)}")
    return run


# noise of each call


def call_noises(runs: Sequence[SavedRun]) -> list[CallNoise]:
    """Return the noise of each call that every process measured, alone and against itself, the shortest first."""
    measured = [
        {
            record.nodeid: record.measurements
            for record in run.records
            if [item.timing.measured for item in record.measurements] == [True] * 3
        }
        for run in runs
    ]
    common = [nodeid for nodeid in measured[0] if all(nodeid in run for run in measured)]
    found = [[{str(item.role): item for item in run[nodeid]} for run in measured] for nodeid in common]
    spreads = [spread_of(_log_medians(processes)) for processes in found]
    suite = spread_of_suite([each for each in spreads if each is not None], UNKNOWN_TIME)
    calls = [_call_noise(processes, shrunk(own, suite)) for processes, own in zip(found, spreads, strict=True)]
    return sorted(calls, key=lambda call: call.median_us)


def _log_medians(processes: Sequence[dict[str, Measurement]]) -> list[float]:
    return [math.log(each[""].timing.median_us) for each in processes]


def _call_noise(processes: Sequence[dict[str, Measurement]], spread: ProcessSpread) -> CallNoise:
    timings = [each[""].timing for each in processes]
    medians_us = tuple(timing.median_us for timing in timings)
    speedups = [each["candidate"].speedup for each in processes]
    ends = [(found and found.interval) or Interval(0.0, math.inf) for found in speedups]
    return CallNoise(
        median_us=statistics.median(medians_us),
        medians_us=medians_us,
        reps=min(each["candidate"].timing.reps for each in processes),
        within=statistics.median(timing.rel_std for timing in timings),
        between=statistics.stdev(_log_medians(processes)),
        slowdown_seen=max(end.high for end in ends) - 1,
        least_margin=1 - min(end.low for end in ends),
        least_tolerance=max(each.decidable(Settings.alpha, old=1) for each in (spread, UNKNOWN_TIME)),
    )


# output


def noise_lines(runs: Sequence[SavedRun], calls: Sequence[CallNoise]) -> list[str]:
    """Return a table of the calls, what its columns mean, the limits that are safe, and what disturbed the reps."""
    first = runs[0].records[0]
    timing = first.measurements[0].timing
    device = f"no GPU is found, this is the CPU, {timing.device}" if first.device.type == "cpu" else timing.device
    troubles = remedy_lines([record for run in runs for record in run.records])
    told = [textwrap.fill(text, TEXT_WIDTH) for text in (LEGEND, advice(calls), *troubles)]
    limits = [safe_limits([call]) for call in calls]
    cells = {
        "Call": [format_time(call.median_us) for call in calls],
        "Reps": [str(call.reps) for call in calls],
        "Within": [format_share(call.within) for call in calls],
        "Between": [format_share(call.between) for call in calls],
        "Slowdown seen": [format_share(each) if each < 1 else "-" for each in (call.slowdown_seen for call in calls)],
        "min_speedup": [str(each.min_speedup or "-") for each in limits],
        "max_regression": [str(each.max_regression or "-") for each in limits],
    }
    columns = [Column(name, texts, right=True) for name, texts in cells.items()]
    title = f"{device}: {timing.timer} timer, {cache_words(timing.cache)}"
    return [title, *table(columns), "", "\n\n".join(told)]


class SafeLimits(NamedTuple):
    """Limits that code as fast as its reference, or as its saved run, keeps; None where there is none."""

    min_speedup: float | None
    max_regression: float | None

    def __str__(self) -> str:
        speedup = f"min_speedup={self.min_speedup} or less" if self.min_speedup else "no min_speedup"
        regression = f"max_regression={self.max_regression} or more" if self.max_regression else "no max_regression"
        return f"{speedup} and {regression}"


def safe_limits(calls: Sequence[CallNoise]) -> SafeLimits:
    """Return the strictest limits that are safe for each of these calls, as round numbers."""
    least = max(call.least_margin for call in calls), max(call.least_tolerance for call in calls)
    margin, tolerance = (next((each for each in ROUND_SHARES if each >= share), None) for share in least)
    return SafeLimits(None if margin is None else round(1 - margin, 3), tolerance)


def advice(calls: Sequence[CallNoise]) -> str:
    """Return which limits are safe, apart for short calls where those need others."""
    short = [call for call in calls if call.median_us < SHORT_US]
    others = [call for call in calls if call.median_us >= SHORT_US]
    if not (short and others) or safe_limits(short) == safe_limits(others):
        return f"Safe here: {safe_limits(calls)}."
    least = format_time(min(call.median_us for call in others))
    return f"Safe here: {safe_limits(others)} for calls of {least} and more, {safe_limits(short)} for shorter ones."
