"""Waits and memory of a call on a GPU, as torch, Python and the profiler's record of the CUDA runtime show them.

The record has every wait and every cudaMalloc of any library and thread, but not from which line; what the profiler
itself does is known from a session around nothing.
"""

import gc
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.observed import Observed, Wait
from pytest_gpubench.structure.allocations import Meter
from pytest_gpubench.structure.waits import noting_waits
from pytest_gpubench.timing.base import Call

__tracebackhide__ = True

SYMBOL_VERSION = re.compile(r"(?:_v\d+)?(?:_ptsz|_ptds)?$")

WAITS = {
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
    "cudaEventSynchronize": "Event Sync",
}
"""The runtime's functions that wait, and what the record of waiting is called where the profiler keeps one."""
COPIES_AND_WAITS = re.compile(r"cudaMemcpy(?!.*Async|.*Peer)\w*")
TAKES_MEMORY = re.compile(r"cuda(?:Malloc|Free)(?!Host|Mipmapped)\w*")


def observe(call: Call, device: Device) -> Observed | None:
    """Return a call's waits and memory, from one untimed call or, if it may leak, two; None on a CPU.

    The call has to be warm. Resets torch's peak memory counters. Raises ProfilerBusy where another profiler is on.
    """
    if device.type != "cuda":
        return None
    nothing = runtime_calls(device, lambda: None)
    waits: list[Wait] = []
    gc.collect()  # what is garbage already is none of this call's doing
    timed = call.prepare()
    meter = Meter(device)
    seen = runtime_calls(device, partial(call_watched, timed, waits, meter)) - nothing
    del timed
    return Observed(tuple(waits), waits_in(seen), meter.memory(call), allocations_in(seen))


def waits_in(calls: Mapping[str, int]) -> dict[str, int]:
    """Return the calls that wait for the GPU, each counted once though it may be recorded twice."""
    found = {name: max(calls[name], calls[record]) for name, record in WAITS.items()}
    found |= {name: number for name, number in calls.items() if COPIES_AND_WAITS.fullmatch(name)}
    return {name: number for name, number in found.items() if number}


def allocations_in(calls: Mapping[str, int]) -> dict[str, int]:
    """Return the calls that take GPU memory from the driver, or give it back."""
    return {name: number for name, number in calls.items() if TAKES_MEMORY.fullmatch(name)}


def call_watched(timed: Callable[[], object], waits: list[Wait], meter: Meter) -> None:
    """Call once, and drop the output before memory is read."""
    with noting_waits(waits), meter:
        timed()


def runtime_calls(device: Device, function: Callable[[], object]) -> "Counter[str]":
    """Return the calls of each function of the CUDA runtime, the profiler's own among them."""
    from pytest_gpubench.timing.profiler import open_profile, start_profile, stop_profile
    from pytest_gpubench.timing.startup import prepare_profiler

    prepare_profiler()
    profile = open_profile()
    device.synchronize()
    start_profile(profile)
    try:
        function()
    finally:
        stop_profile(profile)
    return Counter(SYMBOL_VERSION.sub("", event.name()) for event in profile.kineto_results.events())
