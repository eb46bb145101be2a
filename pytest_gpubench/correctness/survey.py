"""What the chunks of one tensor come to: how many are off, and which most."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pytest_gpubench.correctness.chunks import Block, blocks_of, index_in
from pytest_gpubench.correctness.poison import holds_poison

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

Judged = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]
"""For each element of a chunk: the difference (0 where it is none), the magnitude expected, the difference allowed."""


@dataclass
class Survey:
    """What the chunks came to."""

    mismatched: int = 0
    unwritten: int = 0
    max_abs_diff: float = 0.0
    max_rel_diff: float = 0.0
    squares: float = 0.0
    where: tuple[int, ...] | None = None
    abs_diff: float = -1.0
    allowed: float = 0.0

    def add(self, chunk: Sequence[float], where: Callable[[int], tuple[int, ...]]) -> None:
        """Take in one chunk's numbers, in the order that `count_up` gives them."""
        mismatched, unwritten, max_abs_diff, max_rel_diff, squares, place, abs_diff, allowed = chunk
        self.mismatched += int(mismatched)
        self.unwritten += int(unwritten)
        self.max_abs_diff = largest(self.max_abs_diff, max_abs_diff)
        self.max_rel_diff = largest(self.max_rel_diff, max_rel_diff)
        self.squares += squares
        if mismatched and _as_badness(abs_diff) > _as_badness(self.abs_diff):
            self.where, self.abs_diff, self.allowed = where(int(place)), abs_diff, allowed


def largest(one: float, other: float) -> float:
    """Return the larger; nan if either is."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def _as_badness(abs_diff: float) -> float:
    return math.inf if math.isnan(abs_diff) else abs_diff


def survey(found: "torch.Tensor", judge: Callable[[Block], Judged], poisoned: bool = False) -> Survey:
    """Judge a tensor chunk by chunk; one wait for the device per chunk."""
    seen = Survey()
    for block in blocks_of(found):
        chunk = found[block]
        numbers = count_up(judge(block), chunk if poisoned else None)
        seen.add(numbers, partial(index_in, block, tuple(chunk.shape)))
    return seen


def count_up(judged: Judged, poisoned: "torch.Tensor | None") -> list[float]:
    """Return a chunk's numbers: all in float64, which is exact for counts and places in a chunk."""
    import torch

    diff, magnitude, allowed = (one.reshape(-1) for one in judged)
    off = ~((diff <= allowed) & diff.isfinite())
    worst = torch.where(off, diff.nan_to_num(nan=math.inf, posinf=math.inf), -1.0).argmax()
    relative = torch.where(diff == 0, 0.0, diff / magnitude)
    unwritten = off.new_zeros(()) if poisoned is None else (off & holds_poison(poisoned)).sum()
    numbers = [
        off.sum(),
        unwritten,
        diff.max(),
        relative.max(),
        torch.where(diff.isfinite(), diff, 0.0).square().sum(),
        worst,
        diff.take(worst),
        allowed.take(worst),
    ]
    return [float(number) for number in torch.stack([one.to(torch.float64) for one in numbers]).tolist()]
