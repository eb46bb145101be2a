"""Outputs that a single number matches within the tolerance: a function that computes nothing would pass."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pytest_gpubench.correctness.chunks import blocks_of
from pytest_gpubench.correctness.leaves import components, flatten, tensor_of
from pytest_gpubench.correctness.tolerance import Tolerance, is_exact


@dataclass(frozen=True)
class Extent:
    """The least and the largest element of an output, and its tolerance."""

    name: str
    low: float
    high: float
    rtol: float
    atol: float

    @property
    def is_constant(self) -> bool:
        """True if all elements are equal."""
        return self.low == self.high

    @property
    def allows_zeros(self) -> bool:
        """True if zeros would pass."""
        return max(abs(self.low), abs(self.high)) * (1 - self.rtol) <= self.atol

    @property
    def is_flat(self) -> bool:
        """True if one number would pass for all elements, though they are not all equal, or for none of them is 0."""
        if self.is_constant:
            return self.allows_zeros and self.low != 0
        return self._highest_allowed() >= self._lowest_allowed()

    def _highest_allowed(self) -> float:
        return self.low + self.atol + self.rtol * abs(self.low)

    def _lowest_allowed(self) -> float:
        return self.high - self.atol - self.rtol * abs(self.high)

    @property
    def sentence(self) -> str:
        """A constant that passes, and a tolerance that would tell it."""
        number = 0.0 if self.allows_zeros else (self._highest_allowed() + self._lowest_allowed()) / 2
        spread = max(abs(self.low), abs(self.high)) if self.allows_zeros else self.high - self.low
        return (
            f"{self.name} lies between {self.low:.3g} and {self.high:.3g}, so that {number:.3g} everywhere is within "
            f"rtol={self.rtol:.2g} and atol={self.atol:.2g}; rtol=0, atol={spread / 10:.1g} would tell"
        )


def extents_of(outputs: object, tolerance: Tolerance, of: str = "out") -> Iterator[Extent]:
    """Yield the extent of each finite floating-point and each integer part of outputs that have this name."""
    for name, leaf in flatten(outputs, of):
        whole = tensor_of(leaf, to_compare=True)
        if isinstance(leaf, float):
            yield Extent(name, leaf, leaf, *tolerance.of(torch.float64))
        if isinstance(leaf, int):  # which must be equal: only whether it is 0 counts, and one may exceed every float
            yield Extent(name, bool(leaf), bool(leaf), 0.0, 0.0)
        parts = components(name, whole.detach()) if whole is not None and not isinstance(leaf, float) else []
        for part, tensor in parts:
            if tensor.numel() and not tensor.is_meta:
                limits = (0.0, 0.0) if is_exact(tensor.dtype) else tolerance.of(tensor.dtype)
                yield Extent(part, *least_and_largest(tensor), *limits)


def least_and_largest(tensor: torch.Tensor) -> tuple[float, float]:
    """Return the least and the largest element; NaN for both if there is one, as of no number."""
    dense = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    dense = dense.detach()  # torch warns of numbers of a tensor with a gradient, and `-W error` makes that an error
    pairs = [torch.aminmax(_comparable(dense[block])) for block in blocks_of(dense, temporaries=16)]
    ends: list[float] = torch.stack([end for pair in pairs for end in (pair.min, pair.max)]).tolist()
    return (math.nan, math.nan) if any(map(math.isnan, ends)) else (min(ends), max(ends))


def _comparable(chunk: torch.Tensor) -> torch.Tensor:
    """Return a chunk in a dtype that torch can compare in."""
    if chunk.dtype.is_floating_point:
        return chunk.to(torch.float32) if chunk.element_size() == 1 else chunk
    return chunk.to(torch.float64)
