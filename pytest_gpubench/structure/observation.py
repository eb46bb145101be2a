"""Waits, memory and kernels of a call on a GPU, as torch, Python and the profiler's record of the runtime show them.

The record has every wait and every cudaMalloc of any library and thread, but not from which line; what the profiler
itself does is known from a session around nothing. torch's sync debug mode sees torch's own operations wait
(`.item()`, `.cpu()`, `nonzero`, `Stream.synchronize`), and the stack tells where. It does not see
`torch.cuda.synchronize` and `Event.synchronize`: calls of those from Python are seen by Python's profile function, in
the thread that calls.
"""

import gc
import linecache
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.observed import Observed, Wait
from pytest_gpubench.structure.allocations import Meter
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.compilations import counting_compilations
from pytest_gpubench.timing.measurement import demangled
from pytest_gpubench.timing.profiler import read_records, tracing

SYMBOL_VERSION = re.compile(r"(?:_v\d+)?(?:_ptsz|_ptds)?$")

WAITS = {
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
    "cudaEventSynchronize": "Event Sync",
}
"""The runtime's functions that wait, and what the record of waiting is called where the profiler keeps one."""
COPIES_AND_WAITS = re.compile(r"cudaMemcpy(?!.*Async|.*Peer)\w*")
TAKES_MEMORY = re.compile(r"cuda(?:Malloc|Free)(?!Host|Mipmapped)\w*")
SYNC_WARNING = "called a synchronizing CUDA operation"
BLIND_SPOTS = frozenset({"_cuda_synchronize", "_accelerator_synchronizeDevice", "synchronize"})
"""Functions of torch's C++ that wait unseen by its debug mode: of the methods `synchronize`, those of events."""
WARNINGS_FILES = ("warnings.py", "_py_warnings.py")
OWN_FOLDER = f"{Path(__file__).parents[1]}{os.sep}"


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

    def call_watched(timed: Callable[[], object]) -> None:
        with noting_waits(waits), meter:
            timed()  # whose output is dropped before memory is read

    with counting_compilations() as compiled:
        trace = traced(device, partial(call_watched, timed))
    del timed
    seen = trace.calls - nothing
    runtime_waits = {name: max(seen[name], seen[record]) for name, record in WAITS.items()}  # recorded as one or both
    runtime_waits |= {name: number for name, number in seen.items() if COPIES_AND_WAITS.fullmatch(name)}
    return Observed(
        waits=tuple(waits),
        runtime_waits={name: number for name, number in runtime_waits.items() if number},
        memory=meter.memory(call),
        driver_allocations={name: number for name, number in seen.items() if TAKES_MEMORY.fullmatch(name)},
        kernels=trace.kernels,
        compilations=compiled.number,
    )


def traced(device: Device, function: Callable[[], object]) -> Trace:
    """Return the records of a session around a function."""
    with tracing(device) as profile:
        function()
    calls = Counter(SYMBOL_VERSION.sub("", event.name()) for event in profile.kineto_results.events())
    return Trace(calls, Counter(demangled(record.name) for record in read_records(profile)))


# where the host waits


@contextmanager
def noting_waits(waits: list[Wait]) -> Iterator[None]:
    """Note where the host waits for the GPU, as torch and Python see it."""

    def show(message: Warning | str, *others: Any, **more: Any) -> None:
        if SYNC_WARNING in str(message):
            waits.append(wait_at(sys._getframe(1), "an operation of torch"))

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with noting_blind_spots(waits):
                yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def noting_blind_spots(waits: list[Wait]) -> Iterator[None]:
    """Note where Python calls what torch's debug mode does not see; a profile that somebody else takes goes on."""

    def see(frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call" or getattr(function, "__name__", "") not in BLIND_SPOTS:
            return
        if function.__name__ != "synchronize" or isinstance(function.__self__, (torch.cuda.Event, torch.Event)):
            waits.append(wait_at(frame, "synchronize()"))

    if sys.getprofile() is not None:
        yield
        return
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(None)


def wait_at(frame: FrameType | None, otherwise: str) -> Wait:
    """Return a wait with the source line of the innermost frame of the user's.

    None of torch's or Triton's code, of what they have written, of Python's `warnings`, or of this package.
    """
    folders = [Path(module.__file__ or "").parent for name in ("torch", "triton") if (module := sys.modules.get(name))]
    theirs = (OWN_FOLDER, *(f"{folder}{os.sep}" for folder in folders))
    while frame is not None:
        file = frame.f_code.co_filename
        if not (file.startswith(theirs) or "torchinductor_" in file or Path(file).name in WARNINGS_FILES):
            break
        frame = frame.f_back
    if frame is None:
        return Wait(otherwise)
    name = frame.f_code.co_filename
    source = linecache.getline(name, frame.f_lineno, frame.f_globals).strip()
    relative = os.path.relpath(name) if os.path.isabs(name) else name
    return Wait(source or otherwise, f"{name if relative.startswith(os.pardir) else relative}:{frame.f_lineno}")
