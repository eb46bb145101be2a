"""What every rank of a call does, as other processes can read it."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import check_count
from pytest_gpubench.timing.calls import name_of
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.ranks.collectives import Collective, bus_bytes

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

TIMEOUT_S = 120.0
"""Ranks that make no progress for so long are ended: NCCL and the profiler may take half of that to start."""
START_TIMEOUT_S = 300.0
"""Until all processes have begun: they import what the test's module imports, from a cold disk it may be."""


@dataclass(frozen=True)
class Rank:
    """One of the processes that take part in a call, as its `setup` and `check` are told."""

    index: int
    world_size: int
    device: "torch.device"


@dataclass(frozen=True)
class Job:
    """What every rank does.

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
    """Whether to time it; else it is called, and checked, once."""
    timeout_s: float = TIMEOUT_S

    @property
    def name(self) -> str:
        """What the call is known by."""
        return self.label if self.label is not None else name_of(self.function)


def checked(job: Job, world_size: int) -> bytes:
    """Return a job as another process can read it; raise BadRequest for what cannot be meant."""
    if (job.collective is None) != (job.message_bytes is None):
        raise BadRequest("ranks() needs collective= and message_bytes= together, or neither: found only one of them")
    if job.collective is not None and job.message_bytes is not None:
        check_count("ranks(message_bytes={})", job.message_bytes, least=1)
        bus_bytes(job.collective, job.message_bytes, world_size)
    try:
        return pickle.dumps(job)
    except Exception as error:
        raise BadRequest(
            f"ranks({job.name}) cannot be run by other processes ({error}): its function, setup= and check= must be "
            "defined at the top of a module that can be imported, not in a test, and not be lambdas"
        ) from None
