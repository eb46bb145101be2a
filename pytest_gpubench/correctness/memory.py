"""Memory of tensors: where they lie, which overlap, and how many bytes a call moves."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from pytest_gpubench.correctness.leaves import Leaves, flatten, inputs_of, tensors_of

Place = tuple[torch.device, int]
"""A device, and an address on it."""


class MemoryRange(NamedTuple):
    """The bytes from the first element of a tensor to its last."""

    device: torch.device
    storage: int
    """The address of the storage."""
    start: int
    stop: int
    storage_bytes: int

    @property
    def place(self) -> Place:
        """The device, and the address of the storage."""
        return self.device, self.storage

    def overlaps(self, other: "MemoryRange") -> bool:
        """Tell whether two ranges of one storage share a byte."""
        return self.place == other.place and self.start < other.stop and other.start < self.stop


def bytes_at(address: int, size: int, device: torch.device) -> torch.Tensor:
    """Return the memory at an address, which has to be there, as uint8."""
    # public ways, such as __cuda_array_interface__, need numpy
    storage: Any = torch._C._construct_storage_from_data_pointer(address, device, size)
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage, 0, (size,), (1,))


def memory_of(leaves: Sequence[tuple[str, object]]) -> list[tuple[str, MemoryRange]]:
    """Return the memory of all tensors that have any, by name."""
    found = []
    for name, tensor in tensors_of(leaves):
        try:
            storage = tensor.untyped_storage()
            start, address, size = tensor.data_ptr(), storage.data_ptr(), storage.nbytes()
        except RuntimeError:  # a tensor without a storage
            continue
        if address and tensor.numel():
            last = tensor.numel() - 1 if tensor.is_contiguous() else _last_place(tensor)
            stop = start + (last + 1) * tensor.element_size()
            found.append((name, MemoryRange(tensor.device, address, start, stop, size)))
    return found


def _last_place(tensor: torch.Tensor) -> int:
    """Return how many elements lie between the first and the last element, in memory."""
    return sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))


def overlaps(first: Sequence[tuple[str, object]], second: Sequence[tuple[str, object]]) -> list[tuple[str, str]]:
    """Return the names of tensors in two lists of leaves (as `flatten` gives them) that overlap in memory.

    The range from the first to the last element counts: two interleaved slices of one tensor overlap.
    """
    others = _by_storage(second)
    return [(name, other) for name, one in memory_of(first) for other, two in others[one.place] if one.overlaps(two)]


def overlapping(leaves: Leaves) -> Callable[[object], bool]:
    """Return the test whether a leaf overlaps one of these in memory."""
    others = _by_storage(leaves)
    return lambda leaf: any(one.overlaps(two) for _, one in memory_of([("", leaf)]) for _, two in others[one.place])


def _by_storage(leaves: Sequence[tuple[str, object]]) -> dict[Place, list[tuple[str, MemoryRange]]]:
    found: dict[Place, list[tuple[str, MemoryRange]]] = defaultdict(list)
    for name, memory in memory_of(leaves):
        found[memory.place].append((name, memory))
    return found


def aliases(
    outputs: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
) -> list[tuple[str, str]]:
    """Return the outputs that overlap an input in memory, each with that input: `("out[0]", "args[1]")`."""
    return overlaps(flatten(outputs), inputs_of(args, kwargs))


def moved_bytes(args: Sequence[object], kwargs: Mapping[str, object], outputs: object) -> int:
    """Return the bytes of all inputs and outputs of a call, each byte of memory once."""
    spans: dict[tuple[object, int], list[tuple[int, int]]] = {}
    for leaves in (inputs_of(args, kwargs), flatten(outputs)):
        elements = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors_of(leaves)}
        for name, memory in memory_of(leaves):
            # a slice with gaps is counted by its elements, a tensor expanded over its memory by its memory
            size = min(memory.stop - memory.start, elements[name])
            spans.setdefault((memory.device, memory.storage), []).append((memory.start, memory.start + size))
    return sum(length_of_union(ranges) for ranges in spans.values())


def length_of_union(ranges: Sequence[tuple[int, int]]) -> int:
    """Return the count of numbers that lie in at least one of several ranges."""
    total = covered = 0
    for start, stop in sorted(ranges):
        total += max(0, stop - max(start, covered))
        covered = max(covered, stop)
    return total
