"""Ways to time a call, each a file: `profiler`, `events`, `graph`, `wall`, `scripted`."""

from importlib import import_module

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Timer

CLASSES = {
    "profiler": "ProfilerTimer",
    "events": "EventsTimer",
    "graph": "GraphTimer",
    "wall": "WallTimer",
    "scripted": "ScriptedTimer",
}
"""The class of each timer, in the module of its name."""


def make_timer(name: str, device: Device, cache: Cache) -> Timer:
    """Return the timer of this name; on the CPU those of the GPU have nothing to see, and `wall` stands in."""
    if name not in CLASSES:
        raise BadRequest(f"timer={name!r} is not known: it must be one of {', '.join(CLASSES)}")
    name = "wall" if device.type == "cpu" and name != "scripted" else name
    timer: Timer = getattr(import_module(f"{__name__}.{name}"), CLASSES[name])(device, cache)
    return timer
