"""Switches of torch that a call has to leave as it found them: the next arm's call runs under them too."""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from pytest_gpubench.errors import UnfairComparison

UNREADABLE = "unreadable"
"""The reading of a switch that torch refuses to tell, as after its old and its new names were mixed."""


NO_SWITCHES = ("graph_exec_group", "thread_name", "torch_function_state", "tracing_state")
"""What torch can read and write too: each takes longer than all others, or belongs to no call."""


@dataclass(frozen=True)
class Switch:
    """A global switch of torch."""

    name: str
    read: Callable[[], object]
    write: Callable[[Any], object]


@functools.cache
def switches() -> tuple[Switch, ...]:
    """Return the switches that change what a call computes, or how fast: all that torch can read and write, and more.

    Read by torch's own functions, in a tenth of the time that attributes take: this is done after every call.
    """
    from torch.backends import cuda

    return (
        *_pairs(),
        Switch("backends.cuda.enable_flash_sdp", cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        Switch("backends.cuda.enable_mem_efficient_sdp", cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        Switch("backends.cuda.enable_math_sdp", cuda.math_sdp_enabled, cuda.enable_math_sdp),
        Switch("backends.cuda.enable_cudnn_sdp", cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
        Switch("use_deterministic_algorithms", _determinism, lambda found: _set_determinism(*found)),
        Switch("set_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
        Switch("set_default_device", lambda: torch.empty(0).device, _set_default_device),
        Switch("set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled),
        Switch("autograd.set_detect_anomaly", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
        Switch("set_num_threads", torch.get_num_threads, torch.set_num_threads),
        Switch("set_autocast_cache_enabled", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        *(_autocast(kind) for kind in ("cuda", "cpu")),
    )


def _pairs() -> Iterator[Switch]:
    """Yield the switches that torch has a function to read and one to write for, without other arguments."""
    for name in sorted(dir(torch._C)):
        read, write = getattr(torch._C, name), getattr(torch._C, name.replace("_get_", "_set_", 1), None)
        if name.startswith("_get_") and write is not None and name.removeprefix("_get_") not in NO_SWITCHES:
            with suppress(RuntimeError, Warning):  # refused now, and told at another time
                try:
                    read()
                except TypeError:
                    continue
            yield Switch(name.removeprefix("_get_"), read, functools.partial(_write, write))


def _write(write: Callable[..., object], value: object) -> None:
    write(*value) if isinstance(value, tuple) else write(value)


def _determinism() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_determinism(mode: bool, warn_only: bool) -> None:
    torch.use_deterministic_algorithms(mode, warn_only=warn_only)


def _set_default_device(device: Any) -> None:
    """Set the default device; for the CPU to none, as a default of its own slows every call of torch."""
    torch.set_default_device(None if device.type == "cpu" else device)


def _autocast(kind: str) -> Switch:
    return Switch(
        f"autocast of {kind}",
        lambda: torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None,
        lambda dtype: torch.set_autocast_enabled(kind, dtype is not None),
    )


Readings = tuple[object, ...]
"""The value of each switch."""


@functools.cache
def _readers() -> tuple[Callable[[], object], ...]:
    return tuple(switch.read for switch in switches())


def readings() -> Readings:
    """Return the value of each switch."""
    try:
        return tuple([read() for read in _readers()])
    except (RuntimeError, Warning):  # torch may warn of its old names, and warnings may be errors
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tuple(_reading(read) for read in _readers())


def _reading(read: Callable[[], object]) -> object:
    try:
        return read()
    except RuntimeError:
        return UNREADABLE


def refuse_switching(who: str, before: Readings) -> None:
    """Put back the switches that were changed, and raise UnfairComparison naming them."""
    after = readings()
    if after == before:
        return
    rows = [row for row in zip(switches(), before, after, strict=True) if row[1] != row[2]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its old names, which are all that the oldest torch has
        for switch, value, _ in rows:
            with suppress(RuntimeError):
                if value is not UNREADABLE:
                    switch.write(value)
    found = ", ".join(f"torch's {switch.name} from {value} to {now}" for switch, value, now in rows)
    raise UnfairComparison(
        f"{who} changed {found}, and left it so: every call after it would run under that; let it put back what it "
        "changes, or change it before the comparison, for all arms alike"
    )
