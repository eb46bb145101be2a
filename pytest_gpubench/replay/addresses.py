"""The regions of a captured call in this process: its inputs, what it allocated, and whatever else it points to."""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from pytest_gpubench.correctness.inputs import regions_of
from pytest_gpubench.correctness.leaves import Leaves
from pytest_gpubench.replay.driver import DriverError, handle, out
from pytest_gpubench.replay.memory import Placed, placed
from pytest_gpubench.replay.reader import GraphReader, NotReplayable
from pytest_gpubench.replay.structures import HOST_MEMORY, MEMORY_TYPE

__tracebackhide__ = True

Segments = Sequence[dict[str, Any]]
"""Memory as torch's snapshots describe it."""


def input_regions(leaves: Leaves, device: torch.device) -> list[tuple[Placed, torch.Tensor]]:
    """Return the memory of the inputs on a device, each with its bytes."""
    found = [each for each in regions_of(leaves) if each.bytes.device == device]
    return [(placed("input", each.bytes.data_ptr(), each.bytes.nbytes, each.names), each.bytes) for each in found]


def own_regions(pool: tuple[int, int], segments: Segments) -> list[Placed]:
    """Return the memory that a graph's pool took from the driver."""
    own = [each for each in segments if tuple(each.get("segment_pool_id", ())) == tuple(pool)]
    return [placed("own", each["address"], each["total_size"]) for each in own]


class OtherMemory:
    """The finder of memory that is in no input, and in nothing that the call allocated."""

    def __init__(self, cuda: GraphReader, segments: Segments) -> None:
        self.cuda = cuda
        self.segments = segments

    def memory_at(self, address: int) -> Placed | None:
        """Return torch's block, or else the driver's allocation, at an address; None where the driver knows none.

        Raises NotReplayable for memory of the host.
        """
        kind = ctypes.c_uint()
        try:
            self.cuda.call("cuPointerGetAttribute", out(kind), ctypes.c_int(MEMORY_TYPE), ctypes.c_uint64(address))
        except DriverError:
            return None
        if kind.value == HOST_MEMORY:
            raise NotReplayable("it reads or writes memory of the host")
        for start, size in self._blocks():
            if start <= address < start + size:
                return placed("other", start, size)
        base, length = ctypes.c_uint64(), ctypes.c_size_t()
        self.cuda.call("cuMemGetAddressRange_v2", out(base), out(length), handle(address))
        return placed("other", base.value, length.value)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the address and the size of each block of torch's."""
        for segment in self.segments:
            start = segment["address"]
            for block in segment["blocks"]:
                yield start, block["size"]
                start += block["size"]
