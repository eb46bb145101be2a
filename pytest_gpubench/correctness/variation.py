"""Vary the inputs: put other values into the same memory, so that a function that remembers results is wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from pytest_gpubench.correctness.chunks import CHUNK_ELEMENTS
from pytest_gpubench.correctness.leaves import flatten

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

Way = Literal["as given", "turned round", "partly turned round", "partly levelled"]
Undo = Callable[[], object]
TensorPlace = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Address, shape and strides."""


@dataclass
class Variation:
    """Vary the floating-point tensors among a call's arguments in place, and undo it exactly.

    "turned round" reverses the order of their rows; "partly turned round" does so for every second tensor; "partly
    levelled" makes some rows equal to the first. No value appears that was not there: a kernel that checks its inputs
    may take the process down. Integers stay as they are, as they may be indices; so do tensors that overlap themselves,
    and all that are no plain dense tensors. torch's count of writes to a tensor does not change.
    """

    WAYS: ClassVar[tuple[Way, ...]] = ("turned round", "partly turned round", "partly levelled")

    way: Way = "as given"
    lasting: dict[TensorPlace, Undo] = field(default_factory=dict)
    """How to put back the tensors that every call is given again; they stay varied until `end`."""

    def begin(self, way: Way, first: Sequence[object], second: Sequence[object]) -> None:
        """Vary the tensors that the arguments of two calls have in common, until `end`; `apply` varies the others."""
        self.end()
        again = {_place_of(tensor) for tensor in variable_tensors(second)}
        self.way = way
        for number, tensor in enumerate(variable_tensors(first)):
            if _place_of(tensor) in again and _place_of(tensor) not in self.lasting:
                self.lasting[_place_of(tensor)] = vary(tensor, way, number)

    def apply(self, arguments: Sequence[object]) -> None:
        """Vary the arguments that were made for one call alone; they are not put back."""
        if self.way != "as given":
            for number, tensor in enumerate(variable_tensors(arguments)):
                if _place_of(tensor) not in self.lasting:
                    vary(tensor, self.way, number)

    def end(self) -> None:
        """Put the tensors back, and vary nothing more."""
        while self.lasting:
            self.lasting.popitem()[1]()
        self.way = "as given"


def _place_of(tensor: "torch.Tensor") -> TensorPlace:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def variable_tensors(arguments: Sequence[object]) -> list["torch.Tensor"]:
    """Return the tensors among arguments that can be varied, each once."""
    import torch

    leaves = {id(leaf): leaf for _, leaf in flatten(tuple(arguments)) if isinstance(leaf, torch.Tensor)}
    return [leaf for leaf in leaves.values() if is_variable(leaf)]


def is_variable(tensor: "torch.Tensor") -> bool:
    """Tell whether a tensor is dense, of floating-point numbers, and can be written element by element."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return False
    if tensor.is_meta or tensor.is_inference() or tensor.is_quantized or tensor.is_conj() or tensor.numel() < 2:
        return False
    has_values = tensor.is_complex() or (tensor.is_floating_point() and tensor.element_size() > 1)
    return has_values and not _may_overlap_itself(tensor)


def _may_overlap_itself(tensor: "torch.Tensor") -> bool:
    """Tell whether two elements of a tensor may share an address, as in a sliding window: no row can move alone."""
    reach = 0
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1:
            if stride <= reach:
                return True
            reach += stride * (length - 1)
    return False


def vary(tensor: "torch.Tensor", way: Way, number: int) -> Undo:
    """Change a tensor in place, the one of this number among the arguments; return what changes it back."""
    values = tensor.data  # writes to it are not counted as the tensor's
    rows = values.transpose(0, _first_long_dimension(values))
    if way == "partly levelled":
        return _level(rows)
    if way == "partly turned round" and number % 2:
        return lambda: None
    turn_round(rows)
    return lambda: turn_round(rows)


def _first_long_dimension(tensor: "torch.Tensor") -> int:
    return next(dimension for dimension, length in enumerate(tensor.shape) if length > 1)


def turn_round(rows: "torch.Tensor") -> None:
    """Reverse the order of the rows in place, a chunk at a time; a second call puts them back."""
    number = rows.shape[0]
    step = max(1, CHUNK_ELEMENTS * number // rows.numel())
    for start in range(0, number // 2, step):
        stop = min(start + step, number // 2)
        front, back = rows[start:stop], rows[number - stop : number - start]
        kept = front.flip(0)
        front.copy_(back.flip(0))
        back.copy_(kept)


def _level(rows: "torch.Tensor") -> Undo:
    """Make the rows after the first, up to a chunk of them, equal to it; return what puts them back."""
    stop = 1 + max(1, CHUNK_ELEMENTS * rows.shape[0] // rows.numel())
    others = rows[1:stop]
    kept = others.clone()
    others.copy_(rows[:1].expand_as(others))
    return lambda: others.copy_(kept)
