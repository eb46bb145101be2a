"""Rules for single outputs: plain finite tensors in memory of their own."""

import math
from collections.abc import Callable, Container, Sequence
from typing import Any

import torch

from pytest_gpubench.correctness import Difference, flatten
from pytest_gpubench.correctness.constant_outputs import least_and_largest
from pytest_gpubench.correctness.held import held_by
from pytest_gpubench.correctness.leaves import Leaves, tensors_of
from pytest_gpubench.correctness.memory import is_shared, memory_of
from pytest_gpubench.errors import BadRequest, InvalidResult, UnfairComparison, refusing_cycles


def _is_expanded(tensor: torch.Tensor) -> bool:
    """Tell whether several elements of a tensor are one in memory, along a dimension."""
    strided = tensor.layout is torch.strided
    return strided and any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


SHARED = "has elements that are one in memory with others"
WORK_LEFT: dict[str, tuple[Callable[[torch.Tensor], bool], str]] = {
    "is expanded: several of its elements are one in memory": (_is_expanded, "it .contiguous()"),
    "is conjugated only when it is read": (lambda each: each.is_conj(), "it .resolve_conj()"),
    "is negated only when it is read": (lambda each: each.is_neg(), "it .resolve_neg()"),
    "is not coalesced": (
        lambda each: each.layout is torch.sparse_coo and not each.is_coalesced(),
        "it .coalesce(), or build it with is_coalesced=True where its indices are sorted and differ",
    ),
    SHARED: (lambda each: False, "a copy"),
}
"""The work that an output may leave to whoever reads it: how it is told, of one output, and what to return instead."""


def differentiable(leaves: Sequence[tuple[str, object]]) -> list[tuple[str, Any]]:
    """Return the tensors that require a gradient."""
    return [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def is_finite(tensor: torch.Tensor) -> bool:
    """Tell whether all elements of a tensor are finite."""
    return not tensor.numel() or all(map(math.isfinite, least_and_largest(tensor)))


def refuse_opaque(who: str, outputs: object, given: Leaves) -> None:
    """Raise BadRequest for an output that cannot be compared: an object that holds tensors but those given.

    given: the arguments, which are compared, as is what they hold.

    Or a tensor whose elements only its class can read: one of MKL-DNN's, or of a class that cannot be flattened.
    """
    with refusing_cycles(f"the output of {who}"):
        leaves = flatten(outputs)
    for name, leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            parts = [part for part in tensors_of([(name, leaf)]) if part[1].numel()]
            if len(memory_of(parts)) < len(parts):
                kind = "MKL-DNN" if leaf.is_mkldnn else f"class {type(leaf).__name__}"
                raise BadRequest(
                    f"{name} of {who} is a tensor of {kind}, whose elements only its own class can read: return a "
                    "plain tensor, as .to_dense() does, or give the class __tensor_flatten__"
                )
        elif held := [tensor for _, tensor in held_by([(name, leaf)]) if isinstance(tensor, torch.Tensor)]:
            compared = {id(each) for _, each in [*given, *held_by(given)]}
            if not all(id(tensor) in compared for tensor in held):
                raise BadRequest(
                    f"{name} of {who} is an object of class {type(leaf).__name__}, whose tensors are not compared: "
                    "return them, or a tuple, dict or dataclass of them, or give it in args="
                )


def work_left(outputs: object) -> dict[str, str]:
    """Return the work that outputs leave to whoever reads them, each with the name of an output."""
    tensors = named_tensors(outputs)
    found = {
        work: next(name for name, tensor in tensors.items() if is_left(tensor))
        for work, (is_left, _) in WORK_LEFT.items()
        if any(map(is_left, tensors.values()))
    }
    leaves = list(tensors.items())
    if not found and is_shared(leaves):
        found[SHARED] = next(name for place, (name, _) in enumerate(leaves, 1) if is_shared(leaves[:place]))
    return found


def refuse_strange_tensors(name: str, outputs: object, expected: object, left: Container[str]) -> frozenset[str]:
    """Refuse an output that is no plain tensor of its own; return the work that outputs leave.

    left: that which the reference's outputs leave.

    Raises InvalidResult for one that may compute when it is looked at, or let go of: a class or attributes of its own;
    UnfairComparison for one that leaves work where no output of the reference does.
    """
    others = named_tensors(expected)
    known = {torch.Tensor, torch.nn.Parameter} | {type(tensor) for tensor in others.values()}
    for output, tensor in named_tensors(outputs).items():
        if type(tensor) not in known:
            raise InvalidResult(
                f"{output} of {name!r} is a tensor of class {type(tensor).__name__}, which may compute later, when it "
                "is looked at: return a plain torch.Tensor, or what the reference returns"
            )
        if added := _attributes_of(tensor) - _attributes_of(others.get(output)):
            raise InvalidResult(
                f"{output} of {name!r} has an attribute of its own, {min(added)!r}, which may compute later: return a "
                "tensor without it"
            )
    found = work_left(outputs)
    for work, output in found.items():
        if work not in left:
            repair, verb = WORK_LEFT[work][1], "does" if work == SHARED else "is"
            raise UnfairComparison(
                f"{output} of {name!r} {work}, as no output of the reference {verb}: return {repair}"
            )
    return frozenset(found)


def _attributes_of(tensor: object) -> set[str]:
    """Return the names that were set on a tensor, other than by torch.compile."""
    return {name for name in getattr(tensor, "__dict__", {}) if not name.startswith("_dynamo")}


def named_tensors(value: object) -> dict[str, torch.Tensor]:
    """Return the tensors of a pytree by name."""
    return {name: leaf for name, leaf in flatten(value) if isinstance(leaf, torch.Tensor)}


def unrepeatable(reference: str, wrong: Difference, outputs: object, otherwise: str) -> UnfairComparison:
    """Return the error for a reference that computes something else when it is called again.

    wrong: the first difference. otherwise: another possible cause.
    """
    leaf = dict(flatten(outputs)).get(wrong.name, 0)
    if type(leaf).__eq__ is object.__eq__ or "cannot be compared" in (wrong.problem or ""):
        return UnfairComparison(
            f"{wrong.name} of {reference} is an object of class {type(leaf).__name__}, which is not equal to that of "
            "another call: leave it out"
        )
    is_argument = wrong.name.startswith(("args[", "kwargs["))
    return UnfairComparison(
        f"{reference} computes something else when it is called again ({wrong.line}), or {otherwise}, so nothing can "
        "be compared with it: let it, and setup=, draw random numbers from torch's global generators or from one among "
        "its arguments, which are reset before each call, and give it what calls change and keep in args=, where it is "
        "put back, or let setup= make it"
        + (f"; if {wrong.name} need not agree, give overwrites=({wrong.name!r},)" if is_argument else "")
    )
