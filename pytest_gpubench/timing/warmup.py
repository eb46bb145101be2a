"""Call a function until it has compiled, autotuned and captured what it wants to, and its time has come to rest."""

import statistics
import time
from collections import Counter
from dataclasses import dataclass

from pytest_gpubench.errors import GpuBenchError, IncompleteRecords, KernelsDiffer, annotate
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Call, Timer
from pytest_gpubench.timing.sampling import collection_off, idle_before_rep_s
from pytest_gpubench.timing.windows import describe_difference, kernel_list

__tracebackhide__ = True

MIN_CALLS = 3
"""torch.compile with CUDA graphs compiles in its first call, warms up in its second and captures in its third."""
MAX_CALLS = 30
STEADY_RATIO = 2.0
"""Two calls in a row that take the host at most this times the fastest one: nothing is compiled any more."""
STEADY_SLACK_S = 1e-4

PASS_REPS = 5
MAX_PASSES = 12
REST_RATIO = 0.03
"""Two passes in a row whose medians differ by no more than this: the time has come to rest."""
REST_SLACK_US = 0.2


@dataclass(frozen=True)
class Warmth:
    """What the warm-up found out."""

    calls: int
    call_us: float
    rep_cost_s: float
    settled: bool = True
    """Whether kernels and time came to rest."""

    @property
    def idle_s(self) -> float:
        """The idle time that a rep of this call needs."""
        return idle_before_rep_s(self.call_us)


def warm_up(timer: Timer, device: Device, call: Call, wanted: int | None) -> Warmth:
    """Call until rest, or exactly as often as wanted; raise KernelsDiffer where the kernels never come to rest."""
    if not timer.settles:
        return Warmth(0, 0.0, 1e-6)
    if wanted is not None:
        return call_times(device, call, wanted)
    plain = call_until_steady(device, call)
    return pass_until_rest(timer, call, plain)


def timed_plain_call(device: Device, call: Call, number: int) -> float:
    """Make one call without a profiler, as compilers and autotuners may use one of their own; return its seconds."""
    try:
        timed = call.prepare()
        device.synchronize()
        started_s = time.perf_counter()
        timed()
        device.synchronize()
    except GpuBenchError:
        raise
    except Exception as error:
        annotate(error, f"gpu_bench: raised in warm-up call {number} of {call.label!r}")
        raise
    return time.perf_counter() - started_s


def call_times(device: Device, call: Call, wanted: int) -> Warmth:
    """Make so many calls."""
    seconds = [timed_plain_call(device, call, number) for number in range(1, wanted + 1)]
    last_s = seconds[-1] if seconds else 0.0
    return Warmth(wanted, 1e6 * last_s, last_s or 1e-3)


def call_until_steady(device: Device, call: Call) -> Warmth:
    """Call until the host's time shows that nothing is compiled any more."""
    seconds: list[float] = []
    while len(seconds) < MAX_CALLS:
        seconds.append(timed_plain_call(device, call, len(seconds) + 1))
        if len(seconds) >= MIN_CALLS and max(seconds[-2:]) <= STEADY_RATIO * min(seconds) + STEADY_SLACK_S:
            break
    return Warmth(len(seconds), 1e6 * min(seconds), min(seconds))


def pass_until_rest(timer: Timer, call: Call, plain: Warmth) -> Warmth:
    """Take short passes with the timer until two in a row launch the same kernels and take the same time."""
    calls, idle_s = plain.calls, plain.idle_s
    last_kernels: Counter[str] | None = None
    last_us, difference = 0.0, ""
    for _ in range(MAX_PASSES):
        started_s = time.perf_counter()
        try:
            with collection_off(), timer.session() as session:
                for _ in range(PASS_REPS):
                    session.take(call, idle_s)
            reps = session.reps()
        except (IncompleteRecords, KernelsDiffer) as error:
            last_kernels, difference = None, str(error)
            continue
        finally:
            calls += PASS_REPS
        cost_s = (time.perf_counter() - started_s) / PASS_REPS
        lists = [kernel_list(rep.records) for rep in reps]
        now_us = statistics.median(rep.elapsed_us for rep in reps)
        odd = next((kernels for kernels in lists if kernels != lists[0]), None)
        if odd is None and lists[0] == last_kernels:
            if abs(now_us - last_us) <= REST_RATIO * now_us + REST_SLACK_US:
                return Warmth(calls, now_us, cost_s)
            difference = ""
        else:
            difference = describe_difference(lists[0], odd if odd is not None else last_kernels or Counter())
        last_kernels, last_us = (lists[0] if odd is None else None), now_us
        idle_s = idle_before_rep_s(now_us)
    if difference:
        raise KernelsDiffer(
            f"{call.label!r} does not launch the same kernels in every call, even after {calls} calls ({difference}): "
            "its samples would not mean the same thing"
        )
    return Warmth(calls, last_us, cost_s, settled=False)
