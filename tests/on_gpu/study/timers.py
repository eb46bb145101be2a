"""Compare the timers on six calls from 2 us to 2 ms: `timers`.

Prints medians in microseconds by the profiler, by events and by graph, each in a measurement as a test takes it; what
launching costs; and Triton's do_bench and do_bench_cudagraph in the same process. Then what two events cost with
nothing between them, and the step of their readings.
"""

import itertools
from collections.abc import Callable, Sequence

import torch

from pytest_gpubench import MeasurementError, Timing, bench
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import Overhead
from pytest_gpubench.timing.base import Call, Timer
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.events import EventsTimer
from pytest_gpubench.timing.graph import GraphTimer
from pytest_gpubench.timing.overhead import take_overhead, take_reps
from pytest_gpubench.timing.profiler import ProfilerTimer
from tests.on_gpu.study.harness import (
    CACHE,
    cool,
    do_bench_us,
    parser_of,
    print_head,
    print_row,
    start_profiler,
)
from tests.on_gpu.study.workloads import add, gelu_chain, matmul, normal, softmax

EMPTY_REPS = 200
COLUMNS = (
    "call | profiler | events | graph | host | busy | span | gap | eager, idle GPU | graph, idle GPU | "
    "graph speed-up | do_bench | do_bench_cudagraph | flags"
)


def small_chain() -> Callable[[], object]:
    """Return twelve kernels of 2 us each, which the host takes longer to launch than the GPU to run."""
    x = normal(2**16)

    def chain() -> object:
        y = x
        for _ in range(12):
            y = y * 1.5
        return y

    return chain


KERNELS: dict[str, Callable[[], Callable[[], object]]] = {
    "add 3 x 1 MiB": lambda: add(1),
    "12 small kernels": small_chain,
    "add 3 x 64 MiB": lambda: add(64),
    "softmax 4096x4096 fp32": softmax,
    "gelu eager 8192x4096 fp32, 9 kernels": gelu_chain,
    "matmul 8192^3 bf16": lambda: matmul(8192),
}


def time_by(timer: str, function: Callable[[], object]) -> Timing:
    """Return a measurement as a test takes it."""
    cool()
    return bench.measure(function, timer=timer)


def flags_of(timings: Sequence[Timing]) -> str:
    """Return the flags of all timings, and of their reps, each with its timer."""
    found = [f"{timing.timer}: {flag}" for timing in timings for flag in timing.flags]
    found += [timing.remark for timing in timings if timing.remark]
    return "; ".join(found) or "-"


def row(name: str, device: Device) -> list[str]:
    """Return a row of the table."""
    import triton

    function = KERNELS[name]()
    call = make_call(function, label=name)
    timings = [time_by(timer, function) for timer in ("profiler", "events", "graph")]
    cool()
    cost = take_overhead(call, device, CACHE)
    cool()
    rival_us = do_bench_us(function)
    cool()
    graph_rival_us = 1e3 * triton.testing.do_bench_cudagraph(function, return_mode="median")
    return [
        name,
        *(with_interval(timing) for timing in timings),
        *cost_cells(cost),
        f"{rival_us:.2f}",
        f"{graph_rival_us:.2f}",
        flags_of(timings),
    ]


def with_interval(timing: Timing) -> str:
    """Return a median, and half the width of its interval in per cent."""
    interval = timing.median_interval_us
    half = 50 * interval.width / timing.median_us if interval else float("nan")
    return f"{timing.median_us:.2f} ({half:.2f} %, {timing.reps} reps)"


def cost_cells(cost: Overhead) -> list[str]:
    """Return what launching costs, cell by cell."""
    speedup = cost.graph_speedup
    return [
        "waits" if cost.host_us is None else f"{cost.host_us:.1f}",
        f"{cost.busy_us:.2f}",
        f"{cost.span_us:.2f}",
        f"{cost.gap_us:.2f} ({100 * cost.gap_us / cost.span_us:.0f} %)",
        f"{cost.eager_us:.1f}",
        cost.no_graph if cost.graph_us is None else f"{cost.graph_us:.1f}",
        "-" if speedup is None else f"{speedup:.2f}x",
    ]


def print_empty(device: Device) -> None:
    """Print what two events read with nothing, a kernel of ours, and a graph of it between them; and their step."""
    x = normal(1)
    empty, noop = make_call(lambda: None, label="nothing"), make_call(lambda: x.neg_(), label="x.neg_()")
    cases: list[tuple[str, Timer, Call]] = [
        ("events around nothing", EventsTimer(device, "hot"), empty),
        ("events around one element", EventsTimer(device, "hot"), noop),
        ("events around a graph of one element", GraphTimer(device, "hot"), noop),
        ("the profiler's record of one element", ProfilerTimer(device, "hot"), noop),
    ]
    noop.prepare()()
    for what, timer, call in cases:
        times_us = sorted(rep.elapsed_us for rep in take_reps(timer, call, EMPTY_REPS))
        steps_us = [after - before for before, after in itertools.pairwise(times_us) if after > before]
        step = f"{min(steps_us):.4f}" if steps_us else "none"
        middle_us, highest_us = times_us[EMPTY_REPS // 2], times_us[-1]
        print(f"{what}: median {middle_us:.3f} us, {times_us[0]:.3f} to {highest_us:.3f}; smallest step {step} us")


def main(arguments: Sequence[str]) -> None:
    parser_of("timers", __doc__).parse_args(arguments)
    device = start_profiler()
    print(f"{device.facts.name}, torch {torch.__version__}, cache {CACHE}; medians in us")
    print_head(COLUMNS)
    for name in KERNELS:
        try:
            cells = row(name, device)
        except MeasurementError as error:
            cells = [name, f"{type(error).__name__}: {error}"]
        print_row(" | ".join(cells))
        torch.cuda.empty_cache()
    print_empty(device)
