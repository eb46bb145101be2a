"""Persisting L2 cache: reset while a call is measured, restored afterwards, ignored without a driver."""

import ctypes
from typing import Any

import pytest

from pytest_gpubench import InvalidResult
from pytest_gpubench.gpu.persisting import load_driver, nothing_persists, persisting_bytes

MIB = 2**20


class FakeDriver:
    """The CUDA driver's library, with one context: `size` bytes are set aside; `refuses` makes changes fail."""

    def __init__(self, size: int, error: int = 0, refuses: bool = False) -> None:
        self.size = size
        self.error = error
        self.refuses = refuses
        self.asked: list[int] = []
        self.done: list[int | str] = []

    def cuCtxGetLimit(self, pointer: Any, limit: int) -> int:
        self.asked.append(limit)
        pointer._obj.value = self.size
        return self.error

    def cuCtxSetLimit(self, limit: int, size: ctypes.c_size_t) -> int:
        self.asked.append(limit)
        if self.refuses:
            return 1
        self.size = size.value
        self.done.append(size.value)
        return 0

    def cuCtxResetPersistingL2Cache(self) -> int:
        self.done.append("reset")
        return 0


@pytest.mark.parametrize(
    ("size", "error", "expected"), [(0, 0, 0), (1, 0, 1), (2**35, 0, 2**35), (4096, 1, 0), (4096, 201, 0)]
)
def test_what_the_driver_says(size: int, error: int, expected: int) -> None:
    driver = FakeDriver(size, error)
    assert persisting_bytes(driver) == expected
    assert driver.asked == [6]  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE


@pytest.mark.parametrize("driver", [object(), None])
def test_a_driver_that_does_not_know_the_limit(driver: object) -> None:
    assert persisting_bytes(driver) == 0


@pytest.mark.parametrize("missing", [True, False])
def test_the_driver_is_loaded_by_its_name(monkeypatch: pytest.MonkeyPatch, missing: bool) -> None:
    names: list[str] = []

    def load(name: str) -> str:
        names.append(name)
        if missing:
            raise OSError(f"{name}: cannot open shared object file")
        return "the driver"

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert load_driver() == (None if missing else "the driver")
    assert names == ["libcuda.so.1"]


def test_without_a_driver_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.gpu.persisting.load_driver", lambda: None)
    with nothing_persists():
        pass


@pytest.mark.parametrize("driver", [FakeDriver(0), FakeDriver(8 * MIB, refuses=True)])
def test_where_nothing_is_set_aside_or_the_driver_refuses_nothing_is_done(driver: FakeDriver) -> None:
    before = driver.size
    with nothing_persists(driver):
        pass
    assert (driver.size, driver.done) == (before, [])


@pytest.mark.parametrize("before", [1, 8 * MIB, 45 * MIB // 4])
def test_what_is_set_aside_is_so_again_afterwards(before: int) -> None:
    """As CUDA itself does it: 3/16 of the cache."""
    driver = FakeDriver(before)
    for _ in range(2):
        with nothing_persists(driver):
            assert (driver.size, driver.done) == (0, [0, "reset"])
        assert driver.done == [0, "reset", before]
        driver.done.clear()
    assert set(driver.asked) == {6}


@pytest.mark.parametrize("before", [0, 2 * MIB, 8 * MIB, 45 * MIB // 4])
def test_what_is_set_aside_meanwhile_makes_it_invalid(before: int) -> None:
    driver = FakeDriver(before)
    with (
        pytest.raises(
            InvalidResult, match=r"^2(\.0+)? MiB of the L2 cache were set aside for persisting data while it"
        ),
        nothing_persists(driver),
    ):
        driver.size = 2 * MIB
    assert driver.size == before


def test_what_is_given_back_before_the_end_is_seen_between_calls() -> None:
    driver = FakeDriver(0)
    with nothing_persists(driver) as check:
        check()
        driver.size = 2 * MIB
        with pytest.raises(InvalidResult, match="were set aside for persisting data"):
            check()
        driver.size = 0


def test_an_error_goes_through_and_the_limit_is_set_back() -> None:
    driver = FakeDriver(8 * MIB)

    def broken() -> None:
        driver.size = 2 * MIB
        raise KeyError

    with pytest.raises(KeyError), nothing_persists(driver):
        broken()
    assert driver.size == 8 * MIB
