"""Memory of tensors: where they lie, which overlap, and how many bytes a call moves."""

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch

from pytest_gpubench.correctness.leaves import flatten, inputs_of, tensor_of, tensors_of

T = TypeVar("T")
Place = tuple[torch.device, int]
"""A device, and an address on it."""


class MemoryRange(NamedTuple):
    """The bytes from the first element of a tensor to its last; they are not kept alive.

    owner: tells whether they live; None where the tensor is held meanwhile.
    """

    device: torch.device
    storage: int
    """The address of the storage."""
    start: int
    stop: int
    storage_bytes: int
    owner: "torch.multiprocessing.reductions.StorageWeakRef | None" = None

    @property
    def place(self) -> Place:
        """The device, and the address of the storage."""
        return self.device, self.storage

    def overlaps(self, other: "MemoryRange") -> bool:
        """Tell whether two ranges of one storage share a byte."""
        return self.place == other.place and self.start < other.stop and other.start < self.stop

    @property
    def lives(self) -> bool:
        """False once it may be another tensor's."""
        return self.owner is None or self._storage is not None

    @property
    def _storage(self) -> Any:
        """The storage; None once it is gone, or has other memory."""
        assert self.owner is not None, "asked for with its owner"
        found = torch.UntypedStorage._new_with_weak_ptr(self.owner.cdata)
        is_same = found is not None and (found.data_ptr(), found.nbytes()) == (self.storage, self.storage_bytes)
        return found if is_same else None

    @property
    def size_bytes(self) -> int:
        """The number of its bytes."""
        return self.stop - self.start

    @property
    def bytes(self) -> torch.Tensor:
        """The memory as int8; it has to live."""
        whole = torch.empty(0, dtype=torch.int8, device=self.device)
        return whole.set_(self._storage, self.start - self.storage, (self.size_bytes,), (1,))


Ranges = Sequence[tuple[str, MemoryRange]]
"""Memory by name."""


def living(ranges: Ranges) -> list[tuple[str, MemoryRange]]:
    """Return the memory that cannot be another tensor's yet."""
    return [each for each in ranges if each[1].lives]


def bytes_at(address: int, size: int, device: torch.device) -> torch.Tensor:
    """Return the memory at an address, which has to be there, as uint8."""
    # public ways, such as __cuda_array_interface__, need numpy
    storage: Any = torch._C._construct_storage_from_data_pointer(address, device, size)
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage, 0, (size,), (1,))


def memory_of(leaves: Sequence[tuple[str, object]], owned: bool = False) -> list[tuple[str, MemoryRange]]:
    """Return the memory of all tensors that have any, by name; owned: also what tells whether it lives."""
    found = []
    for name, tensor in tensors_of(leaves):
        try:
            storage = tensor.untyped_storage()
            start, address, size = tensor.data_ptr(), storage.data_ptr(), storage.nbytes()
        except RuntimeError:  # a tensor without a storage
            continue
        if address and tensor.numel():
            stop = start + span_of(tensor) * tensor.element_size()
            owner = torch.multiprocessing.reductions.StorageWeakRef(storage) if owned else None  # type: ignore[no-untyped-call]
            found.append((name, MemoryRange(tensor.device, address, start, stop, size, owner)))
    return found


def span_of(tensor: torch.Tensor) -> int:
    """Return how many elements the memory of a tensor has, from its first element to its last."""
    if tensor.is_contiguous():
        return tensor.numel()
    return 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))


def copied(leaf: T) -> T:
    """Return a copy of a tensor, each address once, which requires a gradient if it does, or of an array of NumPy.

    Anything else is returned as it is.
    """
    if not isinstance(leaf, torch.Tensor):
        return leaf if tensor_of(leaf) is None else copy.copy(leaf)
    values: Any = leaf.detach()
    if values.layout is torch.strided and not values.is_nested and span_of(values) < values.numel():
        made = values.as_strided((span_of(values),), (1,)).clone().as_strided(values.shape, values.stride())
    else:
        made = values.clone()
    vars(made).update({**vars(leaf), **vars(made)})
    return cast(T, made.requires_grad_(leaf.requires_grad))


def is_shared(leaves: Sequence[tuple[str, object]]) -> bool:
    """Tell whether tensors have more elements than the memory that they lie in: several are one there."""
    spans: dict[Place, list[tuple[int, int]]] = defaultdict(list)
    for _, memory in memory_of(leaves):
        spans[memory.place].append((memory.start, memory.stop))
    element_bytes = sum(tensor.numel() * tensor.element_size() for _, tensor in tensors_of(leaves))
    return element_bytes > sum(map(length_of_union, spans.values())) > 0


def overlaps(first: Sequence[tuple[str, object]], second: Sequence[tuple[str, object]]) -> list[tuple[str, str]]:
    """Return the names of tensors in two lists of leaves (as `flatten` gives them) that overlap in memory.

    The range from the first to the last element counts: two interleaved slices of one tensor overlap.
    """
    return lying_in(first, memory_of(second))


def lying_in(leaves: Sequence[tuple[str, object]], ranges: Ranges) -> list[tuple[str, str]]:
    """Return the names of tensors among leaves, each with that of memory in which it lies; it has to live."""
    others: dict[Place, list[tuple[str, MemoryRange]]] = defaultdict(list)
    for name, memory in living(ranges):
        others[memory.place].append((name, memory))
    own = memory_of(leaves) if others else ()
    return [(name, other) for name, one in own for other, two in others.get(one.place, ()) if one.overlaps(two)]


def moved_bytes(args: Sequence[object], kwargs: Mapping[str, object], outputs: object) -> int:
    """Return the bytes of all inputs and outputs of a call, each byte of memory once."""
    spans: dict[tuple[object, int], list[tuple[int, int]]] = {}
    for leaves in (inputs_of(args, kwargs), flatten(outputs)):
        elements = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors_of(leaves)}
        for name, memory in memory_of(leaves):
            # a slice with gaps is counted by its elements, a tensor expanded over its memory by its memory
            size = min(memory.size_bytes, elements[name])
            spans.setdefault((memory.device, memory.storage), []).append((memory.start, memory.start + size))
    return sum(length_of_union(ranges) for ranges in spans.values())


def length_of_union(ranges: Sequence[tuple[int, int]]) -> int:
    """Return the count of numbers that lie in at least one of several ranges."""
    total = covered = 0
    for start, stop in sorted(ranges):
        total += max(0, stop - max(start, covered))
        covered = max(covered, stop)
    return total
