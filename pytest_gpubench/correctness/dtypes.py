"""What a dtype is judged by: its tolerances, its last place, whether it has one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

DEFAULT_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
    "float8_e4m3fn": (2.0**-3, 2.0**-9),
    "float8_e4m3fnuz": (2.0**-3, 2.0**-10),
    "float8_e5m2": (2.0**-2, 2.0**-16),
    "float8_e5m2fnuz": (2.0**-2, 2.0**-17),
}
"""rtol and atol by dtype, as torch.testing.assert_close has them; every other dtype must be equal.

assert_close wants float8 equal too. Here it may be off by its last place (the dtype's epsilon, and its smallest
number): a value near the middle of two goes either way with the last bit of the float32 it was rounded from.
"""

EXACT_FLOATS = ("float8_e8m0fnu", "float4_e2m1fn_x2")
"""Floats that are judged like integers: bare exponents, one step of which is a factor of two, and packed pairs."""


def name_of(dtype: "torch.dtype") -> str:
    """Return a dtype's name as users write it: `float32`."""
    return str(dtype).removeprefix("torch.")


def is_exact(dtype: "torch.dtype") -> bool:
    """Tell whether a dtype has no last place to be off by."""
    return name_of(dtype) in EXACT_FLOATS or not (dtype.is_floating_point or dtype.is_complex)


def is_finer(golden: "torch.dtype", dtype: "torch.dtype") -> bool:
    """Tell whether a dtype is fine enough to measure the errors of another: of its kind, and with more digits."""
    kinds = [(one.is_floating_point, one.is_complex) for one in (golden, dtype)]
    if kinds[0] != kinds[1] or is_exact(dtype):
        return kinds[0] == kinds[1]
    return not is_exact(golden) and last_place(golden)[0] <= max(2.0**-52, last_place(dtype)[0] / 1000)


def last_place(dtype: "torch.dtype") -> tuple[float, float]:
    """Return a float dtype's epsilon and smallest number above 0."""
    import torch

    if name_of(dtype).startswith("float8") and name_of(dtype) in DEFAULT_TOLERANCES:
        return DEFAULT_TOLERANCES[name_of(dtype)]  # torch.finfo is wrong about float8_e5m2fnuz
    info = torch.finfo(dtype)
    return info.eps, info.smallest_normal * info.eps


def last_places(dtype: "torch.dtype", magnitude: "torch.Tensor") -> "torch.Tensor":
    """Return the unit in the last place of a float dtype at these magnitudes (float64, finite)."""
    import torch

    epsilon, smallest = last_place(dtype)
    _, exponent = torch.frexp(magnitude)
    return (torch.exp2(exponent.to(torch.float64) - 1) * epsilon).clamp(min=smallest)
