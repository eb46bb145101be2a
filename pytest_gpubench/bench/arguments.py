"""The arguments of a measurement: kept in their memory as they were given, and varied for a check."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from pytest_gpubench.correctness import Variation
from pytest_gpubench.correctness.held import held_by_functions, is_value
from pytest_gpubench.correctness.inputs import InputMemory, by_name, room_on
from pytest_gpubench.correctness.leaves import Leaves, children_of, flatten, inputs_of
from pytest_gpubench.correctness.memory import MemoryRange, lying_in, memory_of
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.timing.calls import Arguments, make_arguments, refuse_without_data, split_arguments
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
        leaves = by_name(memory.given_leaves()) if memory else {}
        named = {"args": plain.args, "kwargs": plain.kwargs}.items()
        given = [(f"{where}{suffix}", each) for where, all_ in named for suffix, each in children_of(all_) or ()]
        tensors = [name for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor)]
        growing = [name for name, each in given if not is_value(each)]
        check_names("overwrites", overwrites, tensors if memory else None, growing)
    return replace(plain, memory=memory, overwrites=bool(overwrites))


def input_memory(
    functions: Sequence[Callable[..., object]], args: Sequence[object], kwargs: Mapping[str, object]
) -> InputMemory:
    """Return the memory of arguments, and of what functions and objects among the arguments hold."""
    return InputMemory(partial(inputs_of, args, kwargs), partial(held_by_functions, functions), roots=(args, kwargs))


def check_names(keyword: str, given: object, names: Sequence[str] | None, growing: Sequence[str] = ()) -> None:
    """Raise BadRequest for invalid names of arguments; names: those that there are, None if that is not known.

    growing: the names of containers and objects, which may get more.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadRequest(f"{keyword}= must be True, or names of arguments such as 'args[0]', found {repr_of(given)}")
    unknown = [each for each in given if names is not None and not any(covers(each, name) for name in names)]
    unknown = [each for each in unknown if not any(covers(name, str(each)) for name in growing)]
    if unknown:
        raise BadRequest(
            f"{keyword}= names {repr_of(unknown[0])}, but the arguments are {', '.join(names or ()) or 'none'}"
        )


def covers(given: object, name: str) -> bool:
    """Tell whether a name, such as `args[0]`, stands for a leaf: itself, or a container that it lies in."""
    return isinstance(given, str) and (name == given or name.startswith((f"{given}[", f"{given}.")))


CALLS_WITHOUT_NEW = 2
"""After so many calls in a row that were given no new memory that lives on, none is expected."""


@dataclass
class RestoringSetup:
    """A `setup` that gives memory again as it gave it first, whatever calls wrote there.

    All that lives on after the call that it was given to is put back before each call, as far as there is room for
    copies.
    """

    setup: Callable[[], object]
    arguments: tuple[Sequence[object], Mapping[str, object]]
    """Those that `setup` fills where it returns None."""
    given: list[tuple[MemoryRange, torch.Tensor | None]] = field(default_factory=list)
    """Memory that calls were given, and what it held then; None where there is no room for a copy."""
    new: int = 0
    """The number of entries at the end of `given` that the last call added."""
    calls_without_new: int = -1
    """The number of calls in a row that were given no such memory; -1 before the first call."""
    replaced: dict[str, torch.Tensor] = field(default_factory=dict)
    """The bytes that arguments are to hold, whatever `setup` writes there, by name."""
    latest: Leaves = field(default_factory=list)
    """The arguments of the last call, as long as memory is looked for."""

    def __call__(self) -> object:
        """Return the arguments of the next call."""
        self.latest = []
        is_new = self.new and any(memory.lives for memory, _ in self.given[-self.new :])
        self.given = [each for each in self.given if each[0].lives]
        self.calls_without_new = 0 if is_new else self.calls_without_new + 1
        self.put_back()
        made = self.setup()
        leaves = inputs_of(*(self.arguments if made is None else split_arguments(made)))
        self.new = 0
        if self.calls_without_new < CALLS_WITHOUT_NEW:
            refuse_without_data(dict(leaves))
            self.latest, known = leaves, {memory[:4] for memory, _ in self.given}
            new = [memory for _, memory in memory_of(leaves, owned=True) if memory[:4] not in known]
            has_room = [each.size_bytes <= room_on(each.device) for each in new]
            self.given += [
                (each, each.bytes.clone() if room else None) for each, room in zip(new, has_room, strict=True)
            ]
            self.new = len(new)
        for name, memory in memory_of([leaf for leaf in leaves if leaf[0] in self.replaced], owned=True):
            memory.bytes.copy_(self.replaced[name])
        return made

    def put_back(self) -> None:
        """Write into memory that lives on what it held first."""
        for memory, values in self.given:
            if values is not None and memory.lives:
                memory.bytes.copy_(values)

    def given_leaves(self) -> Leaves:
        """Return those arguments of the last call that it did not change."""
        changed = [
            ("", each)
            for each, values in self.given
            if each.lives and (values is None or not torch.equal(each.bytes, values))
        ]
        names = dict(lying_in(self.latest, changed))
        return [leaf for leaf in self.latest if leaf[0] not in names]

    def replace(self, name: str, values: torch.Tensor) -> bool:
        """Let an argument hold these bytes from now on."""
        self.replaced[name] = values
        return True

    def end_replacing(self, name: str) -> None:
        """Let it hold again what `setup` writes there."""
        del self.replaced[name]


@dataclass(frozen=True)
class VariedArguments(Arguments):
    """Arguments of each rep, with other values while they are varied."""

    variation: Variation = field(default_factory=Variation)
    memory: InputMemory | None = None
    setup: RestoringSetup | None = None

    @classmethod
    def of(cls, plain: Arguments) -> "VariedArguments":
        """Return arguments that can be varied."""
        memory = plain.memory if isinstance(plain.memory, InputMemory) else None
        setup = None if plain.setup is None else RestoringSetup(plain.setup, (plain.args, plain.kwargs))
        return cls(plain.args, plain.kwargs, setup, overwrites=plain.overwrites, memory=memory)

    def fresh(self) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments of the next rep."""
        arguments = super().fresh()
        if self.setup is not None:  # what lives on and cannot be put back would stay varied
            leaves = flatten(arguments)
            kept = dict(lying_in(leaves, [("", memory) for memory, values in self.setup.given if values is None]))
            Variation().begin(self.variation.way, [leaf for name, leaf in leaves if name not in kept])
        return arguments
