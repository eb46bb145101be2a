"""The arguments of a measurement: kept in their memory as they were given, and varied for a check."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from pytest_gpubench.correctness import Variation
from pytest_gpubench.correctness.held import tensors_held
from pytest_gpubench.correctness.inputs import InputMemory
from pytest_gpubench.correctness.leaves import Leaves, inputs_of
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.timing.calls import Arguments, make_arguments
from pytest_gpubench.units import repr_of

Overwrites = bool | Sequence[str]
"""True, or the names of the arguments that calls may change."""


def kept_arguments(
    functions: Sequence[Callable[..., object]],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None,
    setup: Callable[[], object] | None,
    overwrites: Overwrites = False,
) -> Arguments:
    """Return arguments that every call is given as they are now, whatever earlier calls wrote into them.

    What the functions hold is put back too (a module's weights and buffers, the variables of a closure), and what
    objects among the arguments hold. With `setup`, which makes arguments for each call, nothing is.

    Raises BadRequest for invalid arguments.
    """
    plain = make_arguments(args, kwargs, setup)
    memory = input_memory(functions, plain.args, plain.kwargs) if setup is None else None
    if not isinstance(overwrites, bool):
        check_names("overwrites", overwrites, [name for name, _ in memory.find()] if memory else None)
    return replace(plain, memory=memory, overwrites=bool(overwrites))


def input_memory(
    functions: Sequence[Callable[..., object]], args: Sequence[object], kwargs: Mapping[str, object]
) -> InputMemory:
    """Return the memory of arguments, and of what functions and objects among the arguments hold."""
    find = partial(inputs_of, args, kwargs)

    def held() -> Leaves:
        objects = [leaf for _, leaf in find() if not isinstance(leaf, torch.Tensor)]
        return [leaf for holder in [*functions, *objects] for leaf in tensors_held(holder)]

    return InputMemory(find, held)


def check_names(keyword: str, given: object, names: Sequence[str] | None) -> None:
    """Raise BadRequest for invalid names of arguments; names: those that there are, None if that is not known."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadRequest(f"{keyword}= must be True, or names of arguments such as 'args[0]', found {repr_of(given)}")
    unknown = [each for each in given if names is not None and not any(covers(each, name) for name in names)]
    if unknown:
        raise BadRequest(
            f"{keyword}= names {repr_of(unknown[0])}, but the arguments are {', '.join(names or ()) or 'none'}"
        )


def covers(given: object, name: str) -> bool:
    """Tell whether a name, such as `args[0]`, stands for a leaf: itself, or a container that it lies in."""
    return isinstance(given, str) and (name == given or name.startswith((f"{given}[", f"{given}.")))


@dataclass(frozen=True)
class VariedArguments(Arguments):
    """Arguments of each rep, with other values while they are varied."""

    variation: Variation = field(default_factory=Variation)
    memory: InputMemory | None = None

    @classmethod
    def of(cls, plain: Arguments) -> "VariedArguments":
        """Return arguments that can be varied."""
        memory = plain.memory if isinstance(plain.memory, InputMemory) else None
        return cls(plain.args, plain.kwargs, plain.setup, overwrites=plain.overwrites, memory=memory)

    def fresh(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments of the next rep."""
        arguments = super().fresh()
        if self.setup is not None:
            self.variation.apply(arguments)
        return arguments
