"""Ways to time a call, each a file: `profiler`, `events`, `graph`, `wall`, `scripted`."""

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Timer


def make_timer(name: str, device: Device, cache: Cache) -> Timer:
    """Return the timer of this name; on the CPU those of the GPU have nothing to see, and `wall` stands in."""
    if name == "scripted":
        from pytest_gpubench.timing.scripted import ScriptedTimer

        return ScriptedTimer(cache)
    if name == "wall" or device.type == "cpu":
        from pytest_gpubench.timing.wall import WallTimer

        return WallTimer(device, cache)
    if name == "profiler":
        from pytest_gpubench.timing.profiler import ProfilerTimer

        return ProfilerTimer(device, cache)
    if name == "events":
        from pytest_gpubench.timing.events import EventsTimer

        return EventsTimer(device, cache)
    if name == "graph":
        from pytest_gpubench.timing.graph import GraphTimer

        return GraphTimer(device, cache)
    raise BadRequest(f"timer={name!r} is not known: it must be one of profiler, events, graph, wall, scripted")
