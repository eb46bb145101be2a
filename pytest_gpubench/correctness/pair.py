"""Two tensors, and the rules that they are judged by."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_gpubench.correctness.chunks import Block
from pytest_gpubench.correctness.distance import distances, magnitudes
from pytest_gpubench.correctness.survey import Judged
from pytest_gpubench.correctness.tolerance import Tolerance

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True


@dataclass(frozen=True)
class Rules:
    """How the elements of all outputs are judged."""

    tolerance: Tolerance
    golden_factor: float
    has_golden: bool
    poisoned: bool


@dataclass(frozen=True)
class Pair:
    """Two dense tensors of one shape, dtype and device, and how they are judged."""

    found: "torch.Tensor"
    expected: "torch.Tensor"
    golden: "torch.Tensor | None"
    rules: Rules


def judge_by_tolerance(pair: Pair, block: Block) -> Judged:
    """Judge elements by the tolerance: `atol + rtol * |reference|`."""
    found, expected = pair.found[block], pair.expected[block]
    rtol, atol = pair.rules.tolerance.of(found.dtype)
    magnitude = magnitudes(expected)
    return distances(found, expected, pair.rules.tolerance.equal_nan), magnitude, atol + rtol * magnitude
