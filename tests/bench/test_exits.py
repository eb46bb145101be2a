"""A process does not end well inside measured code."""

import os
import threading

import pytest

from pytest_gpubench.bench.exits import refusing_exit
from pytest_gpubench.errors import InvalidResult


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The statuses that the process would have ended with."""
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    return statuses


def leave(status: int) -> None:
    os._exit(status)


def test_status_0_is_refused(left: list[int]) -> None:
    with pytest.raises(InvalidResult, match=r"^the measured code called os\._exit\(0\)"), refusing_exit():
        leave(0)
    assert left == []


@pytest.mark.parametrize("status", [1, 2, -6])
def test_another_status_ends_the_process(left: list[int], status: int) -> None:
    with refusing_exit():
        leave(status)
    assert left == [status]


def test_another_thread_may_end_it(left: list[int]) -> None:
    with refusing_exit():
        thread = threading.Thread(target=lambda: leave(0))
        thread.start()
        thread.join()
    assert left == [0]


def test_a_fork_may_end(left: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing_exit():
        monkeypatch.setattr(os, "getpid", lambda: -1)
        leave(0)
    assert left == [0]


def test_afterwards_all_is_as_before(left: list[int]) -> None:
    with pytest.raises(KeyError), refusing_exit():
        raise KeyError
    leave(0)
    assert left == [0]
