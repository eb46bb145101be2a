"""Tolerances: how far an output may be from the reference's, by dtype; and the unit in the last place."""

from dataclasses import dataclass

import torch

from pytest_gpubench.bounds import argument, at_least
from pytest_gpubench.errors import BadRequest

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
"""rtol and atol by dtype, as in torch.testing.assert_close; other dtypes must be equal.

assert_close wants float8 equal too. Here float8 may be off by its last place (the dtype's epsilon and its smallest
number): a value near the middle of two goes either way with the last bit of the float32 it was rounded from.
"""

EXACT_FLOATS = ("float8_e8m0fnu", "float4_e2m1fn_x2")
"""Floats that must be equal, like integers: bare exponents, whose steps are factors of two, and packed pairs."""


@dataclass(frozen=True)
class Tolerance:
    """The distance allowed from the reference: `atol + rtol * |reference|`; None takes the dtype's defaults.

    Raises BadRequest where only one of rtol and atol is given, or where one is no finite number of at least 0.
    """

    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None:
                object.__setattr__(self, name, argument(f"{name}={{}}", value, at_least(0)))
        if (self.rtol is None) != (self.atol is None):
            given, missing = ("atol", "rtol") if self.rtol is None else ("rtol", "atol")
            raise BadRequest(f"{given}= is given without {missing}=: give both, or neither for the dtype's own")

    @property
    def is_default(self) -> bool:
        """True if each dtype has its own tolerances."""
        return self.rtol is None

    def of(self, dtype: torch.dtype) -> tuple[float, float]:
        """Return rtol and atol for a dtype."""
        if self.rtol is None or self.atol is None:
            return DEFAULT_TOLERANCES.get(dtype_name(dtype), (0.0, 0.0))
        return self.rtol, self.atol


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name as users write it: `float32`."""
    return str(dtype).removeprefix("torch.")


def is_exact(dtype: torch.dtype) -> bool:
    """Tell whether elements of a dtype are either equal or wrong: integers, bools and `EXACT_FLOATS`."""
    return dtype_name(dtype) in EXACT_FLOATS or not (dtype.is_floating_point or dtype.is_complex)


def last_places(dtype: torch.dtype, magnitude: torch.Tensor) -> torch.Tensor:
    """Return the unit in the last place of a float dtype at these magnitudes (float64, finite)."""
    epsilon, smallest = last_place(dtype)
    _, exponent = torch.frexp(magnitude)
    return (torch.exp2(exponent.to(torch.float64) - 1) * epsilon).clamp(min=smallest)


def last_place(dtype: torch.dtype) -> tuple[float, float]:
    """Return a float dtype's epsilon and its smallest number above 0."""
    if dtype_name(dtype).startswith("float8") and dtype_name(dtype) in DEFAULT_TOLERANCES:
        return DEFAULT_TOLERANCES[dtype_name(dtype)]  # torch.finfo is wrong about float8_e5m2fnuz
    info = torch.finfo(dtype)
    return info.eps, info.smallest_normal * info.eps
