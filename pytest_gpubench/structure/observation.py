"""Waits, memory and kernels of a call on a GPU, as torch, Python and the profiler's record of the runtime show them.

The record has every wait and every cudaMalloc of any library and thread, but not from which line; what the profiler
itself does is known from a session around nothing.
"""

import gc
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.observed import Observed, Wait
from pytest_gpubench.structure.allocations import Meter
from pytest_gpubench.structure.waits import noting_waits
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.compilations import counting_compilations
from pytest_gpubench.timing.measurement import demangled

SYMBOL_VERSION = re.compile(r"(?:_v\d+)?(?:_ptsz|_ptds)?$")

WAITS = {
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
    "cudaEventSynchronize": "Event Sync",
}
"""The runtime's functions that wait, and what the record of waiting is called where the profiler keeps one."""
COPIES_AND_WAITS = re.compile(r"cudaMemcpy(?!.*Async|.*Peer)\w*")
TAKES_MEMORY = re.compile(r"cuda(?:Malloc|Free)(?!Host|Mipmapped)\w*")


class Trace(NamedTuple):
    """The profiler's records of a session."""

    calls: "Counter[str]"
    """Calls of each function of the CUDA runtime, the profiler's own among them."""
    kernels: "Counter[str]"
    """Launches of each kernel, copy and memset."""


def observe(call: Call, device: Device) -> Observed | None:
    """Return what a call does beside computing, from one untimed call or, if it may leak, two; None on a CPU.

    The call has to be warm. Resets torch's peak memory counters. Raises ProfilerBusy where another profiler is on.
    """
    if device.type != "cuda":
        return None
    nothing = traced(device, lambda: None).calls
    waits: list[Wait] = []
    gc.collect()  # what is garbage already is none of this call's doing
    timed = call.prepare()
    meter = Meter(device)
    with counting_compilations() as compiled:
        trace = traced(device, partial(call_watched, timed, waits, meter))
    del timed
    seen = trace.calls - nothing
    return Observed(
        waits=tuple(waits),
        runtime_waits=waits_in(seen),
        memory=meter.memory(call),
        driver_allocations={name: number for name, number in seen.items() if TAKES_MEMORY.fullmatch(name)},
        kernels=trace.kernels,
        compilations=compiled.number,
    )


def waits_in(calls: Mapping[str, int]) -> dict[str, int]:
    """Return the calls that wait for the GPU, each counted once though it may be recorded twice."""
    found = {name: max(calls[name], calls[record]) for name, record in WAITS.items()}
    found |= {name: number for name, number in calls.items() if COPIES_AND_WAITS.fullmatch(name)}
    return {name: number for name, number in found.items() if number}


def call_watched(timed: Callable[[], object], waits: list[Wait], meter: Meter) -> None:
    """Call once, and drop the output before memory is read."""
    with noting_waits(waits), meter:
        timed()


def traced(device: Device, function: Callable[[], object]) -> Trace:
    """Return the records of a session around a function."""
    from pytest_gpubench.timing.profiler import read_records, tracing

    with tracing(device) as profile:
        function()
    calls = Counter(SYMBOL_VERSION.sub("", event.name()) for event in profile.kineto_results.events())
    return Trace(calls, Counter(demangled(record.name) for record in read_records(profile)))
