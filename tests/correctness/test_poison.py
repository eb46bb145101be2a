"""Elements that were never written."""

import math

import pytest
import torch

from pytest_gpubench.correctness import poison_free_memory
from tests.correctness.samples import COMPLEX, FLOAT8, FLOATS, INTEGERS, compare, poison, unwritten


class TestUnwritten:
    @pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX], ids=str)
    def test_poison_is_nan(self, dtype: torch.dtype) -> None:
        assert bool(poison(dtype, 4).isnan().all())

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_a_computed_nan_is_not_poison(self, dtype: torch.dtype) -> None:
        """Not of either sign, however it came to be: the CPU makes bfloat16 with all bits set."""
        zero = torch.zeros(100)
        for nan in (zero / zero, (zero - 1).sqrt(), zero + math.nan, zero * math.inf, torch.full((100,), math.nan)):
            assert unwritten((nan.to(dtype), -nan.to(dtype), nan.to(dtype) + 1, nan.double().to(dtype).abs())) == {}

    @pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8, *COMPLEX, *INTEGERS, torch.bool], ids=str)
    def test_a_wrong_element_that_holds_poison_was_never_written(self, dtype: torch.dtype) -> None:
        expected = torch.zeros(2, 8).to(dtype)
        found = expected.clone()
        found[0, 3] = 1
        size = dtype.itemsize
        found.view(torch.uint8)[1, 2 * size : 6 * size] = poison(torch.uint8, 4 * size)
        difference = compare(found.t(), expected.t(), poisoned=True)
        assert (difference.mismatched, difference.unwritten) == (5, 4)
        assert "never written, for it holds what free memory was filled with: 4 elements" in difference.sentence
        assert compare(found, expected).unwritten == 0

    def test_a_right_element_may_look_like_poison(self) -> None:
        pattern = poison(torch.int32, 4)
        assert compare(pattern, pattern, poisoned=True).unwritten == 0

    def test_outputs_in_use_are_not_touched(self) -> None:
        x, y = torch.ones(1000), torch.ones(10).int()
        poison_free_memory({"x": x, "y": (y, None), "z": torch.ones(0)}, "cpu")
        assert x.eq(1).all()
        assert y.eq(1).all()
