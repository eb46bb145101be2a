"""How far a candidate may be from its reference."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_gpubench.correctness.dtypes import DEFAULT_TOLERANCES, name_of
from pytest_gpubench.errors import BadRequest

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True


@dataclass(frozen=True)
class Tolerance:
    """How far a candidate may be from its reference: `atol + rtol * |reference|`, by default as the dtype asks.

    Raises BadRequest where only one of rtol and atol is given, or where one is no finite number of at least 0.
    """

    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not (is_number(value) and 0 <= value < math.inf):
                raise BadRequest(f"{name}={value!r} is no tolerance: it must be a finite number of at least 0")
        if (self.rtol is None) != (self.atol is None):
            given, missing = ("atol", "rtol") if self.rtol is None else ("rtol", "atol")
            raise BadRequest(f"{given}= is given without {missing}=: give both, or neither for the dtype's own")

    @property
    def is_default(self) -> bool:
        """Whether each dtype's own tolerances are meant."""
        return self.rtol is None

    def of(self, dtype: "torch.dtype") -> tuple[float, float]:
        """Return rtol and atol for a dtype."""
        if self.rtol is None or self.atol is None:
            return DEFAULT_TOLERANCES.get(name_of(dtype), (0.0, 0.0))
        return self.rtol, self.atol


def is_number(value: object) -> bool:
    """Tell whether a value is a real number; bools are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
