"""Dtypes, layouts and values of tensors, by name."""

from typing import TypeAlias

import torch
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from hypothesis.strategies import SearchStrategy

from pytest_gpubench.strategies.arguments import check_name

LAYOUTS = ("contiguous", "transposed", "sliced", "expanded", "offset", "unaligned")
"""The layouts of a tensor in memory; `tensor` explains each."""

VALUES = ("normal", "zeros", "equal_rows", "peaked", "large", "denormal", "inf", "nan")
"""The kinds of values in a tensor; `tensor` explains each."""

USUAL_VALUES = VALUES[:-3]
"""The kinds without infinity, NaN, and numbers that torch's default tolerances cannot tell from 0."""
WHOLE_VALUES = ("normal", "zeros", "equal_rows", "large")
"""The kinds of values in a tensor of integers or bools."""

FLOATS = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")
WHOLES = ("int8", "int16", "int32", "int64", "uint8", "bool")
FLOAT8_CAPABILITY = (8, 9)

DtypeLike: TypeAlias = torch.dtype | str


def dtypes(*names: DtypeLike) -> SearchStrategy[torch.dtype]:
    """Draw one of the given dtypes (`torch.bfloat16` or `"bfloat16"`); without any, float32, float16 or bfloat16.

    Shrinks towards the first. Raises InvalidArgument for an unknown dtype and, when it is drawn, for a float8 that the
    GPU cannot compute with.
    """
    found = [find_dtype(name, f"dtypes()[{number}]") for number, name in enumerate(names or FLOATS[:3])]
    return st.sampled_from(found).map(_computable)


def layouts(*names: str) -> SearchStrategy[str]:
    """Draw one of the given layouts, or of `LAYOUTS`; shrinks towards the first.

    Raises InvalidArgument for a name that is not in `LAYOUTS`.
    """
    return st.sampled_from([check_name(name, "layout", LAYOUTS) for name in names or LAYOUTS])


def values(*names: str) -> SearchStrategy[str]:
    """Draw one of the given kinds of values; without any, one of `VALUES` but "denormal", "inf" and "nan".

    Denormals lie within the default tolerances of 0: name them with `golden="float64"` or `atol=0`. Shrinks towards
    the first. Raises InvalidArgument for a name that is not in `VALUES`.
    """
    return st.sampled_from([check_name(name, "values", VALUES) for name in names or USUAL_VALUES])


def find_dtype(asked: object, name: str = "dtype") -> torch.dtype:
    """Return a dtype given as it is or by name; raise InvalidArgument for an unknown one."""
    text = str(asked).removeprefix("torch.")
    if not isinstance(asked, torch.dtype | str) or text not in (*FLOATS, *WHOLES):
        raise InvalidArgument(f"{name}={asked!r} is not known: choose from {', '.join((*FLOATS, *WHOLES))}")
    found = getattr(torch, text)
    assert isinstance(found, torch.dtype)
    return found


def _computable(dtype: torch.dtype) -> torch.dtype:
    capability = None
    if str(dtype).startswith("torch.float8") and torch.cuda.is_available():
        capability = torch.cuda.get_device_capability()
    if capability is not None and capability < FLOAT8_CAPABILITY:
        raise InvalidArgument(
            f"{dtype} was asked for, but this GPU has compute capability {capability[0]}.{capability[1]} and cannot "
            "compute with it below 8.9: leave it out of dtypes()"
        )
    return dtype
