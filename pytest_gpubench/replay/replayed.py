"""Replay a call that is data: its regions are put into memory of this process, and its graph is built there."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import torch

from pytest_gpubench.correctness.poison import POISON
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.builder import Built, GraphBuilder, Modules
from pytest_gpubench.replay.call_data import CallData, Region, TensorData
from pytest_gpubench.replay.memory import ALIGNMENTS

Memory = list[torch.Tensor]
"""The bytes of each region of a call, as int8."""
Values = Mapping[tuple[str, ...], torch.Tensor]
"""The bytes of each region of inputs, by its names."""


@dataclass(frozen=True)
class Replayed:
    """A call in this process, that can be launched while it is held."""

    data: CallData
    memory: Memory
    device: Device
    built: Built

    def launch(self, whole: bool = False) -> None:
        """Launch it once on the current stream, as it was captured; whole: as one graph."""
        stream = torch.cuda.current_stream(self.device.torch_device).cuda_stream
        for each in [self.built.whole] if whole else self.built.as_captured:
            each(stream)

    def outputs(self) -> list[tuple[str, torch.Tensor]]:
        """Return its outputs by name, in the memory that each launch writes."""
        return [(each.name, tensor_in(self.memory[each.region], each)) for each in self.data.outputs]


def tensor_in(memory: torch.Tensor, found: TensorData) -> torch.Tensor:
    """Return a tensor in the memory of its region."""
    return tensor_at(memory, found.distance, getattr(torch, found.dtype), found.shape, found.strides)


def tensor_at(
    memory: torch.Tensor, distance: int, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    """Return a tensor so many bytes from the beginning of memory."""
    storage, start = memory.untyped_storage(), memory.storage_offset() + distance
    return torch.empty(0, dtype=dtype, device=memory.device).set_(storage, start // dtype.itemsize, shape, strides)


@contextmanager
def replaying(
    data: CallData, modules: Modules, memory: Memory, cuda: GraphBuilder, device: Device
) -> Iterator[Replayed]:
    """Give a call that can be launched; raises what `GraphBuilder.build` raises."""
    with ExitStack() as held:
        built = cuda.build(data, modules, [each.data_ptr() for each in memory], held)
        held.callback(device.synchronize)  # before it is released
        yield Replayed(data, memory, device, built)


def memory_for(regions: Sequence[Region], device: torch.device, inputs: Values = MappingProxyType({})) -> Memory:
    """Return memory for regions: that of inputs where it is given, else new memory."""
    return [new_memory(each, device) if (at := inputs.get(each.names)) is None else at for each in regions]


def new_memory(region: Region, device: torch.device) -> torch.Tensor:
    """Return new memory for a region, aligned as it was, and no larger if torch's allocator aligns it.

    Times depend on it: with more than it needs for each region, a GELU of nine kernels took 0.3 % less than launched as
    ever, on an H200, and else as long. What a call allocated is filled with a pattern, and any other memory with zeros:
    no pattern is safe where a lock or an index may lie.
    """
    alignment = ALIGNMENTS[region.kind]
    for spare in (0, alignment):
        whole = torch.empty(region.bytes + spare, dtype=torch.int8, device=device)
        start = (region.misalignment - whole.data_ptr()) % alignment
        if start <= spare:
            break
    memory = whole[start : start + region.bytes]
    if region.kind != "own":
        return memory.zero_()
    pattern = torch.tensor([POISON - 2**16], dtype=torch.int16).view(torch.int8).to(device)
    memory[: region.bytes // 2 * 2].view(-1, 2).copy_(pattern)
    return memory
