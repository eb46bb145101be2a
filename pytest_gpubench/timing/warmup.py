"""Call a function until it has compiled, autotuned and captured what it wants to, and its time has come to rest."""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_gpubench.errors import (
    DeviceUnavailable,
    IncompleteRecords,
    KernelsDiffer,
    MeasurementError,
    annotating,
)
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.attempts import NOT_COMPLETE
from pytest_gpubench.timing.base import PROBE_REPS, Call, Rep
from pytest_gpubench.timing.calls import refuse_untimeable
from pytest_gpubench.timing.l2flush import make_flush
from pytest_gpubench.timing.pacing import KEPT_CLOCK
from pytest_gpubench.timing.rounds import Arm, Instrument, Interleaved, Sample, add_reps, take_rounds
from pytest_gpubench.timing.windows import describe_difference, kernel_list

if TYPE_CHECKING:
    from pytest_gpubench.timing.kernels import Sentinels

MIN_CALLS = 3
"""torch.compile with CUDA graphs compiles in its first call, warms up in its second and captures in its third."""
MAX_CALLS = 30
STEADY_RATIO = 2.0
"""Two calls in a row that take the host at most this times the fastest one: nothing is compiled any more."""
STEADY_SLACK_S = 1e-4
AHEAD, MOST_LAUNCHING_S = 0.5, 1e-3
"""A call that returns in so much of its time, and so soon, compiles nothing: no other tells more, if one was made."""
CUDA_GRAPHS = "torch._inductor.cudagraph_trees"
"""The module of torch.compile's CUDA graphs, which need `MIN_CALLS` however soon each returns."""

SLOW_PASS_REPS = 3
SLOW_CALL_US = 500
"""From this time on a pass has fewer reps: idling before each costs three times the call."""
SLOW_PASS_US = 3000
"""The time that such a pass may take; one rep is the least."""
MAX_PASSES = 12
REST_RATIO = 0.03
"""Two passes in a row whose medians differ by no more than this: time and clock have come to rest."""
REST_SLACK_US = 0.2

AWAKE_S = 0.2
"""An idle GPU is kept busy for no longer before its clock is taken as it is."""
FIRST_BURST = 10
"""Flushes before the first look at the clock, which shows a GPU that is awake in 0.4 ms."""
BURST = 50
"""Flushes from one look at the clock to the next: about 2 ms."""


@dataclass(frozen=True)
class Warmth:
    """The result of the warm-up."""

    calls: int
    call_us: float
    rep_cost_s: float
    settled: bool = True
    """True if kernels and time came to rest."""
    last: Sequence[Rep] = ()
    """The reps of the last pass, which tell how others are to be paced; empty where there was none."""
    sample: Sample = field(default_factory=Sample)
    """The same where it was found at rest, and not throttled: taken like any other, they count."""


def warm_up(
    instrument: Instrument,
    device: Device,
    calls: Mapping[str, Call],
    wanted: int | None,
    say: Callable[[str], None] = lambda text: None,
    made: int = 0,
) -> dict[str, Warmth]:
    """Call each until rest, or exactly as often as wanted; raise KernelsDiffer where the kernels never come to rest.

    made: the calls of each that were made before.
    """
    warmths = {}
    for name, call in calls.items():
        say(f"{name}: compiling and warming up")
        if not instrument.timer.settles:
            warmths[name] = Warmth(0, 0.0, 1e-6)
        elif wanted is not None:
            plain = [plain_call(device, call, number) for number in range(1, wanted + 1)]
            warmths[name] = Warmth(wanted, plain[-1].device_us, plain[-1].host_s) if plain else Warmth(0, 0.0, 1e-3)
        else:
            warmths[name] = call_until_steady(device, call, made)
    if wanted is not None or not instrument.timer.settles:
        return warmths
    wake(instrument, device)
    first = _first_passes(instrument, calls, warmths)
    return {name: pass_until_rest(instrument, call, warmths[name], first.get(name)) for name, call in calls.items()}


@dataclass(frozen=True)
class PlainCall:
    """The time of a call without a profiler, on the host and, roughly, on the device."""

    host_s: float
    device_us: float
    returned_s: float
    """The host's time until the call returned."""


def plain_call(device: Device, call: Call, number: int) -> PlainCall:
    """Make one call without a profiler, as compilers and autotuners may use one of their own."""
    with annotating(lambda: f"gpu_bench: raised in warm-up call {number} of {call.label!r}"):
        timed = call.prepare()
        device.synchronize()
        started_s = time.perf_counter()
        stopwatch = device.stopwatch()
        output = timed()
        returned_s = time.perf_counter() - started_s
        device_us = stopwatch()
        refuse_untimeable(output, call.label)
    return PlainCall(time.perf_counter() - started_s, device_us, returned_s)


def call_until_steady(device: Device, call: Call, made: int = 0) -> Warmth:
    """Call until the host's time shows that nothing is compiled any more."""
    calls: list[PlainCall] = []
    while len(calls) < MAX_CALLS:
        calls.append(plain_call(device, call, len(calls) + 1))
        fastest_s = min(call.host_s for call in calls)
        last_s = max(call.host_s for call in calls[-2:])
        if len(calls) >= max(2, MIN_CALLS - made) and last_s <= STEADY_RATIO * fastest_s + STEADY_SLACK_S:
            break
        is_ahead = calls[-1].returned_s <= min(AHEAD * calls[-1].host_s, MOST_LAUNCHING_S)
        if made and is_ahead and CUDA_GRAPHS not in sys.modules:
            break
    return Warmth(len(calls), min(call.device_us for call in calls), fastest_s)


def wake(instrument: Instrument, device: Device) -> None:
    """Keep a GPU busy until its clock is steady: it sinks while compilers run, and low clocks agree with each other."""
    sentinels: Sentinels | None = getattr(instrument.timer, "sentinels", None)
    if device.type != "cuda" or sentinels is None:
        return
    try:
        flush = make_flush(device, "cold")
    except DeviceUnavailable:  # no room to flush, which a timer with a hot cache does without
        return
    highest_mhz, until_s = instrument.pacing.max_clock_mhz, time.perf_counter() + AWAKE_S
    before_mhz: float | None = None
    flushes = FIRST_BURST
    while time.perf_counter() < until_s:
        device.synchronize()
        sentinels.begin(0)
        for _ in range(flushes):
            flush()
        sentinels.end(1)
        device.synchronize()
        clock_mhz = sentinels.read_clocks(1)[0]
        if clock_mhz is None or (highest_mhz is not None and clock_mhz >= KEPT_CLOCK * highest_mhz):
            return
        if before_mhz is not None and is_same_clock(before_mhz, clock_mhz):
            return
        before_mhz, flushes = clock_mhz if flushes == BURST else None, BURST


def pass_reps(call_us: float) -> int:
    """Return the reps of a pass."""
    return PROBE_REPS if call_us < SLOW_CALL_US else max(1, min(SLOW_PASS_REPS, int(SLOW_PASS_US / call_us)))


@dataclass
class _Passes:
    """Short passes with the timer: what the last one found, and whether the one before it found the same."""

    calls: int
    call_us: float
    cost_s: float
    sample: Sample = field(default_factory=Sample)
    kernels: Counter[str] | None = None
    clock_mhz: float | None = None
    difference: str = ""
    failure: MeasurementError | None = None
    rested: bool = False
    """True if kernels and time agree."""
    clock_rested: bool = False

    def take(self, instrument: Instrument, call: Call) -> None:
        """Take a pass, or two in one session where there is none to compare with.

        Those whose records are not complete agree with no other; nor do those that should have been paced and were not.
        """
        reps = pass_reps(self.call_us)
        wanted = reps if self.kernels is not None else 2 * reps
        idle_s = instrument.pacing.idle_s(self.sample.reps)
        self.sample, self.failure, started_s = Sample(), None, instrument.timer.clock_s()
        self.calls += wanted
        try:
            add_reps(instrument, call, wanted, idle_s, self.sample, 0.0, attempts=1)
        except NOT_COMPLETE as error:
            self.kernels, self.difference, self.failure, self.rested = None, str(error), error, False
            return
        self.cost_s = (instrument.timer.clock_s() - started_s) / wanted
        self.look(instrument, reps, idle_s)

    def look(self, instrument: Instrument, reps: int, idle_s: float = 0.0) -> None:
        """Compare the passes of the sample, of so many reps each, and keep the last."""
        taken = self.sample.reps
        for start in range(0, len(taken), reps):
            self.sample.reps = last = taken[start : start + reps]
            kernels, call_us = kernel_list(last[0].records), statistics.median(self.sample.samples_us)
            clocks_mhz = [rep.sm_clock_mhz for rep in last if rep.sm_clock_mhz is not None]
            clock_mhz = statistics.median(clocks_mhz) if clocks_mhz else None
            is_same = kernels == self.kernels
            self.rested = is_same and abs(call_us - self.call_us) <= REST_RATIO * call_us + REST_SLACK_US
            self.clock_rested = is_same_clock(self.clock_mhz, clock_mhz)
            self.difference = "" if is_same or self.kernels is None else describe_difference(kernels, self.kernels)
            self.kernels, self.call_us, self.clock_mhz = kernels, call_us, clock_mhz
        self.rested &= idle_s > 0 or not instrument.pacing.idle_s(self.sample.reps)


def _first_passes(
    instrument: Instrument, calls: Mapping[str, Call], plains: Mapping[str, Warmth]
) -> Mapping[str, _Passes]:
    """Return the first two passes of each call, all of one session; empty where that is too small for them."""
    sizes = {name: pass_reps(plain.call_us) for name, plain in plains.items()}
    order = [name for name, size in sizes.items() for _ in range(2 * size)]
    if len(order) > instrument.timer.max_reps:
        return {}
    arms, taken = {name: Arm(call) for name, call in calls.items()}, Interleaved({name: Sample() for name in calls})
    found = {name: _Passes(plain.calls + 2 * sizes[name], plain.call_us, 0.0) for name, plain in plains.items()}
    started_s = instrument.timer.clock_s()
    try:
        with annotating(lambda: "gpu_bench: which was in a first warm-up pass"):
            take_rounds(instrument, arms, [order], taken, 0.0, attempts=1)
    except NOT_COMPLETE:
        return found
    cost_s = (instrument.timer.clock_s() - started_s) / len(order)
    for name, passes in found.items():
        passes.cost_s, passes.sample = cost_s, taken.samples[name]
        passes.look(instrument, sizes[name])
    return found


def pass_until_rest(instrument: Instrument, call: Call, plain: Warmth, first: _Passes | None = None) -> Warmth:
    """Take short passes with the timer until two in a row launch the same kernels, in the same time, at the same clock.

    Where the clock never comes to rest, which is no fault of the call's, kernels and time alone count after the last.
    first: those that were taken already.
    """
    passes = first or _Passes(plain.calls, plain.call_us, plain.rep_cost_s)
    with annotating(lambda: f"gpu_bench: which was in a warm-up pass, after {plain.calls} calls"):
        for _ in range(MAX_PASSES - (first is not None)):
            if passes.rested and passes.clock_rested:
                break
            passes.take(instrument, call)
        if isinstance(passes.failure, IncompleteRecords):
            raise passes.failure
        if passes.difference:
            raise KernelsDiffer(
                f"{call.label!r} does not launch the same kernels in every call, even after {passes.calls} calls "
                f"({passes.difference}): its samples would not mean the same thing"
            )
        reps, idle_s = passes.sample.reps, instrument.pacing.idle_s(passes.sample.reps)
        passes.sample.reps = [*instrument.timer.calibrate(call, reps, idle_s, passes.cost_s)]
    is_sound = passes.rested and not passes.sample.throttle_mask
    sample = passes.sample if is_sound else Sample()
    return Warmth(passes.calls, passes.call_us, passes.cost_s, passes.rested, passes.sample.reps, sample)


def is_same_clock(before_mhz: float | None, clock_mhz: float | None) -> bool:
    """Tell whether a clock has come to rest, as far as it is known."""
    if before_mhz is None or clock_mhz is None:
        return True
    return abs(clock_mhz - before_mhz) <= REST_RATIO * clock_mhz
