"""What is a tolerance, and each dtype's own."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from pytest_gpubench import BadRequest
from pytest_gpubench.correctness import Tolerance
from tests.correctness.samples import COMPLEX, FLOAT8, FLOATS, INTEGERS, compare


class TestTolerance:
    @pytest.mark.parametrize("dtype", [*FLOATS, torch.complex32, *COMPLEX, *INTEGERS, torch.bool])
    def test_defaults_are_those_of_torch_testing(self, dtype: torch.dtype) -> None:
        assert Tolerance().of(dtype) == torch.testing._comparison.default_tolerances(dtype)

    @pytest.mark.parametrize("dtype", FLOAT8)
    def test_float8_may_be_off_by_its_last_place_and_no_more(self, dtype: torch.dtype) -> None:
        """Every value against its two neighbours, and against those one further."""
        bits = torch.arange(128, dtype=torch.uint8)  # torch 2.6 cannot index what they stand for
        values = bits[bits.view(dtype).to(torch.float64).isfinite()].view(dtype)
        assert compare(values[1:], values[:-1]).passed
        assert compare(values[:-1], values[1:]).passed
        assert compare(values[:-2], values[2:]).mismatched > 0.4 * (values.numel() - 2)

    @pytest.mark.parametrize("value", [-1e-9, math.nan, True, "1e-3", 10**400])
    @pytest.mark.parametrize("name", ["rtol", "atol"])
    def test_what_is_no_tolerance_is_refused(self, name: str, value: Any) -> None:
        with pytest.raises(BadRequest, match=rf"^{name}=.* is not valid: it must be a (finite )?number"):
            Tolerance(**{"rtol": 0.0, "atol": 0.0, name: value})

    @pytest.mark.parametrize(("given", "missing"), [("rtol", "atol"), ("atol", "rtol")])
    def test_one_without_the_other_is_refused(self, given: str, missing: str) -> None:
        with pytest.raises(BadRequest, match=f"{given}= is given without {missing}=: give both, or neither"):
            Tolerance(**{given: 0.0})  # type: ignore[arg-type]

    def test_numbers_of_other_kinds_are_floats(self) -> None:
        assert Tolerance(np.float32(0.5), Fraction(1, 4)) == Tolerance(0.5, 0.25)  # type: ignore[arg-type]
        assert type(Tolerance(np.float64(0.5), 0).rtol) is float

    def test_what_was_asked_for_holds_for_every_dtype(self) -> None:
        assert {Tolerance(0.5, 0).of(dtype) for dtype in (torch.int8, torch.float16)} == {(0.5, 0)}
