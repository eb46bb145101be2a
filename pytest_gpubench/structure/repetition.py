"""The check that a call repeats itself, bit by bit."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import torch

from pytest_gpubench.correctness.checksum import checksum
from pytest_gpubench.correctness.leaves import flatten, inputs_of, tensors_of
from pytest_gpubench.errors import BadRequest, UnfairComparison
from pytest_gpubench.timing.base import Call, Prepared
from pytest_gpubench.timing.calls import backward_of, leaves_of, run_backward

GENERATOR_SEED = 20240229
REPEATS = 10
"""Calls whose outputs are compared: atomics that race mostly differ within a few."""
FIELD_NAMES = re.compile(":[^:]*:")
"""In the format of a buffer; what is left are codes of types."""


def is_deterministic(call: Call, reps: int = REPEATS) -> list[str]:
    """Return the outputs that are not the same, bit by bit, in every one of so many calls; none is deterministic.

    Outputs are what the call returns (`out`, `out[0]`), the tensors it is called with as they are afterwards
    (`args[0]`), and gradients where it is a backward pass (`args[0].grad`). NaN is equal to NaN of the same bits.
    Torch's generators begin each call at the same place. What a call overwrites is put back before the next one;
    nothing else is copied, a checksum is kept of each tensor.

    Raises UnfairComparison where `setup` makes other values in every call.
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):  # torch's generators are left as they were
        scout = Run.of(call, {})
        if not scout.outputs and not scout.after:
            raise BadRequest(
                f"deterministic=True was asked of {call.label!r}, but there is nothing to compare: it returns no "
                "tensor and is called with none; let it return what it computes"
            )
        written = {name for name, value in scout.after.items() if scout.before.get(name) != value}
        saved = {name: tensor.clone() for name, tensor in scout.tensors() if name in written}
        del scout
        first = Run.of(call, saved)
        for _ in range(reps - 1):
            again = Run.of(call, saved)
            if changed := differing(first.before, again.before):
                raise UnfairComparison(
                    f"{call.label!r} was to be called again with the same values, but {changed[0]} holds others each "
                    "time: let setup= draw from torch's global generators, which begin each call at the same place, "
                    "or set them to fixed values"
                )
            if names := differing(first.outputs, again.outputs) + differing(first.after, again.after):
                return names
    return []


def differing(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    """Return the names whose values are not the same in both."""
    return [name for name in dict.fromkeys([*first, *second]) if first.get(name) != second.get(name)]


@dataclass
class Run:
    """The inputs and outputs of one call, as checksums by name."""

    prepared: Prepared
    before: dict[str, object]
    after: dict[str, object] = field(default_factory=dict)
    outputs: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, call: Call, saved: Mapping[str, torch.Tensor]) -> "Run":
        """Call once, with what an earlier call has overwritten put back."""
        torch.default_generator.manual_seed(GENERATOR_SEED)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(GENERATOR_SEED)
        prepared = call.prepare()
        run = cls(prepared, {})
        with torch.no_grad():
            for name, tensor in run.tensors():
                if name in saved and saved[name].shape == tensor.shape:
                    tensor.copy_(saved[name])
        run.before = run.states()
        run.outputs = _bits_of_leaves(_outputs_of(call, prepared))
        run.after = run.states()
        return run

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Return the tensors it is called with, by name."""
        return tensors_of(inputs_of(self.prepared.args, self.prepared.kwargs))

    def states(self) -> dict[str, object]:
        """Return the tensors it is called with as they are now."""
        return {name: _bits_of(tensor) for name, tensor in self.tensors()}


def _bits_of_leaves(leaves: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return the state of leaves: checksums of tensors, plain values and buffers as they are; nothing of others."""
    found = {name: _bits_of(tensor) for name, tensor in tensors_of(leaves)}
    for name, leaf in leaves:
        if isinstance(leaf, (bool, int, float, complex, str)):
            found[name] = repr(leaf)
        else:
            with suppress(TypeError, ValueError, BufferError):  # it is no buffer, as arrays of numpy are
                view = memoryview(leaf)  # type: ignore[arg-type]
                found[name] = None if "O" in FIELD_NAMES.sub("", view.format or "") else bytes(view)
    return found


def _bits_of(tensor: torch.Tensor) -> object:
    """Return a checksum, equal for tensors that are the same bit by bit."""
    try:
        value = None if tensor.is_meta else checksum(tensor)
    except (KeyError, RuntimeError):  # a tensor of a kind that has no bits to read
        value = None
    return str(tensor.dtype), tuple(tensor.shape), value


def _outputs_of(call: Call, prepared: Prepared) -> Sequence[tuple[str, object]]:
    """Return what a call returns; of a backward pass, which starts with none, the gradients of what they belong to."""
    owner = backward_of(call)
    if owner is None:
        return flatten(prepared())
    outputs = owner.forward(prepared.args, prepared.kwargs) if owner.with_forward else prepared.made[0]
    gradients = owner.gradients(outputs)
    leaves = leaves_of(outputs)
    for leaf in leaves:
        leaf.grad = None
    run_backward(outputs, gradients)
    given = prepared if owner.with_forward else owner.arguments
    named = {id(leaf): name for name, leaf in inputs_of(given.args, given.kwargs)}
    unnamed = count()
    names = [named.get(id(leaf)) or f"parameter {next(unnamed)}" for leaf in leaves]
    return [(f"{name}.grad", leaf.grad) for name, leaf in zip(names, leaves, strict=True)]
