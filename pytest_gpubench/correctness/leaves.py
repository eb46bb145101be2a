"""Leaves of arguments and outputs by name, and the dense tensors among them."""

import copy
import dataclasses
import functools
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch

from pytest_gpubench.correctness.tolerance import dtype_name
from pytest_gpubench.errors import refusing_cycles

Leaves = list[tuple[str, object]]
"""Leaves of a pytree by name."""
ArgsAndKwargs = tuple[tuple[object, ...], dict[str, object]]
PACKED = re.compile(r"bits.*|float4.*|u?int[1-7]")
"""Dtypes of a byte or more of which torch computes nothing."""
USUAL = ("float32", "bfloat16", "float16", "float64", "int64", "int32", "bool")


@functools.cache
def is_usual(dtype: torch.dtype) -> bool:
    """Tell whether a dtype is one that torch does everything with."""
    return dtype_name(dtype) in USUAL


def flatten(value: object, name: str = "out", objects: bool = False) -> Leaves:
    """Return the leaves of a pytree by name: `out`, `out[0]`, `out['loss']`, `out.hidden`.

    Dataclasses are flattened by field, nested tensors by row; what is no container is a leaf, None too.
    objects: True to return dataclasses too that have other attributes than their fields.
    """
    inner = children_of(value)
    if inner is None:
        return [(name, value)]
    if len(dict(inner)) < len(inner):  # keys of one repr
        inner = [(f"{suffix}#{place}", child) for place, (suffix, child) in enumerate(inner)]
    inside = [leaf for suffix, child in inner for leaf in flatten(child, name + suffix, objects)]
    if not objects or not _is_plain_dataclass(value):
        return inside
    own = {*(attributes_in(value) or ()), *slots_of(value)}
    return inside if own <= {*_fields_of(value)} else [(name, value), *inside]


def children_of(value: object) -> list[tuple[str, object]] | None:
    """Return the contents of a container, by the suffix of their names; None for a leaf."""
    if isinstance(value, torch.Tensor):
        return [(f"[{row}]", part) for row, part in enumerate(value.unbind())] if value.is_nested else None
    if type(value) in (tuple, list):  # as torch does it, in a twentieth of the time
        return [(f"[{place}]", part) for place, part in enumerate(cast(Sequence[object], value))]
    if type(value) is dict:
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if _is_plain_dataclass(value):
        return [(f".{name}", getattr(value, name)) for name in _fields_of(value)]
    return _pytree_children(value)


def _pytree_children(value: object) -> list[tuple[str, object]] | None:
    """Return the contents of a container that torch knows; None for any other value."""
    from torch.utils import _pytree as pytree

    try:
        found, _ = pytree.tree_flatten_with_path(value, is_leaf=_is_inside(value))
    except ValueError:  # its class is registered without names
        parts, _ = pytree.tree_flatten(value, is_leaf=_is_inside(value))
        return [(f"[{place}]", part) for place, part in enumerate(parts)]
    return [("".join(map(str, path)), part) for path, part in found] if all(path for path, _ in found) else None


def _is_inside(container: object) -> Callable[[object], bool]:
    """Return the test that ends a walk below a container, by its number: torch's walk leaves a cycle with the test."""
    number = id(container)
    return lambda node: id(node) != number


def _is_plain_dataclass(value: object) -> bool:
    """Tell whether a value is a dataclass that torch does not know; it knows few."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and _pytree_children(value) is None


def _fields_of(value: Any) -> list[str]:
    return [one.name for one in dataclasses.fields(value) if hasattr(value, one.name)]


def attributes_in(value: object) -> dict[str, object] | None:
    """Return the attributes of an object that has any, without a call of code of its class, which may raise."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) and own is not value else None


def slots_of(value: object) -> dict[str, Any]:
    """Return the slots of an object by name."""
    classes = [vars(cls) for cls in type(value).__mro__[::-1] if "__slots__" in vars(cls)]
    members = {name: each for cls in classes for name, each in cls.items()}
    return {name: each for name, each in members.items() if isinstance(each, types.MemberDescriptorType)}


def map_leaves(function: Callable[[object], object], value: object) -> object:
    """Return a copy of a pytree in which the function's result replaces each leaf."""
    from torch.utils import _pytree as pytree

    if isinstance(value, torch.Tensor):
        return function(value)
    if type(value) is tuple:
        return tuple(map_leaves(function, part) for part in value)
    if type(value) is list:
        return [map_leaves(function, part) for part in value]
    if type(value) is dict:
        return {key: map_leaves(function, part) for key, part in value.items()}
    if not _is_plain_dataclass(value):
        if _pytree_children(value) is None:
            return function(value)
        return pytree.tree_map(functools.partial(map_leaves, function), value, is_leaf=_is_inside(value))
    made = copy.copy(value)
    for name in _fields_of(value):
        object.__setattr__(made, name, map_leaves(function, getattr(value, name)))  # frozen ones too
    return made


def inputs_of(args: Sequence[object], kwargs: Mapping[str, object] | None) -> Leaves:
    """Return the leaves of a call's arguments by name: `args[0]`, `kwargs['out']`."""
    with refusing_cycles("args= or kwargs="):
        return flatten(tuple(args), "args", True) + flatten(dict(kwargs or {}), "kwargs", True)


def tensor_of(leaf: object, to_compare: bool = False) -> torch.Tensor | None:
    """Return a tensor, or an array of NumPy as one in its memory; None for anything else, and where torch has no such.

    to_compare: True for a copy of an array: of one that cannot be written too, or of a scalar of NumPy.
    """
    if isinstance(leaf, torch.Tensor):
        return leaf
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(leaf, (numpy.ndarray, numpy.generic)) or isinstance(leaf, numpy.ma.MaskedArray):
        return None
    try:
        array = numpy.array(leaf, leaf.dtype.newbyteorder("="), order="C") if to_compare else leaf
        return torch.from_numpy(array) if array.flags.writeable else None
    except (TypeError, ValueError, RuntimeError):  # a dtype or strides that torch lacks, or a NumPy that it cannot read
        return None


def tensors_of(leaves: Sequence[tuple[str, object]]) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors that hold the memory of those among leaves, and of arrays, by name, detached."""
    tensors = [(name, tensor) for name, leaf in leaves if (tensor := tensor_of(leaf)) is not None]
    return [
        part
        for name, tensor in tensors
        for part in components(name, tensor.detach() if tensor.requires_grad else tensor, in_place=True)
    ]


def components(name: str, tensor: torch.Tensor, in_place: bool = False) -> list[tuple[str, torch.Tensor]]:
    """Return the dense tensors that a tensor consists of: itself, those that it wraps, or a sparse one's parts.

    in_place: True for those in its own memory, which may hold no plain numbers.
    """
    if type(tensor) is torch.Tensor and tensor.layout is torch.strided and is_usual(tensor.dtype):
        return [(name, tensor)]  # as most are: the rest takes longer to tell
    if wraps_tensors(tensor):
        inner = [(f"{name}.{each}", getattr(tensor, each)) for each in tensor.__tensor_flatten__()[0]]  # type: ignore[attr-defined]
        tensors = [(each, one) for each, one in inner if isinstance(one, torch.Tensor)]  # some name a mesh too
        return [part for each, one in tensors for part in components(each, one, in_place)]
    if tensor.is_quantized:
        return [(name, tensor if in_place else tensor.dequantize())]
    if in_place and tensor.layout is torch.sparse_coo:
        return [(f"{name}.indices()", tensor._indices()), (f"{name}.values()", tensor._values())]
    by_row, by_column = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
    methods = {
        torch.sparse_coo: ("indices", "values"),
        **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), by_row),
        **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), by_column),
    }.get(tensor.layout)
    if methods is None:
        return [(name, as_computable(tensor))]
    tensor = tensor.coalesce() if tensor.layout is torch.sparse_coo else tensor
    return [(f"{name}.{method}()", getattr(tensor, method)()) for method in methods]


def wraps_tensors(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has no memory but that of others, and can name them, as a DTensor can."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return type(tensor) is not torch.Tensor and is_traceable_wrapper_subclass(tensor)


def as_computable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or its bytes where torch can only store its dtype."""
    return tensor.view(torch.uint8) if PACKED.fullmatch(dtype_name(tensor.dtype)) else tensor
