"""Two tensors element by element: how far apart they are, how many elements are too far, and which is the worst."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pytest_gpubench.correctness.chunks import ChunkRange, blocks_of, index_in
from pytest_gpubench.correctness.poison import holds_poison
from pytest_gpubench.correctness.tolerance import Tolerance

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

JudgedChunk = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]
"""For each element of a chunk: the difference (0 where it counts for none), the magnitude expected, what is allowed."""


@dataclass(frozen=True)
class Rules:
    """The rules for judging the elements of all outputs."""

    tolerance: Tolerance
    golden_factor: float
    has_golden: bool
    poisoned: bool
    briefly: bool = False
    """True to look no further than the first chunk with a mismatch, where only whether there is one counts."""


@dataclass(frozen=True)
class Pair:
    """Two dense tensors of one shape, dtype and device, and how they are judged."""

    found: "torch.Tensor"
    expected: "torch.Tensor"
    golden: "torch.Tensor | None"
    rules: Rules


@dataclass
class Totals:
    """The differences of a tensor, added up over its chunks."""

    mismatched: int = 0
    unwritten: int = 0
    max_abs_diff: float = 0.0
    max_rel_diff: float = 0.0
    squares: float = 0.0
    where: tuple[int, ...] | None = None
    abs_diff: float = -1.0
    allowed: float = 0.0

    def add(self, chunk: Sequence[float], where: Callable[[int], tuple[int, ...]]) -> None:
        """Add the numbers of a chunk, in the order of `_count`."""
        mismatched, unwritten, max_abs_diff, max_rel_diff, squares, place, abs_diff, allowed = chunk
        self.mismatched += int(mismatched)
        self.unwritten += int(unwritten)
        self.max_abs_diff = _largest(self.max_abs_diff, max_abs_diff)
        self.max_rel_diff = _largest(self.max_rel_diff, max_rel_diff)
        self.squares += squares
        if mismatched and _badness(abs_diff) > _badness(self.abs_diff):
            self.where, self.abs_diff, self.allowed = where(int(place)), abs_diff, allowed


def judge_chunks(
    found: "torch.Tensor",
    judge: Callable[[ChunkRange], JudgedChunk],
    poisoned: bool = False,
    briefly: bool = False,
    with_squares: bool = True,
) -> Totals:
    """Judge a tensor chunk by chunk, with one wait for the device per chunk; see `Rules`.

    with_squares: whether the squares of the differences are added up, which only golden asks for.
    """
    totals = Totals()
    for block in blocks_of(found):
        chunk = found[block]
        numbers = _count(judge(block), chunk if poisoned else None, with_squares)
        totals.add(numbers, partial(index_in, block, tuple(chunk.shape)))
        if briefly and totals.mismatched:
            break
    return totals


def judge_by_tolerance(pair: Pair, block: ChunkRange) -> JudgedChunk:
    """Allow `atol + rtol * |reference|`."""
    found, expected = pair.found[block], pair.expected[block]
    rtol, atol = pair.rules.tolerance.of(found.dtype)
    magnitude = magnitudes(expected)
    return distances(found, expected, pair.rules.tolerance.equal_nan), magnitude, atol + rtol * magnitude


def _count(judged: JudgedChunk, poisoned: "torch.Tensor | None", with_squares: bool) -> list[float]:
    """Return the numbers of a chunk, all in float64, which is exact for counts and places."""
    import torch

    diff, magnitude, allowed = (one.reshape(-1) for one in judged)
    off = ~((diff <= allowed) & diff.isfinite())
    worst = torch.where(off, diff.nan_to_num(nan=math.inf, posinf=math.inf), -1.0).argmax()
    relative = torch.where(diff == 0, 0.0, diff / magnitude)
    squares = torch.where(diff.isfinite(), diff, 0.0).square().sum() if with_squares else diff.new_zeros(())
    unwritten = off.new_zeros(()) if poisoned is None else (off & holds_poison(poisoned)).sum()
    numbers = [
        off.sum(),
        unwritten,
        diff.max(),
        relative.max(),
        squares,
        worst,
        diff.take(worst),
        allowed.take(worst),
    ]
    return [float(number) for number in torch.stack([one.to(torch.float64) for one in numbers]).tolist()]


def _largest(one: float, other: float) -> float:
    """Return the larger number; NaN if either is."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def _badness(abs_diff: float) -> float:
    return math.inf if math.isnan(abs_diff) else abs_diff


def as_numbers(chunk: "torch.Tensor") -> "torch.Tensor":
    """Return a chunk in float64 or complex128.

    Every float, and every integer of 32 bits or fewer, is exact there, and so is whether two differ; float32 would
    round away differences that are judged. It costs no more time: a chunk is bound by memory on data-centre GPUs.
    """
    import torch

    dtype = torch.complex128 if chunk.dtype.is_complex else torch.float64
    return chunk.to(dtype, memory_format=torch.contiguous_format)


def magnitudes(chunk: "torch.Tensor") -> "torch.Tensor":
    """Return absolute values, finite: the largest float64 for infinity, 0 for NaN."""
    return as_numbers(chunk).abs().nan_to_num(nan=0.0)


def distances(found: "torch.Tensor", expected: "torch.Tensor", equal_nan: bool) -> "torch.Tensor":
    """Return absolute differences in float64: 0 only where two elements are equal, NaN where one of them is."""
    import torch

    if found.dtype in (torch.int64, torch.uint64):
        return _distances_of_int64(found, expected)
    one, other = as_numbers(found), as_numbers(expected)
    equal = one == other
    if equal_nan:
        equal |= one.isnan() & other.isnan()
    return (one - other).abs().masked_fill(equal, 0.0)


def _distances_of_int64(found: "torch.Tensor", expected: "torch.Tensor") -> "torch.Tensor":
    """Subtract as integers: float64 cannot hold 64 bits.

    The larger less the smaller wraps around to a negative number where it exceeds 63 bits; read without its sign it is
    right. uint64 is shifted onto int64, which keeps differences.
    """
    import torch

    if found.dtype == torch.uint64:
        found, expected = (one.view(torch.int64) ^ torch.iinfo(torch.int64).min for one in (found, expected))
    wrapped = torch.maximum(found, expected) - torch.minimum(found, expected)
    diff = wrapped.to(torch.float64)
    return torch.where(wrapped < 0, diff + 2.0**64, diff)
