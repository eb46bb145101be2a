"""Ways to time a call, each a file: `profiler`, `events`, `graph`, `wall`, `scripted`."""

from importlib import import_module

from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Timer


def make_timer(name: str, device: Device, cache: Cache) -> Timer:
    """Return the timer of this name; on the CPU those of the GPU have nothing to see, and `wall` stands in."""
    name = "wall" if device.type == "cpu" and name != "scripted" else name
    timer: Timer = getattr(import_module(f"{__name__}.{name}"), f"{name.capitalize()}Timer")(device, cache)
    return timer
