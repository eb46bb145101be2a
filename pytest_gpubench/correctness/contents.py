"""Containers and objects among a call's arguments: what a call puts into them, or takes out, is put back."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pytest_gpubench.correctness.held import is_of_user, reached_from, slots_of

SEQUENCES = (list, deque, set)


@dataclass(eq=False)
class Contents:
    """What a dict, a list, the attributes of an object or its slots are to hold: the same objects, looked at no deeper.

    Functions that a call puts in are left there, such as a kernel that its first call compiles.
    """

    holder: Any
    given: dict[Any, object]
    """By key, or by place."""

    @property
    def differ(self) -> bool:
        """True if the holder holds something else."""
        now = _read(self.holder)
        return not (_are_same(now, self.given) or _are_same(now, self._wanted(now)))

    def put_back(self) -> None:
        """Let the holder hold what it is to hold."""
        holder, wanted = self.holder, self._wanted(_read(self.holder))
        if isinstance(holder, dict):  # a class of its own may refuse to be updated
            kind: Any = OrderedDict if isinstance(holder, OrderedDict) else dict
            kind.clear(holder)
            for key, value in wanted.items():
                kind.__setitem__(holder, key, value)
        elif isinstance(holder, list):
            list.__setitem__(holder, slice(None), wanted.values())
        elif isinstance(holder, deque):
            holder.clear()
            holder.extend(wanted.values())
        elif isinstance(holder, set):
            holder.clear()
            holder.update(wanted.values())
        else:
            for name, slot in slots_of(holder).items():
                if name in wanted:
                    slot.__set__(holder, wanted[name])
                elif hasattr(holder, name):
                    slot.__delete__(holder)

    def _wanted(self, now: dict[Any, object]) -> dict[Any, object]:
        if isinstance(self.holder, SEQUENCES):
            return self.given
        return self.given | {key: value for key, value in now.items() if _is_code(value) or _is_of_compiler(key)}


def contents_in(values: Iterable[object]) -> list[Contents]:
    """Return what the containers and objects that arguments reach hold now."""
    return [Contents(each, _read(each)) for value in reached_from(values) for each in _holders(value)]


def _holders(value: Any) -> Iterator[object]:
    """Yield the containers that a value consists of: itself, its attributes."""
    if isinstance(value, torch.Tensor):
        yield vars(value)
    elif isinstance(value, torch.nn.Module):
        for module in value.modules():
            yield from (vars(module), module._parameters, module._buffers, module._modules)
    elif isinstance(value, torch.optim.Optimizer):
        yield value.state
    elif isinstance(value, (dict, *SEQUENCES)):
        yield value
    elif is_of_user(value):
        yield from [value.__dict__] if isinstance(getattr(value, "__dict__", None), dict) else []
        yield from [value] if slots_of(value) else []


def _read(holder: Any) -> dict[Any, object]:
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, SEQUENCES):
        return dict(enumerate(holder))
    return {name: getattr(holder, name) for name in slots_of(holder) if hasattr(holder, name)}


def _are_same(one: dict[Any, object], other: dict[Any, object]) -> bool:
    return one.keys() == other.keys() and all(value is other[key] for key, value in one.items())


def _is_of_compiler(key: object) -> bool:
    """Tell whether an attribute is one that torch.compile sets, on tensors too."""
    return isinstance(key, str) and key.startswith("_dynamo")


def _is_code(value: object) -> bool:
    """Tell whether a value is a function, or what torch.compile makes of a module."""
    is_module = isinstance(value, torch.nn.Module) and not type(value).__module__.startswith("torch._dynamo")
    return callable(value) and not is_module
