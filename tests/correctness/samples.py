"""Outputs to compare: dtypes, containers, the same elements in other places of memory."""

import dataclasses
from collections import namedtuple
from typing import Any

import torch
from hypothesis import strategies as st
from torch.utils._pytree import register_pytree_node

from pytest_gpubench.correctness import Difference, compare_outputs, flatten
from pytest_gpubench.correctness.leaves import tensors_of
from pytest_gpubench.correctness.poison import holds_poison

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128)
PAIR = namedtuple("PAIR", "mean std")


@dataclasses.dataclass(frozen=True)
class State:
    hidden: object
    cell: object = None


class Known:
    """A container that torch was told of, without names."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts


class Halved:
    """A container that torch knows, and that makes its part anew each time it is looked into."""

    def __init__(self, part: torch.Tensor) -> None:
        self.part = part


register_pytree_node(Halved, lambda halved: ([halved.part / 2], None), lambda parts, _: Halved(*parts))
register_pytree_node(Known, lambda known: (list(known.parts), None), lambda parts, _: Known(*parts))


def compare(candidate: object, reference: object, **options: Any) -> Difference:
    """Compare what is known to be one leaf."""
    (difference,) = compare_outputs(candidate, reference, **options)
    return difference


def poison(dtype: torch.dtype, elements: int) -> torch.Tensor:
    return torch.full((elements * dtype.itemsize // 2,), -3, dtype=torch.int16).view(dtype)


def unwritten(outputs: object) -> dict[str, int]:
    """Return by name how many elements of each output hold what free memory is filled with, where there are any.

    Outputs whose dtype is too narrow to tell are left out: of 8 bits, and integers of 16.
    """
    tensors = tensors_of([(name, leaf) for name, leaf in flatten(outputs) if not getattr(leaf, "is_meta", False)])
    telling = [
        (name, one)
        for name, one in tensors
        if one.element_size() >= (2 if one.is_floating_point() or one.is_complex() else 4)
    ]
    counts = {name: int(holds_poison(tensor).sum()) for name, tensor in telling if tensor.numel()}
    return {name: number for name, number in counts.items() if number}


def layouts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the same elements in other places of memory."""
    spread = torch.zeros([2 * size + 1 for size in x.shape], dtype=x.dtype)
    spread = spread[tuple(slice(1, None, 2) for _ in x.shape)]
    dims = list(reversed(range(x.dim())))
    return {
        "contiguous": x.clone(memory_format=torch.contiguous_format),
        "transposed": x.permute(dims).contiguous().permute(dims),
        "strided": spread.copy_(x),
        "offset": torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].reshape(x.shape),
    }


shapes = st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple)
chunk_sizes = st.integers(1, 40)
names = st.sampled_from(["contiguous", "transposed", "strided", "offset"])
