"""Persisting L2 cache: as before while a call is measured, ignored without a driver."""

import ctypes
from contextlib import nullcontext
from typing import Any

import pytest

from pytest_gpubench import InvalidResult
from pytest_gpubench.gpu.persisting import persisting_bytes, set_aside_as_before
from pytest_gpubench.units import format_bytes

MIB = 2**20
CACHE = 50 * MIB


class FakeDriver:
    """The CUDA driver's library, with one context: `size` bytes are set aside."""

    def __init__(self, size: int, error: int = 0) -> None:
        self.size = size
        self.error = error
        self.asked: list[int] = []

    def cuCtxGetLimit(self, pointer: Any, limit: int) -> int:
        self.asked.append(limit)
        pointer._obj.value = self.size
        return self.error

    def cuCtxSetLimit(self, limit: int, size: ctypes.c_size_t) -> int:
        self.asked.append(limit)
        self.size = size.value
        return 0


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (FakeDriver(1), 1),
        (FakeDriver(2**35), 2**35),
        (FakeDriver(4096, error=1), 0),
        (FakeDriver(4096, error=201), 0),
        (object(), 0),  # it does not know the limit
        (None, 0),
    ],
)
def test_what_the_driver_says(driver: Any, expected: int) -> None:
    assert persisting_bytes(driver) == expected
    assert getattr(driver, "asked", [6]) == [6]  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE


def test_without_a_driver_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.gpu.persisting.driver_library", lambda: None)
    with set_aside_as_before(CACHE) as check:
        check()


@pytest.mark.parametrize("before", [0, 45 * MIB // 4])
@pytest.mark.parametrize("now", [0, 2 * MIB, 45 * MIB // 4])
@pytest.mark.parametrize("is_given_back", [False, True])
def test_what_is_set_aside_meanwhile_makes_it_invalid(before: int, now: int, is_given_back: bool) -> None:
    """Also where it is given back before the end: that is seen between calls."""
    driver = FakeDriver(before)
    sentence = rf"^a call changed how .* is set aside .* data from {format_bytes(before)} to {format_bytes(now)}: the"
    refused = nullcontext() if now == before else pytest.raises(InvalidResult, match=sentence)
    with refused, set_aside_as_before(CACHE, driver) as check:
        driver.size = now
        if is_given_back:
            check()
            driver.size = before
    assert driver.size == before


@pytest.mark.parametrize(
    ("before", "now", "is_refused"),
    [
        (4 * MIB, 25 * MIB // 4, False),
        (4 * MIB, 25 * MIB // 4 + 1, True),
        (4 * MIB, 25 * MIB // 8 + 1, False),
        (4 * MIB, 25 * MIB // 8, True),
        (0, 1, True),
    ],
)
def test_the_driver_may_say_the_whole_parts_that_it_sets_aside(before: int, now: int, is_refused: bool) -> None:
    driver = FakeDriver(before)
    with pytest.raises(InvalidResult) if is_refused else nullcontext(), set_aside_as_before(CACHE, driver):
        driver.size = now


@pytest.mark.parametrize(("expected", "is_refused"), [(8 * MIB, True), (31 * MIB, False), (None, False)])
def test_cache_that_was_set_aside_before_the_block(expected: int | None, is_refused: bool) -> None:
    """It is refused, and put back, where something else is said to be right; it may be none."""
    driver = FakeDriver(31 * MIB)
    sentence = r"from 8 MiB to 31 MiB: .*; leave it as it was when the process began$"
    refused = pytest.raises(InvalidResult, match=sentence) if is_refused else nullcontext()
    with refused, set_aside_as_before(CACHE, driver, expected) as check:
        check()
    assert driver.size == (8 * MIB if is_refused else 31 * MIB)


def test_an_error_goes_through_and_the_limit_is_set_back() -> None:
    driver = FakeDriver(8 * MIB)

    def broken() -> None:
        driver.size = 2 * MIB
        raise KeyError

    with pytest.raises(KeyError), set_aside_as_before(CACHE, driver):
        broken()
    assert driver.size == 8 * MIB
