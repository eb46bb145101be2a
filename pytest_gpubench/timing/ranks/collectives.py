"""What of a message each rank's link has to carry, by collective."""

from collections.abc import Callable, Mapping
from typing import Literal

from pytest_gpubench.errors import BadRequest

__tracebackhide__ = True

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce"]
BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "reduce": lambda ranks: 1.0,
}
"""What of a message each rank's link has to carry, from nccl-tests' doc/PERFORMANCE.md, section "Summary"."""


def bus_bytes(collective: str, message_bytes: int, world_size: int) -> int:
    """Return how many bytes each rank's link has to carry for a message; raise BadRequest for what is not known.

    The message is the whole array of an all_gather or reduce_scatter, not the part of one rank.
    """
    if collective not in BUS_FACTORS:
        raise BadRequest(f"collective={collective!r} is not known: it must be one of {', '.join(BUS_FACTORS)}")
    return round(BUS_FACTORS[collective](world_size) * message_bytes)
