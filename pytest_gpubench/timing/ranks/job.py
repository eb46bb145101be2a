"""The job of every rank, in a form that other processes can read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.timing.calls import label_of
from pytest_gpubench.timing.measurement import Plan

PROGRESS_TIMEOUT_S = 120.0
"""Ranks without progress for so long are ended: NCCL and the profiler may take half of that to start."""
START_TIMEOUT_S = 300.0
"""Until all processes have begun: they import what the test's module imports, perhaps from a cold disk."""
LOOPBACK = "127.0.0.1"
"""The address at which the ranks meet: all are on this host."""

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce"]
BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "reduce": lambda ranks: 1.0,
}
"""The part of a message that each rank's link carries, from nccl-tests' doc/PERFORMANCE.md, section "Summary"."""


@dataclass(frozen=True)
class Rank:
    """One of the processes that take part in a call, as its `setup` and `check` are told."""

    index: int
    world_size: int
    device: torch.device


@dataclass(frozen=True)
class Job:
    """The work of every rank.

    setup: called with the rank before each call, untimed; returns its arguments as in `gpu_bench.measure`. check:
    called with the rank and what the function returned, before and after the timed reps.
    """

    function: Callable[..., object]
    plan: Plan
    setup: Callable[[Rank], object] | None = None
    check: Callable[[Rank, Any], object] | None = None
    label: str | None = None
    collective: Collective | None = None
    message_bytes: int | None = None
    timed: bool = True
    """True to time it; otherwise it is called, and checked, once."""
    timeout_s: float = PROGRESS_TIMEOUT_S

    @property
    def name(self) -> str:
        """The name in tables and messages."""
        return label_of(self.function, self.label)

    def bus_bytes(self, world_size: int) -> int | None:
        """Return the bytes that each rank's link carries, None for no message; raise BadRequest for invalid arguments.

        The message is the whole array of an all_gather or reduce_scatter, not the part of one rank.
        """
        if self.collective is None and self.message_bytes is None:
            return None
        if self.collective is None or self.message_bytes is None:
            raise BadRequest("ranks() needs collective= and message_bytes= together, or neither: found only one")
        if self.collective not in BUS_FACTORS:
            raise BadRequest(f"collective={self.collective!r} is not known: it must be one of {', '.join(BUS_FACTORS)}")
        return round(BUS_FACTORS[self.collective](world_size) * self.message_bytes)
