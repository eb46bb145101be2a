"""Compare times with those of ncu, which must be on the PATH, and of events outside of any session: `true [CALL ...]`.

ncu leaves the clocks alone and flushes nothing: our flush comes before each call, as in a rep. From events is taken off
what launching as many kernels costs that do nothing. Then the speedup of a fused rms_norm, by us and by those events.
"""

import csv
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from pytest_gpubench import MeasurementError, bench
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.events import EventsTimer
from pytest_gpubench.timing.sentinels import sentinels_of
from tests.on_gpu.study.harness import (
    CACHE,
    code_of,
    cool,
    do_bench_us,
    in_fresh_process,
    parser_of,
    print_head,
    print_row,
    start_profiler,
    take_reps,
)
from tests.on_gpu.study.workloads import WORKLOADS

END = "gpu_bench_end"
BEGIN = "gpu_bench_begin"
NCU_CALLS = 11
EVENTS_REPS = 60
MOST_TRIES = 3
US_PER_UNIT = {"ns": 1e-3, "us": 1.0, "usecond": 1.0, "nsecond": 1e-3, "ms": 1e3, "msecond": 1e3}
TIME = "gpu__time_duration.sum"
LEFT_OUT = "matmul 8192^3 bf16"
"""ncu runs into the power cap."""


def events_us(function: Callable[[], object]) -> float:
    """Return the median between two events around a call, outside of any session of the profiler.

    It is taken again where the host was held up: on busy cores an idle GPU looks late.
    """
    timer, call = EventsTimer(find_device("cuda"), CACHE), make_call(function, label="call")
    for _ in range(MOST_TRIES):
        with suppress(MeasurementError):
            return statistics.median(rep.elapsed_us for rep in take_reps(timer, call, EVENTS_REPS))
    raise MeasurementError("the host was held up each time")


def untraced_us(function: Callable[[], object], kernels: int) -> float:
    """Return a call's time by events, less what it costs to launch as many kernels that do nothing."""
    noop = sentinels_of(find_device("cuda")).noop
    launches_us = events_us(lambda: [noop() for _ in range(kernels)])
    return events_us(function) - launches_us + kernels * bench.measure(noop).median_us


def measure_all(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the times of calls by us, as traced, by events and by do_bench."""
    start_profiler()
    found = {}
    for name in names:
        function = WORKLOADS[name]()
        timing = bench.measure(function)
        found[name] = {
            "kernels": timing.launches,
            "ours": timing.median_us,
            "traced": timing.median_busy_us or timing.median_us,
            "events": untraced_us(function, timing.launches),
            "do_bench": do_bench_us(function),
        }
        cool()
    return found


def speedups() -> tuple[float, float]:
    """Return the speedup of a fused rms_norm over the chain of six kernels, by us and by events."""
    start_profiler()
    fused, chain = (WORKLOADS[f"rms_norm {kind} 8192x8192 fp32"]() for kind in ("fused", "eager"))
    return bench.compare(fused, chain).speedup, untraced_us(chain, 6) / untraced_us(fused, 1)


def call_for_ncu(names: Sequence[str]) -> None:
    """Call functions where ncu listens, each time after a flush, and between two sentinels."""
    import torch

    from pytest_gpubench.timing.l2flush import make_flush

    device = find_device("cuda")
    flush, sentinels = make_flush(device, CACHE), sentinels_of(device)
    for name in names:
        function = WORKLOADS[name]()
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        for _ in range(NCU_CALLS):
            flush()
            sentinels.begin(0)
            torch.cuda.synchronize()
            function()
            sentinels.end(1)
            torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def ask_ncu(names: Sequence[str]) -> dict[str, float]:
    """Return ncu's time of each call in microseconds: the median over calls of the sum over kernels."""
    command = ["ncu", "--cache-control", "none", "--clock-control", "none", "--profile-from-start", "off"]
    command += ["--csv", "--kernel-name", "regex:^(?!gpu_bench_read_flush|gpu_bench_demote).*", "--metrics", TIME]
    command += [sys.executable, "-c", code_of(call_for_ncu, names)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith('"ID"'))
    calls_us: list[float] = []
    for row in csv.DictReader(lines[first:]):
        kernel = row["Kernel Name"].partition("(")[0]
        if kernel == BEGIN:
            calls_us.append(0.0)
        elif kernel != END:
            calls_us[-1] += float(row["Metric Value"].replace(",", "")) * US_PER_UNIT[row["Metric Unit"]]
    starts = range(0, len(calls_us), NCU_CALLS)
    medians_us = [statistics.median(calls_us[start : start + NCU_CALLS]) for start in starts]
    return dict(zip(names, medians_us, strict=True))


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("true", __doc__)
    parser.add_argument("calls", nargs="*", default=list(WORKLOADS), metavar="CALL")
    names = [name for name in parser.parse_args(arguments).calls if name != LEFT_OUT]
    ours, ncu_us = in_fresh_process(measure_all, names), ask_ncu(names)
    print_head("call | kernels | gpu_bench us | as traced us | ncu us | events us | allowed us | nearest | do_bench us")
    for name in names:
        row = ours[name]
        references_us = (ncu_us[name], row["events"])
        nearest_us = min((row["ours"] - each for each in references_us), key=abs)
        allowed_us = 1.0 + 0.006 * ncu_us[name]
        print_row(
            f"{name} | {row['kernels']:.0f} | {row['ours']:.2f} | {row['traced']:.2f} | {ncu_us[name]:.2f} | "
            f"{row['events']:.2f} | {allowed_us:.2f} | {nearest_us:+.2f} "
            f"{'ok' if abs(nearest_us) <= allowed_us else 'MISSED'} | {row['do_bench']:.2f}"
        )
    judged, by_events = in_fresh_process(speedups)
    print(f"rms_norm fused over eager: {judged:.4f}x, by events {by_events:.4f}x: {judged / by_events - 1:+.2%} apart")
