"""Checks that make a number INVALID: replaced clocks, memory faster than its peak."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.correctness import moved_bytes
from pytest_gpubench.correctness.probing import least_share, needed_share
from pytest_gpubench.correctness.variation import variable_tensors
from pytest_gpubench.errors import InvalidResult
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.persisting import set_aside_as_before
from pytest_gpubench.results.model import Timing
from pytest_gpubench.results.roofline import READS_MEMORY
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import backward_of
from pytest_gpubench.timing.peaks import copy_bandwidth
from pytest_gpubench.timing.tampering import replaced
from pytest_gpubench.units import format_bytes, format_time

SEES_GPU = ("profiler", "events", "graph")
"""The timers whose times hold all that the GPU did."""
FLOOR_SHARE = 0.8
"""The shortest valid time over a copy's for as many bytes: reading alone may be a tenth faster."""


@contextmanager
def auditing(settings: Settings, device: Device) -> Iterator[None]:
    """Raise InvalidResult where measuring relies on something that a test has replaced, or cache is set aside."""
    check_clocks(settings)
    with watching_cache(settings, device):
        yield
    check_clocks(settings)


def watching_cache(settings: Settings, device: Device) -> AbstractContextManager[Callable[[], None]]:
    """Return the context, and the check within it, that raise InvalidResult for cache that calls set aside."""
    on_gpu = device.type == "cuda" and settings.takes_times
    return set_aside_as_before(device.cache_bytes) if on_gpu and settings.cache != "hot" else nullcontext(lambda: None)


def check_clocks(settings: Settings) -> None:
    """Raise InvalidResult where a measurement would rely on something that a test has replaced."""
    if settings.timer == "scripted":
        return
    name = replaced()
    if name is not None:
        raise InvalidResult(
            f"{name} was replaced, and measuring relies on it: no number can be trusted; undo it before measuring"
        )


@dataclass(frozen=True)
class Traffic:
    """The bytes that a call has to move, at least."""

    least_bytes: int
    needed: Callable[[], int] | None = None
    """Returns the part of the inputs and outputs that is found to matter; None where the test gave the number."""
    backward_only: bool = False
    """True if the forward run is not timed."""

    @property
    def advice(self) -> str:
        """The likely reason for a time that is too short, and what to do."""
        if self.backward_only:
            return (
                "its gradient may have been made in the forward run, which is not timed: use backward='both'. "
                "If it has less to move, say how much with bytes="
            )
        return "does it compute everything in every call? If it has less to move, say how much with bytes="


def traffic_of(given: int | None, agreement: Agreement, outputs: object, device: Device) -> Traffic:
    """Return what a call has to move: what was given, or its inputs and outputs, less what the cache may keep."""
    backward_only = agreement.backward == "backward"
    if given is not None:
        return Traffic(given, backward_only=backward_only)

    def less(moved: float) -> int:
        return max(0, int(moved) - device.cache_bytes)

    def needed() -> int:
        written = moved_bytes((), {}, outputs)
        share = least_share(needed_share(agreement.reference, agreement.fresh))
        probed = moved_bytes(variable_tensors(agreement.fresh()), {}, outputs)  # integers are not probed
        return less(written + share * (probed - written))

    return Traffic(less(moved_bytes(*agreement.fresh(), outputs)), needed, backward_only)


def check_traffic(call: Call, timing: Timing, given: int | None, device: Device) -> None:
    """Raise InvalidResult for a call that took less time than the traffic that the test gave needs."""
    if given is not None:
        backward = backward_of(call)
        backward_only = backward is not None and not backward.with_forward
        check_floor(timing, Traffic(given, backward_only=backward_only), device, timing)


def check_floor(timing: Timing, traffic: Traffic, device: Device, reference: Timing) -> None:
    """Raise InvalidResult for a call that took less time than its traffic needs.

    An assumed traffic does not count where the reference takes less time than that too. Of the inputs only what
    changes the reference's outputs counts.
    """
    reads_memory = device.type == "cuda" and timing.timer in SEES_GPU and timing.cache in READS_MEMORY
    if not reads_memory or not traffic.least_bytes:
        return
    bandwidth = copy_bandwidth(device)
    if bandwidth is None or timing.median_us >= FLOOR_SHARE * traffic.least_bytes / bandwidth:
        return
    least_bytes = traffic.least_bytes
    if traffic.needed is not None:
        if reference.median_us < least_bytes / bandwidth:
            return
        least_bytes = traffic.needed()
    floor_us = least_bytes / bandwidth
    if timing.median_us >= FLOOR_SHARE * floor_us:
        return
    raise InvalidResult(
        f"{timing.label} is faster than memory allows: {format_time(timing.median_us)} for "
        f"{format_bytes(least_bytes)}, which a copy on this GPU moves in {format_time(floor_us)}; {traffic.advice}"
    )
