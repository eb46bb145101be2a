"""Rules for single outputs: plain finite tensors in memory of their own."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from pytest_gpubench.correctness import flatten
from pytest_gpubench.correctness.chunks import blocks_of
from pytest_gpubench.correctness.constant_outputs import least_and_largest
from pytest_gpubench.correctness.variation import is_expanded
from pytest_gpubench.errors import BadRequest, InvalidResult, UnfairComparison


def differentiable(leaves: Sequence[tuple[str, object]]) -> list[tuple[str, Any]]:
    """Return the tensors that require a gradient."""
    return [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def is_finite(tensor: torch.Tensor) -> bool:
    """Tell whether all elements of a tensor are finite."""
    return not tensor.numel() or all(map(math.isfinite, least_and_largest(tensor)))


def has_nan(tensor: torch.Tensor) -> bool:
    """Tell whether an element of a tensor is NaN."""
    return any(bool(tensor[block].isnan().any()) for block in blocks_of(tensor, temporaries=16))


def refuse_opaque_tensors(who: str, outputs: object) -> None:
    """Raise BadRequest for a tensor whose elements only MKL-DNN can read."""
    if names := [name for name, tensor in named_tensors(outputs).items() if tensor.is_mkldnn]:
        raise BadRequest(f"{names[0]} of {who} has the layout of MKL-DNN, which cannot be compared: return .to_dense()")


def refuse_strange_tensors(name: str, outputs: object, expected: object) -> None:
    """Refuse an output that is no plain tensor of its own.

    Raises InvalidResult for one that may compute when it is looked at, or let go of: a class or attributes of its own;
    UnfairComparison for one that is expanded where the reference's is not.
    """
    others = named_tensors(expected)
    known = {torch.Tensor, torch.nn.Parameter} | {type(tensor) for tensor in others.values()}
    for output, tensor in named_tensors(outputs).items():
        if type(tensor) not in known:
            raise InvalidResult(
                f"{output} of {name!r} is a {type(tensor).__name__}, which may compute later, when it is looked at: "
                "return a plain torch.Tensor, or what the reference returns"
            )
        if added := _attributes_of(tensor) - _attributes_of(others.get(output)):
            raise InvalidResult(
                f"{output} of {name!r} has an attribute of its own, {min(added)!r}, which may compute later: return a "
                "tensor without it"
            )
        if output in others and is_expanded(tensor) and not is_expanded(others[output]):
            raise UnfairComparison(
                f"{output} of {name!r} is expanded: several of its elements are one in memory, those of the "
                "reference's are not; return .contiguous()"
            )


def _attributes_of(tensor: object) -> set[str]:
    """Return the names that were set on a tensor, other than by torch.compile."""
    return {name for name in getattr(tensor, "__dict__", {}) if not name.startswith("_dynamo")}


def named_tensors(value: object) -> dict[str, torch.Tensor]:
    """Return the tensors of a pytree by name."""
    return {name: leaf for name, leaf in flatten(value) if isinstance(leaf, torch.Tensor)}
