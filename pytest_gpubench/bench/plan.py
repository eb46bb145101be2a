"""Measurement plan: whether calls are timed, how many reps are taken, and one measurement at a time."""

import os
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pytest_gpubench.errors import BadRequest, ProfilerBusy
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings import HELD_UP_TIME_S, LIMIT_TIME_S, PRECISION_TIME_S, Settings
from pytest_gpubench.timing.calls import Backward
from pytest_gpubench.timing.measurement import Plan

_measuring = threading.Lock()
_measured: list[object] = ["", 0]
"""The title of the measurement, and the thread that makes it."""


def is_enforced(settings: Settings, device: Device) -> bool:
    """Tell whether a broken limit fails the test: not on a CPU that was not asked for by name."""
    return device.type == "cuda" or settings.device == "cpu" or settings.timer == "scripted"


def is_kept(settings: Settings) -> bool:
    """Tell whether measurements are saved, or compared with what was."""
    return bool(settings.save or settings.autosave or settings.compare or settings.json)


def plan_of(settings: Settings) -> Plan:
    """Return how many reps to take, and in how much time."""
    limit_time_s = settings.budget_s or LIMIT_TIME_S
    precision_time_s = settings.budget_s or PRECISION_TIME_S
    times_s = (limit_time_s, precision_time_s, settings.budget_s or HELD_UP_TIME_S)
    return Plan(settings.cache, settings.reps, settings.warmup, settings.precision, *times_s)


def call_settings(settings: Settings, device: Device, backward: Backward) -> tuple[Settings, list[str]]:
    """Return the settings of a call, with a seed, and warnings about the host's clock where that times it.

    Raises BadRequest where only the backward run is to be a graph: what it reads is made anew by every forward run.
    """
    if settings.timer == "graph" and backward == "backward":
        raise BadRequest(
            "timer='graph' with backward='backward' was asked for, but a graph replays on the memory it was captured "
            "with, and every forward run makes what backward reads anew: use backward='both', or timer='profiler'"
        )
    if settings.seed is None:  # another for each call, so that the errors of verdicts are independent of each other
        # the scripted timer has one, and so have processes of a group, which have to call in the same order
        is_fixed = settings.timer == "scripted" or "WORLD_SIZE" in os.environ
        settings = replace(settings, seed=0 if is_fixed else secrets.randbelow(10**6))
    return settings, _clock_warnings(settings, device)


def _clock_warnings(settings: Settings, device: Device) -> list[str]:
    if settings.timer != "wall" and (device.type == "cuda" or settings.timer == "scripted"):
        return []
    warnings = []
    if settings.timer in ("events", "graph"):
        warnings.append(f"timer={settings.timer!r} needs a GPU: on the CPU the host's clock measures, timer='wall'")
    if _is_python_traced():
        warnings.append("coverage or a debugger traces Python, which slows what the host's clock times: use --no-cov")
    return warnings


def _is_python_traced() -> bool:
    """Tell whether a tool is called for lines of Python, as by coverage; hypothesis traces only after a failure."""
    tracer = sys.gettrace()
    if tracer is not None and not str(getattr(tracer, "__module__", "")).startswith("hypothesis."):
        return True
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    return monitoring is not None and bool(monitoring.get_tool(monitoring.COVERAGE_ID))


def unmeasured_reason(settings: Settings, device: Device, interpreted: int) -> str:
    """Return why calls are not timed, empty where they are.

    interpreted: how many kernels of Triton ran in its interpreter.
    """
    if settings.disable:
        return "switched off by --gpu-bench-disable"
    if device.type == "cpu" and settings.timer != "scripted" and interpreted:
        return "it ran in Triton's interpreter, whose time means nothing"
    return ""


@contextmanager
def one_at_a_time(title: str, test: str = "", may_nest: bool = False, wait_s: float = 0.0) -> Iterator[None]:
    """Raise ProfilerBusy while another measurement runs in this process: each would be in the other's numbers.

    test: whose measurement it is, for the message to others. may_nest: for the measurements of an autotuner, which the
    first, untimed calls of the measured function make. wait_s: how long to wait for the other first.
    """
    thread = threading.get_ident()
    if may_nest and _measuring.locked() and _measured[1] == thread:
        yield
        return
    if not _measuring.acquire(timeout=wait_s):
        raise ProfilerBusy(
            f"{title!r} cannot be measured while {_measured[0]} is: gpu_bench was called inside the measured "
            "function, or by two threads, one of which an earlier test may have left; measure one after the other"
        )
    _measured[:] = f"{title!r}{test and f' of {test}'}", thread
    try:
        yield
    finally:
        _measuring.release()
