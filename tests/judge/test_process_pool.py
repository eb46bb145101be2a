"""The pool of warmed processes: those that do not work are replaced."""

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpubench import MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.isolation import LEVELS
from pytest_gpubench.judge.process_pool import ProcessPool


class FakePool(ProcessPool):
    """A pool of which those processes work that the test lists."""

    def __init__(self, works: list[bool]) -> None:
        super().__init__(cpu_device(), ahead=2)
        self.works = works

    def _start(self) -> Any:
        return SimpleNamespace(works=self.works.pop(0), isolation={}, kill=lambda: None)

    def _warmed(self, process: Any) -> Any:
        if not process.works:
            raise MeasurementError("no memory")
        return process


def test_processes_that_a_candidate_broke_are_replaced_at_the_same_isolation() -> None:
    """Before one has worked, the isolation may be what does not work: then the next level is taken."""
    pool = FakePool([True, False, False, True, True, True])
    pool.get()
    pool.get()
    assert pool._levels == list(LEVELS)
    pool = FakePool([False, True, True, True])
    pool.get()
    assert pool._levels == list(LEVELS[1:])


@pytest.mark.parametrize("works", [[False] * 4, [True, False, False, False]])
def test_an_error_is_raised_where_no_process_works(works: list[bool]) -> None:
    pool = FakePool(works)
    if works[0]:
        pool.get()
    with pytest.raises(MeasurementError, match="no memory"):
        pool.get()
