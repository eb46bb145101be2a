"""Containers and objects among a call's arguments: what a call puts into them, or takes out, is put back."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import torch

from pytest_gpubench.correctness.held import base_of, is_computed, is_of_user, items_in, slots_in
from pytest_gpubench.correctness.leaves import attributes_in, slots_of

SEQUENCES = (list, deque, set)


@dataclass(eq=False)
class Contents:
    """The objects that a dict, a list, an object's attributes or its slots are to hold: the same, looked at no deeper.

    Attributes that the object's class computes once are left there. So are functions that calls put in, such as a
    kernel that the first one compiles, where they change nothing else there: a function may need what came with it.
    """

    holder: Any
    owner: type = object
    """The class whose attributes they are."""
    of_slots: bool = False
    """True for the slots of a holder, which may be a container too."""
    given: dict[Any, object] = field(init=False)
    """The objects that it held first, by key or by place."""

    def __post_init__(self) -> None:
        self.given = self._read()

    @classmethod
    def of(cls, value: Any) -> "Iterator[Contents]":
        """Yield what a value holds now, as a container or in its attributes."""
        if isinstance(value, torch.nn.Module):
            for module in value.modules():
                yield cls(vars(module), type(module))
                inner = (module._parameters, module._buffers, module._modules)
                yield from [cls(each) for each in inner if base_of(each)]  # a ScriptModule has others
        elif isinstance(value, torch.optim.Optimizer):
            yield cls(value.state)
        else:
            is_object = isinstance(value, torch.Tensor) or is_of_user(value)
            if isinstance(value, (dict, *SEQUENCES)):
                yield cls(value)
            if is_object and slots_of(value):
                yield cls(value, of_slots=True)
            if is_object and (own := attributes_in(value)) is not None:
                yield cls(own, type(value))

    @property
    def differ(self) -> bool:
        """True if the holder holds something else."""
        now = self._read()
        return not (_are_same(now, self.given) or _are_same(now, self._wanted(now)))

    def put_back(self) -> None:
        """Let the holder hold what it is to hold."""
        holder, wanted = self.holder, self._wanted(self._read())
        base: Any = base_of(holder)
        if self.of_slots:
            for name, slot in slots_of(holder).items():
                if name in wanted:
                    slot.__set__(holder, wanted[name])
                elif name in slots_in(holder):
                    slot.__delete__(holder)
        elif isinstance(holder, dict):  # a class of its own may refuse to be updated
            base.clear(holder)
            for key, value in wanted.items():
                base.__setitem__(holder, key, value)
        else:
            base.clear(holder)
            (set.update if base is set else base.extend)(holder, wanted.values())

    def _read(self) -> dict[Any, object]:
        return slots_in(self.holder) if self.of_slots else dict(items_in(self.holder))

    def _wanted(self, now: dict[Any, object]) -> dict[Any, object]:
        if isinstance(self.holder, SEQUENCES) and not self.of_slots:
            return self.given
        computed = self.given | {key: value for key, value in now.items() if self._is_computed(key)}
        compiled = computed | {key: value for key, value in now.items() if _is_code(value)}
        return compiled if _are_same(now, compiled) else computed

    def _is_computed(self, key: object) -> bool:
        """Tell whether a key is an attribute that its class computes, or that torch.compile sets, on tensors too."""
        return isinstance(key, str) and (key.startswith("_dynamo") or is_computed(self.owner, key))


def _are_same(one: dict[Any, object], other: dict[Any, object]) -> bool:
    return one.keys() == other.keys() and all(map(is_, one.values(), map(other.__getitem__, one)))


def _is_code(value: object) -> bool:
    """Tell whether a value is a function, or what torch.compile makes of a module."""
    is_module = isinstance(value, torch.nn.Module) and not type(value).__module__.startswith("torch._dynamo")
    return callable(value) and not is_module
