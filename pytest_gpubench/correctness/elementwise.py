"""Two tensors element by element: how far apart they are, how many elements are too far, and which is the worst."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pytest_gpubench.correctness.chunks import ChunkRange, blocks_of
from pytest_gpubench.correctness.one_pass import can_check, noted_by
from pytest_gpubench.correctness.poison import holds_poison
from pytest_gpubench.correctness.tolerance import Tolerance, is_exact

MARGIN = 1 - 2**-20
"""The part of a tolerance that is sure to be allowed, whatever the steps in float32 round."""
LEAST_TOLERANCE = 1e-30
"""From here to its inverse float32 rounds to so many digits; subnormal numbers have fewer."""

JudgedChunk = tuple[torch.Tensor, torch.Tensor]
"""For each element of a chunk: the difference (0 where it counts for none), and what is allowed."""


@dataclass(frozen=True)
class Rules:
    """The rules for judging the elements of all outputs."""

    tolerance: Tolerance
    golden_factor: float
    has_golden: bool
    poisoned: bool
    briefly: bool = False
    """True where only whether there is a mismatch counts: nothing is looked at after the first chunk that has one.

    The largest difference is then infinite.
    """


@dataclass(frozen=True)
class Pair:
    """Two dense tensors of one shape, dtype and device, and how they are judged."""

    found: torch.Tensor
    expected: torch.Tensor
    golden: torch.Tensor | None
    rules: Rules


@dataclass
class Totals:
    """The differences of a tensor, added up over its chunks."""

    mismatched: int = 0
    unwritten: int = 0
    nans: int = 0
    max_abs_diff: float = 0.0
    squares: float = 0.0
    where: tuple[int, ...] | None = None
    abs_diff: float = -1.0
    allowed: float = 0.0


def judge_chunks(
    found: torch.Tensor,
    judge: Callable[[ChunkRange], JudgedChunk],
    poisoned: bool = False,
    briefly: bool = False,
) -> Totals:
    """Judge a tensor chunk by chunk, with one wait for the device and one per chunk with a mismatch; see `Rules`."""
    blocks: list[ChunkRange] = []
    sums: list[torch.Tensor] = []
    for block in blocks_of(found):
        blocks.append(block)
        diff, allowed = judge(block)
        squares = torch.where(diff.isfinite(), diff, 0.0).square().sum()
        mismatches = _is_off(diff, allowed).sum().to(torch.float64)  # exact for counts
        sums.append(torch.stack([mismatches, diff.max(), squares]))
        if briefly and sums[-1][0]:
            break
    is_whole = len(blocks) == len(list(blocks_of(found)))
    totals = Totals(max_abs_diff=0.0 if is_whole else math.inf)
    for block, (mismatched, max_abs_diff, squares) in zip(blocks, _read(sums), strict=True):
        totals.mismatched += int(mismatched)
        totals.max_abs_diff = _largest(totals.max_abs_diff, max_abs_diff)
        totals.squares += squares
        if mismatched and not briefly:
            _add_mismatches(totals, found, judge, poisoned, block)
    return totals


def _is_off(diff: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    return ~((diff <= allowed) & (diff < math.inf))


def _add_mismatches(
    totals: Totals,
    found: torch.Tensor,
    judge: Callable[[ChunkRange], JudgedChunk],
    poisoned: bool,
    block: ChunkRange,
) -> None:
    """Add the elements of a chunk that are unwritten or NaN, and its worst one if none before is worse."""
    chunk = found[block]
    diff, allowed = (one.reshape(-1) for one in judge(block))
    off = _is_off(diff, allowed)
    if poisoned:
        totals.unwritten += int((off & holds_poison(chunk)).sum())
    totals.nans += int((off & as_numbers(chunk).reshape(-1).isnan()).sum())
    worst = torch.where(off, diff.nan_to_num(nan=math.inf, posinf=math.inf), -1.0).argmax()
    place, abs_diff, limit = _read([worst.to(torch.float64), diff.take(worst), allowed.take(worst)])
    if _badness(abs_diff) > _badness(totals.abs_diff):
        within = torch.unravel_index(torch.tensor(int(place)), chunk.shape)
        starts = [part.start for part in block] + [0] * (len(within) - len(block))
        totals.where = tuple(start + int(at) for start, at in zip(starts, within, strict=True))
        totals.abs_diff, totals.allowed = abs_diff, limit


def _read(tensors: list[torch.Tensor]) -> list[Any]:
    """Return the numbers of small tensors of one shape, with one wait for the device."""
    return torch.stack(tensors).tolist() if tensors else []


def judge_by_tolerance(pair: Pair) -> Totals:
    """Return the differences; allow `atol + rtol * |reference|`."""
    if (seen := _in_float32(pair)) is not None:
        return seen
    tolerance = pair.rules.tolerance
    rtol, atol = tolerance.of(pair.found.dtype)

    def judge(block: ChunkRange) -> JudgedChunk:
        expected = pair.expected[block]
        return distances(pair.found[block], expected, tolerance.equal_nan), atol + rtol * magnitudes(expected)

    return judge_chunks(pair.found, judge, pair.rules.poisoned, pair.rules.briefly)


def _in_float32(pair: Pair) -> Totals | None:
    """Return the differences, in float32, if no element is near what is allowed: by more than that rounds.

    None says nothing: judge the tensors in float64 then, which takes ten times as long. Elements beyond what is allowed
    are told only where that is all that counts.
    """
    dtype = pair.found.dtype
    rtol, atol = pair.rules.tolerance.of(dtype)
    telling = all(LEAST_TOLERANCE <= each <= 1 / LEAST_TOLERANCE for each in (rtol or atol, atol))
    if is_exact(dtype) or dtype.is_complex or dtype.itemsize > 4 or not telling:
        return None
    if can_check(pair.found, pair.expected) and dtype in (torch.float32, torch.float16, torch.bfloat16):
        both, rtols = [pair.found, pair.expected], (MARGIN * rtol, rtol / MARGIN)
        noted = noted_by("gpu_bench_largest", both, 3, torch.float32, *rtols)
        largest_diff, least_allowed_excess, most_allowed_excess = noted.amax(0).tolist()
        if least_allowed_excess <= MARGIN * atol:
            return Totals(max_abs_diff=largest_diff)
        is_off = pair.rules.briefly and most_allowed_excess > atol / MARGIN
        return Totals(mismatched=1, max_abs_diff=largest_diff) if is_off else None
    largest = 0.0
    for block in blocks_of(pair.found, temporaries=16):
        other = pair.expected[block].to(torch.float32)
        diff = pair.found[block].to(torch.float32) - other
        least, most = _read([*torch.aminmax(diff)])  # NaN where an element is none
        here = max(-least, most)
        if not here <= MARGIN * atol and not diff.abs_().sub_(other.abs(), alpha=MARGIN * rtol).max() <= MARGIN * atol:
            return None
        largest = max(largest, here)
    return Totals(max_abs_diff=largest)


def _largest(one: float, other: float) -> float:
    """Return the larger number; NaN if either is."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def _badness(abs_diff: float) -> float:
    return math.inf if math.isnan(abs_diff) else abs_diff


def as_numbers(chunk: torch.Tensor) -> torch.Tensor:
    """Return a chunk in float64 or complex128.

    Every float, and every integer of 32 bits or fewer, is exact there, and so is whether two differ; float32 would
    round away differences that are judged.
    """
    dtype = torch.complex128 if chunk.dtype.is_complex else torch.float64
    return chunk.to(dtype, memory_format=torch.contiguous_format)


def magnitudes(chunk: torch.Tensor) -> torch.Tensor:
    """Return absolute values, finite: the largest float64 for infinity, 0 for NaN."""
    return as_numbers(chunk).abs().nan_to_num(nan=0.0)


def distances(found: torch.Tensor, expected: torch.Tensor, equal_nan: bool) -> torch.Tensor:
    """Return absolute differences in float64: 0 only where two elements are equal, NaN where one of them is."""
    if found.dtype in (torch.int64, torch.uint64):
        return _distances_of_int64(found, expected)
    one, other = as_numbers(found), as_numbers(expected)
    equal = one == other
    if equal_nan:
        equal |= one.isnan() & other.isnan()
    return (one - other).abs().masked_fill_(equal, 0.0)


def _distances_of_int64(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Subtract as integers: float64 cannot hold 64 bits.

    The larger less the smaller wraps around to a negative number where it exceeds 63 bits; read without its sign it is
    right. uint64 is shifted onto int64, which keeps differences.
    """
    if found.dtype == torch.uint64:
        found, expected = (one.view(torch.int64) ^ torch.iinfo(torch.int64).min for one in (found, expected))
    wrapped = torch.maximum(found, expected) - torch.minimum(found, expected)
    diff = wrapped.to(torch.float64)
    return torch.where(wrapped < 0, diff + 2.0**64, diff)
