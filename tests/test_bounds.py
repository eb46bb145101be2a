"""Numbers that users give: of every kind, just inside and just outside of their bounds."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from pytest_gpubench import BadRequest
from pytest_gpubench.bounds import at_least, checked_count, duration_s, optional_count, positive_number, whole_number

MOST_COUNTED = 2**63
LONGEST_S = 1e6

NO_NUMBERS = [None, True, False, np.True_, "5", "1e400", 1j, Decimal(5), [5], torch.tensor(5), torch.tensor(5.0)]
WHOLE = "it must be a whole number"
POSITIVE = "it must be above 0 and finite"


@pytest.mark.parametrize("given", [3, np.int8(3), np.uint64(3)])
def test_whole_numbers_of_every_kind(given: Any) -> None:
    assert type(whole_number(given)) is int
    assert whole_number(given) == 3


@pytest.mark.parametrize("given", [*NO_NUMBERS, 5.0, np.float64(5), Fraction(5), math.inf, math.nan])
def test_what_is_no_whole_number(given: object) -> None:
    with pytest.raises(ValueError, match=WHOLE):
        whole_number(given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (1, None),
        (0, "it must be at least 1"),
        (-(10**400), "it must be at least 1"),
        (MOST_COUNTED, None),
        (MOST_COUNTED + 1, f"it must be at most {MOST_COUNTED}"),
        pytest.param(10**9999, f"it must be at most {MOST_COUNTED}", id="longer than Python writes"),
    ],
)
def test_bounds_of_a_count(given: int, problem: str | None) -> None:
    if problem is None:
        assert checked_count("bytes={}", given) == given
        return
    with pytest.raises(BadRequest, match=rf"^bytes=.{{1,300}} is not valid: {problem}$"):
        checked_count("bytes={}", given)


@pytest.mark.parametrize("given", [0.5, np.float16(0.5), np.float64(0.5), Fraction(1, 2)])
def test_real_numbers_of_every_kind(given: Any) -> None:
    assert type(positive_number(given)) is float
    assert positive_number(given) == 0.5


@pytest.mark.parametrize("given", NO_NUMBERS)
def test_what_is_no_number(given: object) -> None:
    with pytest.raises(ValueError, match="it must be a number"):
        positive_number(given)


@pytest.mark.parametrize(
    "given", [0, -1, math.inf, -math.inf, math.nan, np.float32("nan"), 10**400, Fraction(1, 10**400)]
)
def test_what_is_not_positive_or_not_finite(given: object) -> None:
    with pytest.raises(ValueError, match=POSITIVE):
        positive_number(given)


@pytest.mark.parametrize(("given", "kept"), [(1, True), (1 - 1e-9, False), (math.nan, False), (10**400, False)])
def test_at_least(given: float, kept: bool) -> None:
    if kept:
        assert at_least(1)(given) == given
        return
    with pytest.raises(ValueError, match=r"^it must be a finite number of at least 1$"):
        at_least(1)(given)


def test_a_time_that_nobody_waits_for() -> None:
    assert duration_s(LONGEST_S) == LONGEST_S
    with pytest.raises(ValueError, match="it must be at most 1,000,000 s"):
        duration_s(math.nextafter(LONGEST_S, math.inf))


def test_what_is_not_given_stays_none() -> None:
    assert optional_count("flops={}", None) is None
    assert optional_count("flops={}", 3) == 3
