"""The check that a row of a batch is computed bit by bit as it is in a batch of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.arguments import check_names, covers
from pytest_gpubench.bench.candidates import Function
from pytest_gpubench.bench.output_rules import named_tensors
from pytest_gpubench.correctness import Difference, Tolerance, compare_outputs
from pytest_gpubench.correctness.chunks import raw_bits
from pytest_gpubench.correctness.leaves import Leaves, components, inputs_of, map_leaves
from pytest_gpubench.errors import BadRequest, WrongResult
from pytest_gpubench.units import count, repr_of

MOST_ROWS = 8
"""Rows that are computed alone, evenly spread over the batch."""
Batched = bool | Sequence[str]
"""True if the first tensor has rows along its first axis, or the names of the arguments that have."""


@dataclass(frozen=True)
class Row:
    """An output's row that differs when it is computed alone."""

    number: int
    difference: Difference

    @property
    def size(self) -> float:
        """The largest difference; infinite where there is a NaN, 0 where only a sign of 0 or the bits of NaN differ."""
        found = self.difference.abs_diff if self.difference.mismatched else 0.0
        return float("inf") if found is None or found != found else found

    @property
    def sentence(self) -> str:
        """The number of elements that differ, and the largest difference."""
        if not self.difference.mismatched:
            return "in the sign of a zero or the bits of a NaN only"
        return (
            f"in {self.difference.mismatched} of {count(self.difference.elements, 'element')}, by up to {self.size:.2g}"
        )


def check_batch_invariance(agreement: Agreement, name: str, candidate: Function, batched: Batched) -> None:
    """Raise WrongResult where `f(x)[i]` and `f(x[i:i+1])[0]` are not the same bits, for up to `MOST_ROWS` rows.

    Every other argument is given whole to each call. Raises BadRequest for arguments and outputs without such rows.
    """
    if batched is False:
        return
    who = f"{name!r}"
    args, kwargs = agreement.fresh()
    chosen = rows_given(inputs_of(args, kwargs), batched)
    size = batch_size(chosen)
    numbers = sorted({round(place * (size - 1) / (MOST_ROWS - 1)) for place in range(MOST_ROWS)})
    outputs = _outputs(agreement.run_with(candidate, who, args, kwargs).outputs, name, size)
    whole = {each: tensor[numbers] for each, tensor in outputs.items()}  # a copy
    agreement.look(who)
    differing: dict[str, list[Row]] = {}
    for place, number in enumerate(numbers):
        args, kwargs = agreement.fresh()
        names = [each for each, _ in chosen]
        alone = agreement.run_with(candidate, who, *one_row(args, kwargs, names, number)).outputs
        agreement.look(who)
        for each, tensor in _outputs(alone, name, 1, like=whole).items():
            expected = whole[each][place : place + 1]
            if not same_bits(tensor, expected):
                (difference,) = compare_outputs({each: tensor}, {each: expected}, Tolerance(0, 0, equal_nan=True))
                differing.setdefault(each, []).append(Row(number, difference))
    parts = []
    for output, rows in differing.items():
        worst = max(rows, key=lambda row: row.size)
        parts.append(
            f"row {worst.number} of {output} differs from that of a batch of one {worst.sentence} "
            f"({len(rows)} of {count(len(numbers), 'row')} tried differ)"
        )
    if parts:
        raise WrongResult(f"{name} is not batch-invariant: {'; '.join(parts)}")


def rows_given(inputs: Leaves, batched: Batched) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors whose rows are taken, by name; raise BadRequest where there are none."""
    tensors = [(name, leaf) for name, leaf in inputs if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided]
    if not isinstance(batched, bool):
        check_names("batch_invariant", batched, [name for name, _ in tensors])
        tensors = [(name, leaf) for name, leaf in tensors if any(covers(each, name) for each in batched)]
    if not tensors:
        raise BadRequest(
            "batch_invariant= needs a dense tensor with rows, but none is among the arguments: give it in args="
        )
    return tensors[:1] if batched is True else tensors


def batch_size(chosen: Sequence[tuple[str, torch.Tensor]]) -> int:
    """Return the number of rows, the same of all tensors; raise BadRequest for others, and for fewer than two."""
    sizes = {name: tensor.shape[0] if tensor.dim() else 0 for name, tensor in chosen}
    (first, size), *others = sizes.items()
    if unlike := next((name for name, each in others if each != size), None):
        raise BadRequest(
            f"batch_invariant= takes the rows of {first}, which has {size}, and of {unlike}, which has "
            f"{sizes[unlike]}: name the arguments that have a batch axis, as in batch_invariant=('args[0]',)"
        )
    if size < 2:
        raise BadRequest(
            f"batch_invariant= takes the rows of {first}, which has shape {tuple(chosen[0][1].shape)}: give it two "
            "rows or more along its first axis, or name other arguments, as in batch_invariant=('args[1]',)"
        )
    return size


def one_row(
    args: Sequence[object], kwargs: dict[str, object], names: Sequence[str], number: int
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return arguments with one row, in memory of its own, of each tensor of these names."""
    chosen = {id(leaf) for name, leaf in inputs_of(args, kwargs) if name in names}

    def row_of(leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in chosen:
            return leaf
        return leaf.detach()[number : number + 1].clone().requires_grad_(leaf.requires_grad)

    return tuple(map_leaves(row_of, each) for each in args), {
        name: map_leaves(row_of, each) for name, each in kwargs.items()
    }


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors of a shape and dtype hold the same bits."""
    parts = [components("", each.detach()) for each in (one, other)]
    return all(torch.equal(raw_bits(mine), raw_bits(theirs)) for (_, mine), (_, theirs) in zip(*parts, strict=True))


def _outputs(
    returned: object, name: str, rows: int, like: dict[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Return the tensors of an output by name; raise BadRequest for one that has not so many rows.

    like: those that there must be, with the same dtypes and the same shapes of a row.
    """
    found = named_tensors(returned)
    if not found:
        raise BadRequest(f"batch_invariant= compares outputs, but {name!r} returns no tensor: let it return its result")
    for each, tensor in found.items():
        if tensor.layout is not torch.strided or tensor.dim() == 0 or tensor.shape[0] != rows:
            raise BadRequest(
                f"{each} of {name!r} has no batch axis: its shape is {tuple(tensor.shape)} for a batch of {rows}, and "
                "batch_invariant= compares rows; compare a function that returns a row for each row it is given"
            )
    if like is not None and _kinds(found) != _kinds(like):
        raise WrongResult(
            f"{name} is not batch-invariant: for a batch of one row it returns {repr_of(_kinds(found))}, for the whole "
            f"batch {repr_of(_kinds(like))}"
        )
    return found


def _kinds(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (str(tensor.dtype), tuple(tensor.shape[1:])) for name, tensor in tensors.items()}
