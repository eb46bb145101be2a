"""Waits and memory of a call on a GPU, as torch, Python and the profiler's record of the CUDA runtime show them.

The record has every wait and every cudaMalloc of any library and thread, but not from which line; what the profiler
itself does is known from a session around nothing.
"""

import gc
import re
from collections import Counter
from collections.abc import Callable
from functools import partial

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.observed import Observed, Wait
from pytest_gpubench.structure.allocations import Meter, allocations_in
from pytest_gpubench.structure.waits import noting_waits, waits_in
from pytest_gpubench.timing.base import Call

__tracebackhide__ = True

SYMBOL_VERSION = re.compile(r"(?:_v\d+)?(?:_ptsz|_ptds)?$")


def observe(call: Call, device: Device) -> Observed | None:
    """Return a call's waits and memory, from one untimed call or, if it may leak, two; None on a CPU.

    The call has to be warm. Resets torch's peak memory counters. Raises ProfilerBusy where another profiler is on.
    """
    if device.type != "cuda":
        return None
    nothing = runtime_calls(device, lambda: None)
    waits: list[Wait] = []
    meter = Meter(device)
    gc.collect()  # what is garbage already is none of this call's doing
    timed = call.prepare()
    meter.note_prepared()
    seen = runtime_calls(device, partial(call_watched, timed, waits, meter)) - nothing
    del timed
    return Observed(tuple(waits), waits_in(seen), meter.memory(call), allocations_in(seen))


def call_watched(timed: Callable[[], object], waits: list[Wait], meter: Meter) -> None:
    """Call once, and drop the output before memory is read."""
    with noting_waits(waits), meter:
        timed()


def runtime_calls(device: Device, function: Callable[[], object]) -> "Counter[str]":
    """Return the calls of each function of the CUDA runtime, the profiler's own among them."""
    from pytest_gpubench.timing.profiler import open_profile, start_profile, stop_profile
    from pytest_gpubench.timing.startup import wait_for_startup

    wait_for_startup()
    profile = open_profile()
    device.synchronize()
    start_profile(profile)
    try:
        function()
    finally:
        stop_profile(profile)
    return Counter(SYMBOL_VERSION.sub("", event.name()) for event in profile.kineto_results.events())
