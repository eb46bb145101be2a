"""Probe which parts of its inputs a function needs: change one piece at a time, and see whether the outputs change."""

import math
import random
from collections.abc import Callable

import torch

from pytest_gpubench.correctness.checksum import checksum
from pytest_gpubench.correctness.leaves import ArgsAndKwargs, flatten, tensors_of
from pytest_gpubench.correctness.variation import variable_tensors

PROBES = 32
PIECE_BYTES = 128
"""A cache line: the least of an input that can be moved."""


def needed_share(function: Callable[..., object], fresh: Callable[[], ArgsAndKwargs], seed: int = 0) -> float:
    """Estimate the share of the bytes of its floating-point inputs that a function's outputs depend on.

    32 lines of the inputs, drawn at random, are reversed (or halved) one at a time. The estimate errs to the low side:
    a change may be rounded away, or the order within a line may not matter. It is 0 for a function that does not return
    the same twice, and for one without such inputs.
    """
    tensors = variable_tensors(fresh())
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    if not tensors or _fingerprint(function, fresh()) != (before := _fingerprint(function, fresh())):
        return 0.0
    draw = random.Random(seed)
    places = [(draw.choices(range(len(sizes)), sizes)[0], draw.random()) for _ in range(PROBES)]
    return sum(_matters(function, fresh(), before, *place) for place in places) / PROBES


def least_share(share: float, chance: float = 1e-3) -> float:
    """Return the smallest true share at which as many lines, or more, matter with at least this chance."""
    hits = round(share * PROBES)
    low, high = 0.0, share
    for _ in range(50):
        middle = (low + high) / 2
        terms = (math.comb(PROBES, k) * middle**k * (1 - middle) ** (PROBES - k) for k in range(hits, PROBES + 1))
        low, high = (low, middle) if math.fsum(terms) >= chance else (middle, high)
    return low


def _matters(
    function: Callable[..., object], arguments: ArgsAndKwargs, before: object, which: int, where: float
) -> bool:
    """Tell whether the outputs change when one line of the inputs does; put the line back."""
    line = line_of(variable_tensors(arguments)[which], where)
    kept = line.clone()
    turned = kept.flip(0)
    line.copy_(kept / 2 if bool((turned == kept).all()) else turned)
    try:
        return _fingerprint(function, arguments) != before
    except Exception:  # the function refuses these values
        return False
    finally:
        line.copy_(kept)


def line_of(tensor: torch.Tensor, where: float) -> torch.Tensor:
    """Return about a cache line of elements, at this part of a tensor: 0.5 is in the middle of its middle row."""
    values = tensor.data
    while values.ndim > 1:
        row, where = divmod(where * values.shape[0], 1)
        values = values[int(row)]
    width = max(1, PIECE_BYTES // values.element_size())
    start = min(int(where * values.shape[0]), max(0, values.shape[0] - width))
    return values[start : start + width]


def _fingerprint(function: Callable[..., object], arguments: ArgsAndKwargs) -> object:
    """Return checksums of what a function returns."""
    return {name: checksum(each) for name, each in tensors_of(flatten(function(*arguments[0], **arguments[1])))}
