"""Tell a reference that computes from one that only moves data, which a GPU's copy engines do without a kernel."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_gpubench.correctness.leaves import map_leaves
from pytest_gpubench.judge.layout import describe
from pytest_gpubench.judge.reference import copied

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True


def moves_data(function: Callable[..., object], args: tuple[Any, ...]) -> bool:
    """Tell whether a function may only move the numbers of its inputs; True where that cannot be told.

    Each value of its floating-point inputs but zero is replaced by one of these values, at random. What only moves them
    returns outputs in which they are replaced in the same way, beside constants.
    """
    import torch

    floats = [each for each in describe(args, "the inputs")[1] if _is_float(each)]
    if len({each.dtype for each in floats}) != 1:  # a number of one may have no place in another
        return True
    try:
        replace = _replacing(torch.unique(torch.cat([_numbers(each).flatten() for each in floats])))
        same = copied(args)
        replaced: Any = map_leaves(lambda leaf: _replaced(leaf, replace), args)
        first, other = (describe(function(*each), "the reference's output")[1] for each in (same, replaced))
        return all(_is_moved(one, _replaced(one, replace), found) for one, found in zip(first, other, strict=True))
    except torch.OutOfMemoryError:
        return True


def _replacing(values: "torch.Tensor") -> "Callable[[torch.Tensor], torch.Tensor]":
    """Return a function that replaces these values, which are sorted, and leaves all others and zero."""
    import torch

    others = values[torch.randint(len(values), (len(values),), device=values.device)]
    moved = torch.where(values == 0, values, others)

    def replace(tensor: "torch.Tensor") -> "torch.Tensor":
        at = torch.searchsorted(values, tensor.contiguous()).clamp(max=len(values) - 1)
        return torch.where(values[at] == tensor, moved[at], tensor)

    return replace


def _is_float(leaf: object) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _numbers(tensor: "torch.Tensor") -> "torch.Tensor":
    """Return the numbers of a floating-point tensor as real ones of at least 32 bits, which all are exact."""
    import torch

    real = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
    return real if real.dtype is torch.float64 else real.float()


def _replaced(leaf: Any, replace: "Callable[[torch.Tensor], torch.Tensor]") -> Any:
    import torch

    if not _is_float(leaf):
        return copied(leaf)
    numbers = replace(_numbers(leaf))
    return torch.view_as_complex(numbers) if leaf.is_complex() else numbers.to(leaf.dtype)


def _is_moved(before: "torch.Tensor", expected: "torch.Tensor", found: "torch.Tensor") -> bool:
    """Tell whether each number is what was expected, NaN included, or stayed the same."""
    if before.shape != found.shape:
        return False
    nan = (found != found) & (expected != expected)
    return bool(((found == expected) | (found == before) | nan).all())
