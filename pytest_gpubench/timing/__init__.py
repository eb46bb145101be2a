"""Ways to time a call, each a file: `profiler`, `wall`, `scripted`."""

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Timer


def make_timer(name: str, device: Device, cache: str) -> Timer:
    """Return the timer of this name; on the CPU the profiler has nothing to see, and `wall` stands in for it."""
    if name == "scripted":
        from pytest_gpubench.timing.scripted import ScriptedTimer

        return ScriptedTimer()
    if name == "wall" or device.type == "cpu":
        from pytest_gpubench.timing.wall import WallTimer

        return WallTimer(device, cache)
    if name == "profiler":
        from pytest_gpubench.timing.profiler import ProfilerTimer

        return ProfilerTimer(device, cache)
    raise BadRequest(f"timer={name!r} is not known: it must be one of profiler, wall, scripted")
