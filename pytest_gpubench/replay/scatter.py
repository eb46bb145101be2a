"""Outputs that differ by more than they do from call to call: atomics add in any order."""

from collections.abc import Callable, Mapping

import torch

from pytest_gpubench.correctness import Tolerance, compare_outputs
from pytest_gpubench.correctness.difference import Difference

Outputs = Mapping[str, torch.Tensor]
CALLS = 4
TIMES = 4.0
"""Outputs may differ by so many times as much as so many further calls do."""
MOST_SHARE = 0.05
"""They may differ by no more of their largest number: of random numbers, any would be right."""


def differing(found: Outputs, expected: Outputs, again: Callable[[], Outputs]) -> list[Difference]:
    """Return how outputs differ that do so by more than their dtype allows, and by more than they scatter.

    again: computes what was expected once more.
    """
    differences = _wrong(found, expected, {})
    return differences and _wrong(found, expected, _scatter(expected, again))


def _wrong(found: Outputs, expected: Outputs, allowed: Mapping[str, float]) -> list[Difference]:
    """Return the outputs that are wrong; allowed: by how much each may differ, where that is not of its dtype."""
    differences: list[Difference] = []
    for name in (each for each in expected if each in found):
        tolerance = Tolerance(0.0, allowed[name]) if allowed.get(name) else None
        differences += compare_outputs({name: found[name]}, {name: expected[name]}, tolerance)
    return [each for each in differences if not each.passed]


def _scatter(expected: Outputs, again: Callable[[], Outputs]) -> dict[str, float]:
    """Return by how much each output may differ."""
    most = dict.fromkeys(expected, 0.0)
    largest = {
        name: float(each.double().abs().nan_to_num(0.0, posinf=0.0).max())
        for name, each in expected.items()
        if is_measured(each)
    }
    for _ in range(CALLS):
        for name, tensor in again().items():
            if is_measured(tensor) and tensor.shape == expected[name].shape:
                apart = (tensor.double() - expected[name].double()).abs().nan_to_num(0.0).max()
                most[name] = max(most[name], TIMES * float(apart))
    return {name: min(each, MOST_SHARE * largest.get(name, 0.0)) for name, each in most.items()}


def is_measured(tensor: torch.Tensor) -> bool:
    """Tell whether an output may differ from call to call: floating-point numbers may."""
    return tensor.is_floating_point() and tensor.numel() > 0
