"""Numbers that users give: of every kind, just inside and just outside of their bounds."""

import math
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from pytest_gpubench import BadRequest
from pytest_gpubench.bounds import at_least, checked_count, duration_s, optional_count, positive_number, whole_number

MOST_COUNTED = 2**63
LONGEST_S = 1e6

NO_NUMBERS = [None, True, False, np.True_, "5", "1e400", 1j, Decimal(5), [5], torch.tensor(5), torch.tensor(5.0)]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        *((each, True) for each in (3, np.int8(3), np.uint64(3))),
        *((each, False) for each in (*NO_NUMBERS, 3.0, np.float64(3), Fraction(3), math.inf, math.nan)),
    ],
)
def test_whole_numbers_of_every_kind(given: object, kept: bool) -> None:
    with nullcontext() if kept else pytest.raises(ValueError, match="it must be a whole number"):
        found = whole_number(given)
        assert (type(found), found) == (int, 3)


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


NOT_POSITIVE = (0, -1, math.inf, -math.inf, math.nan, np.float32("nan"), 10**400, Fraction(1, 10**400))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        *((each, "") for each in (0.5, np.float16(0.5), np.float64(0.5), Fraction(1, 2))),
        *((each, "it must be a number") for each in NO_NUMBERS),
        *((each, "it must be above 0 and finite") for each in NOT_POSITIVE),
    ],
)
def test_real_numbers_of_every_kind(given: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) if problem else nullcontext():
        found = positive_number(given)
        assert (type(found), found) == (float, 0.5)


@pytest.mark.parametrize(("given", "kept"), [(1, True), (1 - 1e-9, False), (math.nan, False), (10**400, False)])
def test_at_least(given: float, kept: bool) -> None:
    with nullcontext() if kept else pytest.raises(ValueError, match=r"^it must be a finite number of at least 1$"):
        assert at_least(1)(given) == given


def test_a_time_that_nobody_waits_for() -> None:
    assert duration_s(LONGEST_S) == LONGEST_S
    with pytest.raises(ValueError, match="it must be at most 1,000,000 s"):
        duration_s(math.nextafter(LONGEST_S, math.inf))


def test_what_is_not_given_stays_none() -> None:
    assert optional_count("flops={}", None) is None
    assert optional_count("flops={}", 3) == 3
