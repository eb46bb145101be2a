"""Snapshots of a call's arguments: states that show which tensors it changed."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import torch

from pytest_gpubench.correctness.chunks import blocks_of, raw_bits
from pytest_gpubench.correctness.leaves import Leaves, inputs_of, tensors_of
from pytest_gpubench.correctness.one_pass import can_check, noted_by

SEED = secrets.randbits(62)
"""The seed of the words' weights, which nobody can know beforehand."""
CHUNK_FACTOR = 0x61C8864680B583EB
"""An odd number by which the sum of each chunk is multiplied once more than that of the next."""


@dataclass(frozen=True)
class TensorState:
    """The state of a tensor, remembered without a copy."""

    dtype: str
    layout: tuple[int, int, tuple[int, ...], tuple[int, ...]] | None
    """Address, offset in the storage, shape and strides; None for a tensor without an address."""
    checksum: int | None
    """Over every bit and its place; None where the bits cannot be read."""
    version: int | None
    """torch's count of writes, where there is no checksum: it misses those of Triton kernels, and counts empty ones."""


@dataclass(frozen=True)
class Snapshot:
    """The states of a call's tensors."""

    find: Callable[[], Leaves]
    """Returns the leaves that the tensors are among, as they are now."""
    contents: bool
    """True if checksums are taken."""
    states: dict[str, TensorState] = field(repr=False)
    differentiable: list[str]
    """The names of the tensors that require a gradient."""


def snapshot(args: Sequence[object], kwargs: Mapping[str, object] | None = None) -> Snapshot:
    """Remember the state of every tensor among the arguments: a few numbers each, for which every byte is read."""
    return snapshot_of(partial(inputs_of, args, kwargs), contents=True)


def snapshot_of(find: Callable[[], Leaves], contents: bool) -> Snapshot:
    """Remember the state of every tensor among leaves; without contents, where it lies and in which layout."""
    leaves = find()
    states = {name: _state_of(tensor, contents) for name, tensor in tensors_of(leaves)}
    differentiable = [name for name, leaf in leaves if getattr(leaf, "requires_grad", False) is True]
    return Snapshot(find, contents, states, differentiable)


def changed(before: Snapshot) -> list[str]:
    """Return the names of the tensors that have changed since a snapshot: `args[0]`, `kwargs['out']`.

    A tensor has changed if it has another place in memory, shape or strides, if it begins or ceases to require a
    gradient, or if it is gone from its container or new in it; if the snapshot has contents, also if it has other bits.
    The bits count, not who wrote them: a Triton kernel is noticed, a write of the same values is not. A change of one
    element is always noticed, one of several except for one chance in 2**32 or less.
    """
    after = snapshot_of(before.find, before.contents)
    found = _in_another_state(before, after)
    turned = set(before.differentiable) ^ set(after.differentiable)
    return found + [name for name in sorted(turned) if name not in found]


def moved(before: Snapshot) -> list[str]:
    """Return those that `changed` does, less what only began or ceased to require a gradient."""
    return _in_another_state(before, snapshot_of(before.find, before.contents))


def _in_another_state(before: Snapshot, after: Snapshot) -> list[str]:
    names = [*before.states, *(name for name in after.states if name not in before.states)]
    return [name for name in names if before.states.get(name) != after.states.get(name)]


def _state_of(tensor: torch.Tensor, contents: bool) -> TensorState:
    try:
        value = checksum(tensor) if contents and not tensor.is_meta else None
        layout = tensor.data_ptr(), int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride()
    except (KeyError, RuntimeError):  # a dtype or a tensor of another kind, which has no bits to read
        return TensorState(str(tensor.dtype), None, None, _version_of(tensor))
    version = _version_of(tensor) if contents and value is None else None
    return TensorState(str(tensor.dtype), layout, value, version)


def _version_of(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def checksum(tensor: torch.Tensor) -> int:
    """Return a number that depends on every bit of a tensor and its place, for this process alone.

    It is a sum of the words, each times an odd number of 64 bits drawn for its place, so that one word that changes
    always changes it. Words of 32 bits make that so of several too: the low bits of a float64 are all 0, and products
    with them have as many zeros at the end.
    """
    tensor = _as_words(tensor.int_repr() if tensor.is_quantized else tensor)
    if tensor.dtype == torch.int32 and can_check(tensor):
        return int(noted_by("gpu_bench_checksum", [tensor], 1, torch.int64, SEED).sum())
    generator = torch.Generator(tensor.device).manual_seed(SEED)
    sums, weights = [], torch.empty(0, dtype=torch.int64, device=tensor.device)
    for block in blocks_of(tensor, temporaries=16):
        bits = raw_bits(tensor[block]).reshape(-1)
        bits = bits.contiguous().view(torch.int32) if bits.element_size() == 8 else bits
        if weights.numel() < bits.numel():
            weights = weights.new_empty(bits.numel()).random_(generator=generator).bitwise_or_(1)
        sums.append((bits * weights[: bits.numel()]).sum())
    numbers = torch.stack(sums).tolist() if sums else []
    return reduce(lambda total, number: (CHUNK_FACTOR * total + number) % 2**64, numbers, 0)


def _as_words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's memory as words of four bytes where it can be read so: fewer elements to read."""
    plain = tensor.is_contiguous() and not (tensor.is_complex() or tensor.is_neg())
    if plain and tensor.numel() * tensor.element_size() % 4 == 0 and tensor.data_ptr() % 4 == 0:
        start = tensor.storage_offset() * tensor.element_size()
        return tensor.reshape(-1).view(torch.int32) if start % 4 == 0 else tensor
    return tensor
