"""The pool of warmed processes: those that do not work are replaced."""

import os
import signal
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpubench import MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.process_pool import ProcessPool, refuse_open_files


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
    levels = pool._levels
    pool.get()
    pool.get()
    assert pool._levels == levels
    pool = FakePool([False, True, True, True])
    pool.get()
    assert pool._levels == levels[1:]


def test_a_process_that_waits_is_taken_before_a_new_one() -> None:
    """The one that has waited for the longest."""
    pool = FakePool([True] * 9)
    pool.start(2)
    waiting: list[Any] = [*pool._waiting]
    assert [pool.get(), pool.get()] == waiting
    assert len(pool._waiting) == 2


def test_processes_that_warm_up_are_stopped_while_a_call_is_timed() -> None:
    """Those that wait at its begin go on at its end, whatever happens."""
    sent: list[tuple[int, int]] = []
    pool = FakePool([])
    pool._waiting = [SimpleNamespace(send=lambda number, at=at: sent.append((at, number))) for at in range(2)]  # type: ignore
    with suppress(ZeroDivisionError), pool.paused():
        pool._waiting.append(SimpleNamespace())  # type: ignore[arg-type]
        assert sent == [(0, signal.SIGSTOP), (1, signal.SIGSTOP)]
        raise ZeroDivisionError
    assert sent[2:] == [(0, signal.SIGCONT), (1, signal.SIGCONT)]


@pytest.mark.parametrize("works", [[False] * 4, [True, False, False, False]])
def test_an_error_is_raised_where_no_process_works(works: list[bool]) -> None:
    pool = FakePool(works)
    if works[0]:
        pool.get()
    with pytest.raises(MeasurementError, match="no memory"):
        pool.get()


@pytest.mark.parametrize(
    ("user", "landlock", "refused"),
    [
        (0, "not available: the kernel has no Landlock", True),
        (0, "not available: the process did not work with it", True),
        (0, "files, TCP (version 4)", False),
        (1000, "not available: the kernel has no Landlock", False),
    ],
)
def test_root_judges_only_where_the_kernel_limits_files(
    monkeypatch: pytest.MonkeyPatch, user: int, landlock: str, refused: bool
) -> None:
    """A candidate could write the plugin, and judge those after it."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(MeasurementError, match="judge runs as root, and") if refused else nullcontext():
        refuse_open_files({"landlock": landlock})


def test_a_killed_process_is_waited_for_later() -> None:
    """A candidate that is loaded need not wait for it."""
    done: list[object] = []
    candidate: Any = SimpleNamespace(process=SimpleNamespace(send=done.append), end=lambda: done.append("end"))
    pool = FakePool([])
    pool.kill(candidate)
    assert done == [signal.SIGKILL]
    pool.wait()
    pool.close()
    assert done == [signal.SIGKILL, "end"]
