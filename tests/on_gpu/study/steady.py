"""Compare the medians of ten fresh processes, and what a measurement costs: `steady [--out FILE] [CALL ...]`."""

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pytest_gpubench import bench
from tests.on_gpu.study.harness import (
    cool,
    do_bench_us,
    in_fresh_process,
    parser_of,
    print_head,
    print_row,
    spread,
    start_profiler,
)
from tests.on_gpu.study.workloads import WORKLOADS

FIXED_REPS = 200
PROCESSES = 10


def measure(name: str) -> dict[str, float]:
    """Return our median and do_bench's, and what each took on the host."""
    function = WORKLOADS[name]()
    function()
    cool()
    timing = bench.measure(function)
    fixed = bench.measure(function, reps=FIXED_REPS, warmup=3)
    started_s = time.perf_counter()
    rival_us = do_bench_us(function)
    return {
        "ours_us": timing.median_us,
        "ours_s": timing.elapsed_s,
        "reps": timing.reps,
        "rel_std": timing.rel_std,
        "clock_mhz": timing.median_sm_clock_mhz or 0,
        "discarded": timing.discarded,
        "remeasured": timing.remeasured,
        "per_rep_ms": 1e3 * fixed.elapsed_s / (FIXED_REPS + 3),
        "rival_us": rival_us,
        "rival_s": time.perf_counter() - started_s,
    }


def measure_all(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure calls in this process, after the profiler's start."""
    start_profiler()
    return {name: measure(name) for name in names}


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("steady", __doc__)
    parser.add_argument("calls", nargs="*", default=list(WORKLOADS), metavar="CALL")
    parser.add_argument("--out", type=Path, help="write the figures of every process here, as JSON")
    chosen = parser.parse_args(arguments)
    runs: list[dict[str, dict[str, float]]] = []
    for number in range(PROCESSES):
        started_s = time.perf_counter()
        runs.append(in_fresh_process(measure_all, chosen.calls))
        print(f"process {number + 1} of {PROCESSES}: {time.perf_counter() - started_s:.1f} s", file=sys.stderr)
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(runs))
    print_head(
        "call | gpu_bench us | spread | do_bench us | its spread | s a measurement | do_bench s | ms a rep | reps"
    )
    for name in chosen.calls:
        figures = {key: [run[name][key] for run in runs] for key in runs[0][name]}
        middle = {key: statistics.median(values) for key, values in figures.items()}
        print_row(
            f"{name} | {middle['ours_us']:.2f} | {spread(figures['ours_us']):.2%} | {middle['rival_us']:.2f} | "
            f"{spread(figures['rival_us']):.2%} | {middle['ours_s']:.3f} | {middle['rival_s']:.3f} | "
            f"{middle['per_rep_ms']:.3f} | {middle['reps']:.0f}"
        )
