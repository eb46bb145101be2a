"""Replay a call that is data: its regions are put into memory of this process, and its graph is built there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from pytest_gpubench.correctness.poison import POISON
from pytest_gpubench.replay.builder import Executable, GraphBuilder
from pytest_gpubench.replay.call_data import CallData, Region, TensorData
from pytest_gpubench.replay.memory import ALIGNMENT

__tracebackhide__ = True

Memory = list[torch.Tensor]
"""The bytes of each region of a call, as int8."""


class Replayed:
    """A call in this process, that can be launched until it is closed."""

    def __init__(self, data: CallData, memory: Memory, graph: Executable) -> None:
        self.data = data
        self.memory = memory
        self.graph = graph

    def launch(self) -> None:
        """Launch it once on the current stream."""
        self.graph.launch(torch.cuda.current_stream().cuda_stream)

    def outputs(self) -> list[tuple[str, torch.Tensor]]:
        """Return its outputs by name, in the memory that each launch writes."""
        return [(each.name, self.tensor(each)) for each in self.data.outputs]

    def tensor(self, found: TensorData) -> torch.Tensor:
        """Return a tensor in its memory."""
        dtype: torch.dtype = getattr(torch, found.dtype)
        memory = self.memory[found.region]
        storage, start = memory.untyped_storage(), memory.storage_offset() + found.distance
        whole = torch.empty(0, dtype=dtype, device=memory.device)
        return whole.set_(storage, start // dtype.itemsize, found.shape, found.strides)


@contextmanager
def replaying(data: CallData, images: Mapping[str, bytes], memory: Memory, cuda: GraphBuilder) -> Iterator[Replayed]:
    """Give a call that can be launched; raises what `GraphBuilder.build` raises."""
    graph = cuda.build(data, images, [each.data_ptr() for each in memory])
    try:
        yield Replayed(data, memory, graph)
    finally:
        torch.cuda.synchronize()
        graph.close()


def memory_for(
    regions: Sequence[Region], device: torch.device, of_input: Callable[[Region], torch.Tensor] | None = None
) -> Memory:
    """Return memory for regions: own memory filled with a pattern, other memory with zeros.

    of_input: returns the memory of an input; None makes new memory, whose contents are not set.
    Zeros, as no pattern is safe where a lock or an index lies.
    """
    found = []
    for region in regions:
        if region.kind == "input" and of_input is not None:
            found.append(of_input(region))
            continue
        memory = aligned(region, device)
        if region.kind == "own":
            pattern = torch.tensor([POISON - 2**16], dtype=torch.int16).view(torch.int8).to(device)
            memory[: region.bytes // 2 * 2].view(-1, 2).copy_(pattern)
        elif region.kind == "other":
            memory.zero_()
        found.append(memory)
    return found


def aligned(region: Region, device: torch.device) -> torch.Tensor:
    """Return new memory for a region, aligned as it was."""
    whole = torch.empty(region.bytes + ALIGNMENT, dtype=torch.int8, device=device)
    start = (region.misalignment - whole.data_ptr()) % ALIGNMENT
    return whole[start : start + region.bytes]
