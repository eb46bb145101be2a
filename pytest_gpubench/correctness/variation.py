"""Other values in the same memory: what a function remembers of its inputs is then wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from pytest_gpubench.correctness.chunks import CHUNK_ELEMENTS
from pytest_gpubench.correctness.leaves import flatten

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

Way = Literal["as given", "turned round", "negated"]
Place = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Address, shape and strides."""


@dataclass
class Variation:
    """Vary the floating-point tensors among a call's arguments, in place and so that it can be undone exactly.

    "turned round" reverses the order of their rows, which keeps every value within its range; "negated" changes all
    signs. Integers are left alone: they may be indices. So are tensors that overlap themselves, and what is no plain
    dense tensor. torch's count of writes to a tensor does not see it.
    """

    WAYS: ClassVar[tuple[Way, ...]] = ("turned round", "negated")

    way: Way = "as given"
    lasting: dict[Place, "torch.Tensor"] = field(default_factory=dict)
    """The tensors that every call is given anew, varied as long as this lasts."""

    def begin(self, way: Way, first: Sequence[object], second: Sequence[object]) -> None:
        """Vary what two calls' arguments, both alive, have in common, until `end`; the rest is for `apply`."""
        self.end()
        again = {place_of(tensor) for tensor in variable_tensors(second)}
        self.way = way
        for tensor in variable_tensors(first):
            if place_of(tensor) in again and place_of(tensor) not in self.lasting:
                vary(tensor, way)
                self.lasting[place_of(tensor)] = tensor

    def apply(self, arguments: Sequence[object]) -> None:
        """Vary those of a call's arguments that were made for it alone: nobody has to put them back."""
        if self.way != "as given":
            for tensor in variable_tensors(arguments):
                if place_of(tensor) not in self.lasting:
                    vary(tensor, self.way)

    def end(self) -> None:
        """Put back what lasts, and vary nothing more."""
        while self.lasting:
            vary(self.lasting.popitem()[1], self.way)
        self.way = "as given"


def place_of(tensor: "torch.Tensor") -> Place:
    """Return where a tensor lies in memory."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def variable_tensors(arguments: Sequence[object]) -> list["torch.Tensor"]:
    """Return the tensors among arguments that can be varied, each once."""
    import torch

    leaves = {id(leaf): leaf for _, leaf in flatten(tuple(arguments)) if isinstance(leaf, torch.Tensor)}
    return [leaf for leaf in leaves.values() if is_variable(leaf)]


def is_variable(tensor: "torch.Tensor") -> bool:
    """Tell whether a tensor is dense, of floating-point numbers, and can be written to element by element."""
    import torch

    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    if not plain or tensor.is_meta or tensor.is_inference() or tensor.is_quantized or tensor.numel() < 2:
        return False
    whole = all(stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True) if length > 1)
    return whole and (tensor.is_complex() or (tensor.is_floating_point() and tensor.element_size() > 1))


def vary(tensor: "torch.Tensor", way: Way) -> None:
    """Change a tensor in place; the same again changes it back."""
    import torch

    with torch.no_grad():
        values = tensor.data  # whose writes are not counted as the tensor's
        if way == "negated":
            values.neg_()
        else:
            turn_round(values.transpose(0, first_long_dimension(values)))


def first_long_dimension(tensor: "torch.Tensor") -> int:
    """Return the first dimension with more than one element."""
    return next(dimension for dimension, length in enumerate(tensor.shape) if length > 1)


def turn_round(rows: "torch.Tensor") -> None:
    """Reverse the order of the rows in place, a chunk at a time."""
    number = rows.shape[0]
    step = max(1, CHUNK_ELEMENTS * number // rows.numel())
    for start in range(0, number // 2, step):
        stop = min(start + step, number // 2)
        front, back = rows[start:stop], rows[number - stop : number - start]
        kept = front.flip(0)
        front.copy_(back.flip(0))
        back.copy_(kept)
