"""Vary the inputs: put other values into the same memory, so that a function that remembers results is wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import torch

from pytest_gpubench.correctness.chunks import CHUNK_ELEMENTS
from pytest_gpubench.correctness.leaves import as_computable, flatten, is_usual, tensor_of

Way = Literal[
    "as given", "turned round", "partly turned round", "partly levelled", "turned round integer", "levelled integer"
]
Undo = Callable[[], object]
MOVED_ELEMENTS = 2**24
"""So many elements change places with as many others at a time."""
INTEGER_WAYS: tuple[Way, ...] = ("turned round integer", "levelled integer")


@dataclass
class Variation:
    """Vary the tensors among a call's arguments in place, and undo it exactly.

    "turned round" reverses the order of the rows of floating-point tensors; "partly turned round" does so for every
    second tensor; "partly levelled" makes some rows equal to the first. Integers and bools may be indices or masks:
    only the last two ways vary them, along their longest dimension, and nothing else. No value appears that was not
    there: a kernel that checks its inputs may take the process down. Integers in ascending order stay as they are, as
    they may be offsets; so do tensors that overlap themselves other than by being expanded, and all that are no plain
    dense tensors. torch's count of writes to a tensor does not change.
    """

    WAYS: ClassVar[tuple[Way, ...]] = get_args(Way)[1:]

    way: Way = "as given"
    undo: list[Undo] = field(default_factory=list)
    """The ways to put back the tensors varied so far."""

    def begin(self, way: Way, arguments: Sequence[object]) -> None:
        """Vary these arguments, until `end`."""
        self.end()
        self.way = way
        for number, tensor in enumerate(tensors_for(way, arguments)):  # there may be no room for the next
            self.undo.append(vary(tensor, way, number))

    def end(self) -> None:
        """Put the tensors back, and vary nothing more."""
        while self.undo:
            self.undo.pop()()
        self.way = "as given"


def tensors_in(arguments: Sequence[object]) -> list[torch.Tensor]:
    """Return the plain dense tensors among arguments, each once."""
    leaves = [tensor_of(leaf) for _, leaf in flatten(tuple(arguments))]
    tensors = [tensor for tensor in leaves if tensor is not None and _is_plain(tensor)]
    return list({(each.data_ptr(), each.shape, each.stride()): each for each in tensors}.values())


def tensors_for(way: Way, arguments: Sequence[object]) -> list[torch.Tensor]:
    """Return the tensors among arguments that can be varied in a way, each once."""
    if way == "as given":
        return []
    found = [tensor for tensor in tensors_in(arguments) if _is_writable(dense(tensor))]
    if way in INTEGER_WAYS:
        return [tensor for tensor in found if not _has_fractions(tensor) and not _is_ascending(dense(tensor))]
    return [tensor for tensor in found if _has_fractions(tensor)]


def variable_tensors(arguments: Sequence[object]) -> list[torch.Tensor]:
    """Return the floating-point tensors among arguments that can be written line by line, each once."""
    return [tensor for tensor in tensors_in(arguments) if is_variable(tensor)]


def is_variable(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is dense, of floating-point numbers, and can be written element by element."""
    if not _is_plain(tensor) or tensor.is_inference() or (tensor.is_floating_point() and tensor.element_size() == 1):
        return False
    return _has_fractions(tensor) and _is_writable(tensor)


def _is_plain(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    return plain and not (tensor.is_meta or tensor.is_quantized or tensor.is_conj())


def _has_fractions(tensor: torch.Tensor) -> bool:
    return tensor.is_complex() or tensor.is_floating_point()


def _is_writable(tensor: torch.Tensor) -> bool:
    return tensor.numel() >= 2 and not may_overlap_itself(tensor)


def _is_ascending(tensor: torch.Tensor) -> bool:
    """Tell whether integers never decrease along any dimension: offsets of sequences do not, nor do positions."""
    if tensor.dtype is torch.bool:
        return False
    tensor = as_computable(tensor)
    if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch cannot compare these everywhere
        tensor = tensor.to(torch.int64)
    pairs = [(tensor.narrow(at, 0, size - 1), tensor.narrow(at, 1, size - 1)) for at, size in enumerate(tensor.shape)]
    return all(bool((low <= high).all()) for low, high in pairs)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without the dimensions that it was expanded by: one element for each address."""
    return tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]


def may_overlap_itself(tensor: torch.Tensor) -> bool:
    """Tell whether two elements of a tensor may share an address, as in a sliding window: no row can move alone."""
    reach = 0
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1:
            if stride <= reach:
                return True
            reach += stride * (length - 1)
    return False


def vary(tensor: torch.Tensor, way: Way, number: int) -> Undo:
    """Change a tensor in place, the one of this number among the arguments; return what changes it back."""
    if way == "partly turned round" and number % 2:
        return lambda: None
    with torch.inference_mode(tensor.is_inference()):
        rows = _rows_of(tensor, way)
        undo = _level(rows) if way in ("partly levelled", "levelled integer") else turn_round(rows)

    def put_back() -> None:
        with torch.inference_mode(tensor.is_inference()):
            undo()

    return put_back


def _rows_of(tensor: torch.Tensor, way: Way) -> torch.Tensor:
    """Return a view whose rows are to change places: along the first dimension, of integers along the longest."""
    values = dense(tensor).data  # writes to it are not counted as the tensor's
    if not is_usual(values.dtype):  # of some dtypes torch moves the bits alone
        words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        values = values.view(words.get(values.element_size(), values.dtype))
    lengths = list(values.shape)
    first_long = next(dimension for dimension, length in enumerate(lengths) if length > 1)
    return values.transpose(0, lengths.index(max(lengths)) if way in INTEGER_WAYS else first_long)


def turn_round(rows: torch.Tensor) -> Undo:
    """Reverse the order of the rows in place, a chunk at a time; return what puts them back: the same."""
    inner, step = rows, max(1, MOVED_ELEMENTS * rows.shape[0] // rows.numel())
    while inner.shape[0] > 2 * step:
        front, back = inner[:step], inner[-step:]
        kept = front.flip(0)
        front.copy_(back.flip(0))
        back.copy_(kept)
        inner = inner[step:-step]
    inner.copy_(inner.flip(0))
    return lambda: turn_round(rows)


def _level(rows: torch.Tensor) -> Undo:
    """Make the rows after the first, up to a chunk of them, equal to it; return what puts them back."""
    stop = 1 + max(1, CHUNK_ELEMENTS * rows.shape[0] // rows.numel())
    others = rows[1:stop]
    kept = others.clone()
    others.copy_(rows[:1].expand_as(others))
    return lambda: others.copy_(kept)
