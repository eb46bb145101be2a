"""Switches of torch that a call has to leave as it found them: the next arm's call runs under them too."""

import functools
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from pytest_gpubench.errors import UnfairComparison

UNREADABLE = "unreadable"
"""The reading of a switch that torch refuses to tell, as after its old and its new names were mixed."""


@dataclass(frozen=True)
class Switch:
    """A global switch of torch."""

    name: str
    read: Callable[[], object]
    write: Callable[[Any], object]


@functools.cache
def switches() -> tuple[Switch, ...]:
    """Return the switches that change what a call computes, or how fast."""
    from torch.backends import cuda

    return (
        *_attributes(
            "backends.cuda.matmul",
            "cublas",
            "allow_tf32",
            "allow_fp16_accumulation",
            "allow_fp16_reduced_precision_reduction",
            "allow_bf16_reduced_precision_reduction",
        ),
        *_attributes("backends.cudnn", "cudnn", "enabled", "benchmark", "deterministic", "allow_tf32"),
        Switch("float32_matmul_precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        Switch("backends.cuda.enable_flash_sdp", cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        Switch("backends.cuda.enable_mem_efficient_sdp", cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        Switch("backends.cuda.enable_math_sdp", cuda.math_sdp_enabled, cuda.enable_math_sdp),
        Switch("backends.cuda.enable_cudnn_sdp", cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
        Switch(
            "backends.cuda.allow_fp16_bf16_reduction_math_sdp",
            cuda.fp16_bf16_reduction_math_sdp_allowed,
            cuda.allow_fp16_bf16_reduction_math_sdp,
        ),
        Switch("use_deterministic_algorithms", _determinism, lambda found: _set_determinism(*found)),
        Switch("set_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
        Switch("set_default_device", lambda: torch.empty(0).device, _set_default_device),
        Switch("set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled),
        Switch("set_num_threads", torch.get_num_threads, torch.set_num_threads),
        *(_autocast(kind) for kind in ("cuda", "cpu")),
    )


def _attributes(path: str, library: str, *names: str) -> list[Switch]:
    """Return the switches that are attributes of a part of torch, those that it has.

    library: in the name of torch's own functions that read them, which take a tenth of the attribute's time; this is
    done after every call.
    """
    owner: Any = torch
    for part in path.split("."):
        owner = getattr(owner, part)
    found = []
    for name in names:
        read = getattr(torch._C, f"_get_{library}_{name}", functools.partial(getattr, owner, name))
        with suppress(RuntimeError, Warning):  # refused now, and told at another time
            try:
                read()
            except AttributeError:  # torch before 2.7 lacks some
                continue
        found.append(Switch(f"{path}.{name}", read, functools.partial(setattr, owner, name)))
    return found


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
    with warnings.catch_warnings(), suppress(RuntimeError):
        warnings.simplefilter("ignore")  # torch warns of its old names, which are all that the oldest torch has
        for switch, value, _ in rows:
            if value is not UNREADABLE:
                switch.write(value)
    found = ", ".join(f"torch.{switch.name} from {value} to {now}" for switch, value, now in rows)
    raise UnfairComparison(
        f"{who} changed {found}, and left it so: every call after it would run under that; let it put back what it "
        "changes, or change it before the comparison, for all arms alike"
    )
