"""Tensors that a function holds: weights of a module, arguments of a partial, variables of a closure."""

import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

from pytest_gpubench.correctness.leaves import Leaves

__tracebackhide__ = True

MOST_ITEMS = 1000
"""Longer lists and dicts are not looked into."""
LIBRARIES = ("torch", "triton")
"""Their objects hold caches, which are not a call's inputs."""


def tensors_held(function: object) -> Leaves:
    """Return the tensors that a function reaches without being given them, by name: `weight of Norm`, `x of scale`."""
    of = getattr(function, "__name__", None) or type(function).__name__
    found = {id(tensor): (f"{name} of {of}", tensor) for name, tensor in _held(function, "", {})}
    return list(found.values())


def _held(value: Any, name: str, seen: dict[int, object]) -> Iterator[tuple[str, object]]:
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, torch.Tensor):
        yield name or "itself", value
        return
    for each, inner in _contents_of(value, name):
        yield from _held(inner, each or name, seen)


def _contents_of(value: Any, name: str) -> Iterator[tuple[str, object]]:
    """Yield what a value of this name holds, by name; nothing for a value of another kind."""
    if isinstance(value, torch.nn.Module):
        yield from value.named_parameters()
        yield from value.named_buffers()
    elif isinstance(value, functools.partial):
        yield from (("", value.func), ("", value.args), ("", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from (("", value.__func__), ("", value.__self__), *_attributes_of(value.__self__))
    elif isinstance(value, types.BuiltinMethodType):
        yield from [("", value.__self__)] if isinstance(value.__self__, torch.Tensor) else []
    elif isinstance(value, types.FunctionType):
        yield from _variables_of(value)
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", each) for key, each in list(value.items())[:MOST_ITEMS])
    elif isinstance(value, (list, tuple)):
        yield from ((f"{name}[{place}]", each) for place, each in enumerate(value[:MOST_ITEMS]))
    elif callable(value):
        yield from _attributes_of(value)


def _attributes_of(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the attributes of an object of the user's."""
    if not type(value).__module__.startswith(LIBRARIES) and not isinstance(value, (type, types.ModuleType)):
        yield from getattr(value, "__dict__", {}).items()


def _variables_of(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function uses from outside: variables of its closure, defaults, tensors and modules of its file."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with_value = cell != types.CellType()  # one that is not filled yet raises when it is read
        if with_value:
            yield name, cell.cell_contents
    yield from (("", function.__defaults__ or ()), ("", function.__kwdefaults__ or {}))
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        yield "", wrapped
    for name in function.__code__.co_names:
        if isinstance(found := function.__globals__.get(name), (torch.Tensor, torch.nn.Module)):
            yield name, found
