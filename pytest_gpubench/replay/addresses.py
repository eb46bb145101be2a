"""The regions of a captured call in this process: its inputs, what it allocated, and whatever else it points to."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from pytest_gpubench.correctness.inputs import regions_of
from pytest_gpubench.correctness.leaves import Leaves
from pytest_gpubench.replay.driver import DriverError, out
from pytest_gpubench.replay.memory import Placed, placed
from pytest_gpubench.replay.reader import GraphReader, NotReplayable
from pytest_gpubench.replay.replayed import Values, new_memory, tensor_at
from pytest_gpubench.replay.structures import HOST_MEMORY, MEMORY_TYPE
from pytest_gpubench.timing.base import Call, Prepared

Segments = Sequence[dict[str, Any]]
"""Memory as torch's snapshots describe it."""
UNUSED = "inactive"
"""The state of a block that no tensor lies in."""


def input_regions(leaves: Leaves, device: torch.device) -> list[tuple[Placed, torch.Tensor]]:
    """Return the memory of the inputs on a device, each with its bytes."""
    found = [each for each in regions_of(leaves) if each.bytes.device == device]
    return [(placed("input", each.bytes.data_ptr(), each.bytes.nbytes, each.names), each.bytes) for each in found]


def input_memory(leaves: Leaves, device: torch.device) -> Values:
    """Return the bytes of the inputs on a device."""
    return {place.region.names: memory for place, memory in input_regions(leaves, device)}


def inputs_elsewhere(call: Call, leaves: Leaves, device: torch.device) -> Call:
    """Return a call that finds its plain tensors in other memory while it runs."""
    moved: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    plain = [  # no more than their memory
        leaf
        for _, leaf in leaves
        if isinstance(leaf, torch.Tensor) and type(leaf) in (torch.Tensor, torch.nn.Parameter)
        if leaf.device == device and leaf.layout == torch.strided and not leaf.is_conj() and not leaf.is_neg()
    ]
    for place, memory in input_regions(leaves, device):
        copy = new_memory(place.region, device).copy_(memory)
        for tensor in plain:
            distance = tensor.data_ptr() - place.start
            if 0 <= distance < memory.nbytes:
                elsewhere = tensor_at(copy, distance, tensor.dtype, tensor.shape, tensor.stride())
                moved.append((tensor, tensor.data, elsewhere))

    def prepare() -> Prepared:
        prepared = call.prepare()

        def run() -> object:
            for tensor, _, elsewhere in moved:
                tensor.data = elsewhere
            try:
                return prepared.run()
            finally:
                for tensor, given, _ in moved:
                    tensor.data = given

        return replace(prepared, run=run)

    return replace(call, prepare=prepare)


class OtherMemory:
    """The finder of memory that is in no input, and in nothing that the call allocated."""

    def __init__(self, cuda: GraphReader, segments: Segments) -> None:
        self.cuda = cuda
        self.segments = segments

    def knows(self, address: int) -> bool:
        """Tell whether the driver knows memory at an address; raises NotReplayable for memory of the host."""
        kind = ctypes.c_uint()
        try:
            self.cuda.call("cuPointerGetAttribute", out(kind), ctypes.c_int(MEMORY_TYPE), ctypes.c_uint64(address))
        except DriverError:
            return False
        if kind.value == HOST_MEMORY:
            raise NotReplayable("it reads or writes memory of the host")
        return True

    def memory_at(self, address: int) -> Placed | None:
        """Return torch's block at an address; None where the driver knows no memory, or no tensor lies in it.

        Raises NotReplayable for memory of the host, and for what torch has not allocated: a library keeps there what
        its kernels rely on, as tables and addresses.
        """
        if not self.knows(address):
            return None
        for segment in self.segments:
            start = segment["address"]
            for block in segment["blocks"]:
                if start <= address < start + block["size"]:
                    return None if block["state"] == UNUSED else placed("other", start, block["size"])
                start += block["size"]
        raise NotReplayable("it uses memory that torch has not allocated, as tables of a library")
