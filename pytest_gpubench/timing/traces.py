"""Traces for Perfetto: a few calls on the host and on the GPU, never those that are timed."""

import gzip
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.files import write_file
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.l2flush import make_flush
from pytest_gpubench.timing.profiler import tracing

TRACE_REPS = 3
GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "ac2g"})
"""The categories of work on the GPU, and of the arrows that lead there."""
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver"})
"""The categories of what puts work on the GPU, and bears the same correlation as that work."""

Event = dict[str, Any]


def take_trace(
    call: Call,
    device: Device,
    path: Path,
    reps: int = TRACE_REPS,
    *,
    cache: Cache = "cold",
    warn: Callable[[str], object] = warnings.warn,
) -> Path | None:
    """Write a trace of a few more calls, compressed, and return its path; None where that failed, which `warn` is told.

    The call has to be warm. Each rep is prepared, and the cache brought into its state, as in a timed one; what that
    does on host and GPU is left out of the trace. On the CPU there is nothing of a GPU in it.
    """
    try:
        text = record(call, device, reps, cache)
        trace = trimmed(json.loads(text), span_names(call, reps))
        write_file(gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), mtime=0), path)
    except Exception as error:  # a trace is an extra: whatever is wrong with it, the measurement stands
        warn(f"there is no trace of {call.label!r} ({type(error).__name__}: {error}): its measurement is not affected")
        return None
    return path


def record(call: Call, device: Device, reps: int, cache: Cache) -> str:
    """Return the profiler's trace of so many calls, each within a span of its own; raise ProfilerBusy."""
    flush = make_flush(device, cache)
    with tracing(device, host=True) as profile:
        for name in span_names(call, reps):
            timed = call.prepare()
            flush()
            device.synchronize()
            with torch.autograd.profiler.record_function(name):
                timed()
                device.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        return file.read_text(encoding="utf-8", errors="replace")


def span_names(call: Call, reps: int) -> list[str]:
    """Return the names of the calls in their trace, without what the profiler drops or leaves unescaped in its JSON."""
    label = re.sub(r'[^ -~]|["\\]', "?", call.label)
    return [f"{label} (call {number} of {reps})" for number in range(1, reps + 1)]


# trimming


def trimmed(trace: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a trace with nothing but what happened in the spans of these names; raise ValueError where one is missing.

    Work on the GPU belongs to the span in which it was launched, as the GPU's clock and the host's are not the same.
    """

    def is_within(event: Event) -> bool:
        return any(begin <= event["ts"] <= end for begin, end in spans.values())

    def belongs(event: Event) -> bool:
        if event.get("ph") == "M" or "ts" not in event:  # it names something
            return True
        if event.get("cat") == "gpu_user_annotation":
            return event.get("name") in spans or is_within(event)
        launch = launched.get(correlation_of(event)) if event.get("cat") in GPU_CATEGORIES else None
        return is_within(launch or event)

    events: list[Event] = trace.get("traceEvents", [])
    annotated = [each for each in events if each.get("ph") == "X" and each.get("cat") == "user_annotation"]
    spans = {each["name"]: (each["ts"], each["ts"] + each["dur"]) for each in annotated if each["name"] in names}
    if missing := [name for name in names if name not in spans]:
        raise ValueError(f"the profiler kept no record of {missing[0]!r}")
    launched = {correlation_of(event): event for event in events if event.get("cat") in LAUNCHES}
    told = {name: value for name, value in trace.items() if name != "traceName"}  # a path that is gone by now
    return {**told, "traceEvents": list(filter(belongs, events))}


def correlation_of(event: Event) -> object:
    """Return the id that an event on the GPU shares with its launch on the host; None if it has none."""
    if event.get("cat") == "ac2g":
        return event.get("id")
    return event.get("args", {}).get("correlation")
