"""Margins around arguments: copies of them in memory of ours, in which a read or a write beyond a tensor shows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeGuard, cast

import torch

from pytest_gpubench.correctness.leaves import ArgsAndKwargs, Leaves, as_computable, inputs_of, is_usual, map_leaves
from pytest_gpubench.correctness.memory import memory_of
from pytest_gpubench.correctness.one_pass import bytes_differ
from pytest_gpubench.correctness.tolerance import dtype_name
from pytest_gpubench.correctness.variation import dense, may_overlap_itself

ALIGNED_BYTES = 512
"""torch aligns memory to this; what lies in it keeps its place within such a line."""
LEAST_MARGIN_BYTES = 2**16 + ALIGNED_BYTES
MOST_MARGIN_BYTES = 2**22 + ALIGNED_BYTES
NOT_A_NUMBER_IN_8_BITS = 0x7F
"""The byte that margins of other floats are filled with."""
UNORDERED = ("bool", "uint16", "uint32", "uint64")
"""Dtypes of which torch finds no largest element everywhere."""


@dataclass
class Buffer:
    """Memory that holds copies of the tensors of one storage, with a margin on each side and in every gap."""

    memory: torch.Tensor
    first: int
    """The address in the storage that its first byte behind the margin stands for."""
    margin_bytes: int
    leaves: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    """The tensors that lie in it, by name."""
    before: torch.Tensor | None = None
    """Its bytes before the call."""

    @property
    def name(self) -> str:
        """The name of its first tensor."""
        return self.leaves[0][0]

    def view(self, leaf: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        """Return a tensor's copy, the same shape and strides; memory: another one laid out as this is."""
        offset_bytes = self.margin_bytes + leaf.data_ptr() - self.first
        storage = (self.memory if memory is None else memory).untyped_storage()
        copy = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        return copy.set_(storage, offset_bytes // leaf.element_size(), leaf.size(), leaf.stride())

    def prepare(self, shows: bool, at_random: bool = False) -> None:
        """Fill the margins, with values whose use shows (or random ones) or with zeros, and write the values."""
        if shows and at_random:
            self.memory.random_(-128, 128)
        else:
            fill_showing(self.memory, self.leaves[0][1] if shows else None)
        for _, leaf in self.leaves:
            copy_values(self.view(leaf), leaf.detach())
        self.before = self.memory.clone()

    def put_back(self) -> None:
        """Give the tensors the values that they had, and leave the margins."""
        for _, leaf in self.leaves:
            copy_values(self.view(leaf), self.view(leaf, self.before))


def _differing(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Return the buffers that hold something else than before the call."""
    pairs = [(buffer.memory, buffer.before) for buffer in buffers if buffer.before is not None]
    return [buffer for buffer, differs in zip(buffers, bytes_differ(pairs), strict=True) if differs]


def copy_values(to: torch.Tensor, values: torch.Tensor) -> None:
    """Copy the elements of a tensor to one of the same layout, and nothing that lies between them."""
    if may_overlap_itself(dense(values)):
        ((_, target), (_, source)) = memory_of([("", to), ("", values)], owned=True)
        target.bytes.copy_(source.bytes)
    else:
        as_computable(dense(to)).copy_(as_computable(dense(values)))


def fill_showing(memory: torch.Tensor, like: torch.Tensor | None) -> None:
    """Fill memory with values whose use shows: NaN, True, a tensor's largest integer; zeros for None."""
    if like is None:
        memory.zero_()
    elif like.is_complex() or like.is_floating_point():
        dtype = like.real.dtype if like.is_complex() else like.dtype
        if is_usual(dtype):
            memory.view(dtype).fill_(math.nan)
            return
        try:
            memory.view(dtype).copy_(torch.full((1,), math.nan, device=memory.device).to(dtype))
        except (RuntimeError, TypeError):  # a dtype that torch can only store
            memory.fill_(NOT_A_NUMBER_IN_8_BITS)
    elif dtype_name(like.dtype) in UNORDERED:
        memory.view(like.dtype).fill_(1)
    else:
        largest = as_computable(like.detach()).max()
        memory.view(largest.dtype).copy_(largest + largest.eq(0))


@dataclass
class Moved:
    """Arguments in memory with margins."""

    args: tuple[object, ...]
    kwargs: dict[str, object]
    buffers: list[Buffer]

    def prepare(self, showing: Sequence[str] | None = None, at_random: bool = False) -> None:
        """Fill the margins, of the tensors of these names with values whose use shows, else with zeros; None is all.

        at_random: True for random values, which as indices break the GPU.
        """
        for buffer in self.buffers:
            buffer.prepare(showing is None or buffer.name in showing, at_random)

    def overwritten(self) -> list[str]:
        """Return the names of the arguments beyond which was written."""
        written = _differing(self.buffers)
        for buffer in written:
            buffer.put_back()
        return [buffer.name for buffer in _differing(written)]


def moved(args: Sequence[object], kwargs: Mapping[str, object], device: torch.device) -> Moved:
    """Return copies of the plain tensors among arguments, and everything else as it is.

    Tensors that share memory still do. Where a tensor has a graph, which leads back to others, nothing is copied.
    Raises RuntimeError where there is no room.
    """
    given = inputs_of(args, kwargs)
    has_graph = any(isinstance(leaf, torch.Tensor) and not leaf.is_leaf for _, leaf in given)
    leaves = [(name, leaf) for name, leaf in given if is_plain(leaf) and leaf.device == device and not has_graph]
    buffers = _buffers_of([(name, leaf) for name, leaf in leaves if leaf.numel()])
    copies: dict[int, torch.Tensor] = {}
    change = partial(_copied, buffers, copies, {id(leaf) for _, leaf in leaves})
    others = cast(ArgsAndKwargs, map_leaves(change, (tuple(args), dict(kwargs))))
    return Moved(*others, list(buffers.values()))


def _buffers_of(leaves: Leaves) -> dict[int, Buffer]:
    """Return a buffer for each storage that tensors lie in, by its address."""
    spans: dict[int, list[tuple[int, int, str, torch.Tensor]]] = {}
    for (name, leaf), (_, memory) in zip(leaves, memory_of(leaves), strict=True):
        assert isinstance(leaf, torch.Tensor)
        spans.setdefault(memory.storage, []).append((memory.start, memory.stop, name, leaf))
    buffers = {}
    for address, members in spans.items():
        first = min(start for start, *_ in members)
        span, before = max(stop for _, stop, *_ in members) - first, first % ALIGNED_BYTES
        margin = min(max(LEAST_MARGIN_BYTES, span), MOST_MARGIN_BYTES) // ALIGNED_BYTES * ALIGNED_BYTES
        size = 2 * margin + -(-(span + before) // ALIGNED_BYTES) * ALIGNED_BYTES
        made = torch.empty(size, dtype=torch.int8, device=members[0][3].device)
        buffers[address] = Buffer(made, first, margin + before, [(name, leaf) for _, _, name, leaf in members])
    return buffers


def _copied(buffers: Mapping[int, Buffer], copies: dict[int, torch.Tensor], moving: set[int], leaf: object) -> object:
    """Return a tensor's copy in its buffer, the same one for the same tensor; anything else as it is."""
    if id(leaf) not in moving or not isinstance(leaf, torch.Tensor) or not leaf.numel():
        return leaf
    if id(leaf) not in copies:
        copy = buffers[leaf.untyped_storage().data_ptr()].view(leaf)
        made: Any = torch.nn.Parameter(copy, False) if isinstance(leaf, torch.nn.Parameter) else copy
        copies[id(leaf)] = made.requires_grad_(leaf.requires_grad)
        made.grad = None if leaf.grad is None else leaf.grad.clone()
    return copies[id(leaf)]


def is_plain(leaf: object) -> TypeGuard[torch.Tensor]:
    """Tell whether a leaf is a dense tensor that nothing else belongs to: no class, graph or attribute of its own."""
    if not isinstance(leaf, torch.Tensor) or type(leaf) not in (torch.Tensor, torch.nn.Parameter):
        return False
    special = leaf.is_meta or leaf.is_quantized or leaf.is_inference() or leaf.is_conj() or leaf.is_neg()
    return leaf.layout is torch.strided and leaf.is_leaf and not special and not vars(leaf)
