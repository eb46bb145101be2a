"""Tensors that an object holds: weights of a module, arguments of a partial, variables of a closure, a cache."""

import functools
import types
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import torch

from pytest_gpubench.correctness.leaves import Leaves, attributes_in, slots_of, tensor_of
from pytest_gpubench.units import repr_of

MOST_ITEMS = 1000
"""Longer lists and dicts are not looked into."""
MOST_OBJECTS = 2000
"""No more objects and containers are looked into; the nearest are first."""
LIBRARIES = ("torch", "triton", "pytest", "_pytest", "pytest_gpubench")
"""Packages whose objects hold caches, which are not a call's inputs."""
OF_MODULES = ("_parameters", "_buffers", "_modules")
"""Attributes of a module whose contents are found under better names."""
CONTAINERS = (OrderedDict, dict, list, deque, set, tuple)
SIMPLE = (type(None), int, float, complex, str, bytes)


def held_by_functions(functions: Iterable[object]) -> Leaves:
    """Return the tensors that functions reach without being given them, by name: `weight of Norm`, `x of scale`."""
    found = []
    for function in functions:
        of = (callable(function) and getattr(function, "__name__", None)) or type(function).__name__
        tensors = _each_once(reached_in("", function, {}), set())
        found += [(f"{name.lstrip('.') or 'itself'} of {of}", tensor) for name, tensor in tensors]
    return found


def held_by(leaves: Leaves) -> Leaves:
    """Return the tensors that objects among leaves hold, by name, each once: `args[1].keys`."""
    return _each_once(values_held_by(leaves), {id(leaf) for _, leaf in leaves})


def values_held_by(leaves: Leaves) -> Leaves:
    """Return the tensors and the numbers, texts and None that objects among leaves hold, by name."""
    objects = [(name, leaf) for name, leaf in leaves if attributes_in(leaf) or not is_value(leaf)]
    seen: dict[int, object] = {}
    return [each for name, leaf in objects for each in reached_in(name, leaf, seen) if is_value(each[1])]


def is_value(leaf: object) -> bool:
    """Tell whether a leaf can be compared: it is a tensor, an array, a number, a text or None."""
    return isinstance(leaf, SIMPLE) or tensor_of(leaf) is not None


def _each_once(leaves: Iterable[tuple[str, object]], seen: set[int]) -> Leaves:
    """Return the tensors among leaves that were not seen, each once."""
    tensors: dict[int, tuple[str, object]] = {}
    for name, leaf in leaves:
        if id(leaf) not in seen and tensor_of(leaf) is not None:
            tensors.setdefault(id(leaf), (name, leaf))
    return list(tensors.values())


def reached_in(name: str, holder: object, seen: dict[int, object]) -> Iterator[tuple[str, object]]:
    """Yield an object and all that it holds, by name, the nearest first; other objects than tensors once.

    Values have names of their own, also under keys of one repr, such as modules, and in a method's function and object.
    """
    looked_into, times = 0, Counter[str]()
    waiting: deque[tuple[str, object]] = deque([(name, holder)])
    while waiting and looked_into < MOST_OBJECTS:
        name, value = waiting.popleft()
        if _has_no_class(value):
            continue
        is_known, is_leaf = id(value) in seen, is_value(value)
        if is_leaf:
            yield name + f"#{times[name]}" * (name in times), value
            times[name] += 1
        elif not is_known:
            yield name, value
        if not is_known and (attributes_in(value) or not is_leaf):
            seen[id(value)] = value
            looked_into += 1
            waiting.extend((name + suffix, inner) for suffix, inner in _contents_of(value))


def _has_no_class(value: object) -> bool:
    """Tell whether a value refuses to be asked for its class, as a weak proxy of an object that is gone does."""
    try:
        return value.__class__ is None
    except Exception:
        return True


def _contents_of(value: Any) -> Iterator[tuple[str, object]]:
    """Yield what a value holds, by the suffix of its name; nothing for a value of another kind."""
    if isinstance(value, torch.nn.Module):
        yield from ((f".{name}", tensor) for name, tensor in [*value.named_parameters(), *value.named_buffers()])
        for path, module in value.named_modules():
            yield from ((f".{path}{suffix}" if path else suffix, inner) for suffix, inner in _attributes_of(module))
    elif isinstance(value, torch.optim.Optimizer):
        yield from ((".param_groups", value.param_groups), (".state", list(value.state.values())))
    elif isinstance(value, functools.partial):
        yield from (("", value.func), ("", value.args), ("", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from (("", value.__func__), ("", value.__self__))
    elif isinstance(value, types.BuiltinMethodType):
        yield from [("", value.__self__)] if isinstance(value.__self__, torch.Tensor) else []
    elif isinstance(value, types.FunctionType):
        yield from _variables_of(value)
    else:
        if isinstance(value, (dict, list, tuple, deque)):
            yield from [(f"[{repr_of(key)}]", each) for key, each in list(islice(items_in(value), MOST_ITEMS))]
        yield from _attributes_of(value)


def _attributes_of(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the attributes of an object of the user's, and tensors that another has, such as `weight.main_grad`."""
    own, are_all = {**(attributes_in(value) or {}), **slots_in(value)}, is_of_user(value)
    names = [name for name in own if name not in OF_MODULES and not is_computed(type(value), name)]
    yield from [(f".{name}", own[name]) for name in names if are_all or issubclass(type(own[name]), torch.Tensor)]


def is_of_user(value: object) -> bool:
    """Tell whether an object is neither one of a library's own nor a class or a module of Python."""
    return type(value).__module__.split(".")[0] not in LIBRARIES and not isinstance(value, (type, types.ModuleType))


def is_computed(cls: type, name: str) -> bool:
    """Tell whether a class computes an attribute when it is asked for first, as functools.cached_property does."""
    kind = next((type(vars(one)[name]) for one in cls.__mro__ if name in vars(one)), type)
    return hasattr(kind, "__get__") and not hasattr(kind, "__set__")


def items_in(container: Any) -> Iterable[tuple[Any, object]]:
    """Return the items of a container by key or place, without a call of code of its class, which may compute them."""
    base: Any = base_of(container)
    return base.items(container) if issubclass(base, dict) else enumerate(base.__iter__(container))


def base_of(container: object) -> type | None:
    """Return Python's own class of a container."""
    return next((each for each in CONTAINERS if isinstance(container, each)), None)


def slots_in(value: object) -> dict[str, object]:
    """Return what the slots of an object hold, by name, without a call of code of its class."""
    found = {}
    for name, slot in slots_of(value).items():
        with suppress(AttributeError):  # one that is empty
            found[name] = slot.__get__(value)
    return found


def _variables_of(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function uses: its closure's variables, defaults, attributes, tensors and modules of its file."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with_value = cell != types.CellType()  # one that is not filled yet raises when it is read
        if with_value:
            yield f".{name}", cell.cell_contents
    yield from (("", function.__defaults__ or ()), ("", function.__kwdefaults__ or {}))
    yield from [("" if name == "__wrapped__" else f".{name}", each) for name, each in vars(function).items()]
    for name in function.__code__.co_names:
        if isinstance(found := function.__globals__.get(name), (torch.Tensor, torch.nn.Module)):
            yield f".{name}", found
