"""The least work of a call: the bytes that it moves, and the operations that it makes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_gpubench.correctness import flatten, moved_bytes
from pytest_gpubench.correctness.flops import Counted, counted
from pytest_gpubench.correctness.leaves import inputs_of, tensors_of
from pytest_gpubench.timing.base import Call


@dataclass(frozen=True)
class Work:
    """The least work of a call; None stands for unknown."""

    moved_bytes: int | None = None
    """0 where all its tensors are empty."""
    read_share: float | None = None
    """The share of those bytes that is read."""
    flops: int | None = None
    dtype: str | None = None
    """The dtype that most operations multiply."""


def work_of(
    call: Call,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    outputs: object,
    given_bytes: int | None,
    given_flops: int | None,
    wants_flops: bool,
) -> Work:
    """Return the work of a call: as given, else the bytes of its inputs and outputs, and the operations it makes."""
    moved = moved_bytes(args, kwargs, outputs) if given_bytes is None else given_bytes
    written = moved_bytes((), {}, outputs)
    found = Counted(None, None)
    if wants_flops and call.prepares_on_device:  # a backward run, or setup
        found = counted(call.prepare())
    elif wants_flops:
        found = counted(call.function, args, kwargs)
    flops = found.flops if given_flops is None else given_flops
    if moved:
        return Work(moved, max(0.0, 1 - written / moved), flops, found.dtype)
    sizes = [tensor.numel() for _, tensor in tensors_of([*inputs_of(args, kwargs), *flatten(outputs)])]
    all_empty = bool(sizes) and not any(sizes)
    return Work(0 if all_empty else None, None, flops, found.dtype)
