"""The pool of warmed processes: those that do not work are replaced."""

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench import MeasurementError
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.judge.judgement import Ended
from pytest_gpubench.judge.process_pool import ProcessPool, has_open_files
from pytest_gpubench.results.model import DeviceFacts

H200 = Device(torch.device("cuda"), DeviceFacts(type="cuda", name="NVIDIA H200", host=""))


def candidate_of(
    send: Callable[[Any], object] = lambda number: None, end: Callable[[], object] = lambda: None, lingers: bool = False
) -> Any:
    """Return a candidate whose process is killed."""
    return SimpleNamespace(process=SimpleNamespace(send=send, lingers=lingers, pid=7), end=end)


class FakePool(ProcessPool):
    """A pool of which those processes work that the test lists."""

    def __init__(self, works: list[bool]) -> None:
        super().__init__(cpu_device(), ahead=2)
        self.works = works
        self.closed = 0

    def _start(self) -> Any:
        return SimpleNamespace(works=self.works.pop(0), close=self._close, has_ended=False, has_answered=True)

    def _close(self) -> None:
        self.closed += 1

    def _tried(self, process: Any) -> Any:
        if not process.works:
            raise MeasurementError("no memory")
        return SimpleNamespace(process=process, end=process.close)


@pytest.mark.parametrize("works", [True, False])
def test_processes_that_a_candidate_broke_are_replaced(works: bool) -> None:
    """All that wait are, where the one that has waited for the longest does not work; a new one is tried once."""
    pool = FakePool([False, True, works])
    pool.start(2)
    with nullcontext() if works else pytest.raises(MeasurementError, match="no memory"):
        pool.get()
    assert (pool.works, pool.closed) == ([], 1)


@pytest.mark.parametrize("error", [MeasurementError("no memory"), OSError("no space"), KeyboardInterrupt()])
def test_a_process_ends_also_where_no_other_one_can_be_started(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """An error would take the place of its judgement; that of the next candidate says it."""
    pool, done = ProcessPool(cpu_device()), list[object]()

    def fail() -> None:
        raise error

    monkeypatch.setattr("pytest_gpubench.judge.process_pool.Template", fail)
    candidate = candidate_of(done.append, lambda: done.append("end"))
    with suppress(KeyboardInterrupt):
        pool.end(candidate)
    assert done == [signal.SIGKILL, "end"]
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else MeasurementError):
        pool.get()


def warm_process(monkeypatch: pytest.MonkeyPatch, candidate: Any, landlock: str = "files", **more: object) -> Any:
    """Return a process of which the pool makes this candidate."""
    monkeypatch.setattr("pytest_gpubench.judge.process_pool.Candidate", lambda process, device: candidate)
    given = {"wait_ready": lambda: None, "allow": lambda seconds: None, "isolation": {"landlock": landlock}, **more}
    return SimpleNamespace(**given)


def test_a_candidate_that_fails_in_practice_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()

    def fail() -> None:
        raise RuntimeError("no memory")

    candidate = SimpleNamespace(practise=fail, end=lambda: done.append("end"))
    with pytest.raises(MeasurementError, match="the candidate's process does not work: no memory"):
        ProcessPool(cpu_device())._tried(warm_process(monkeypatch, candidate))
    assert done == ["end"]


def test_a_candidate_gives_its_memory_back_with_the_pool() -> None:
    pool, done = ProcessPool(cpu_device()), list[str]()
    pool._ready.append(candidate_of(end=lambda: done.append("ready")))
    pool._ending.append(candidate_of(end=lambda: done.append("ending")))
    pool.close()
    assert done == ["ready", "ending"]


def test_a_process_that_ended_while_it_waited_is_not_taken() -> None:
    """The system kills those first where memory runs out."""
    pool = FakePool([True] * 4)
    pool.start(2)
    pool.end(candidate_of())
    ended, other = pool._ready
    ended.process.has_ended = True  # type: ignore[misc]
    assert pool.get() is other
    assert pool.closed == 1


def test_another_process_is_tried_while_one_ends() -> None:
    """It is killed before, and waited for after that; no more than two are ready."""
    pool, done = FakePool([True] * 9), list[object]()
    pool.ahead = 3
    pool.start(1)
    for _ in range(4):
        kill, wait = lambda number: done.append((number, len(pool._ready))), lambda: done.append(len(pool._ready))
        pool.end(candidate_of(kill, wait))
    assert done == [each for ready in (0, 1, 2, 2) for each in ((signal.SIGKILL, ready), min(ready + 1, 2))]


def test_those_that_end_have_ended_before_anything_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before, where the GPU has memory for another candidate."""
    pool, done = FakePool([True] * 9), list[object]()
    monkeypatch.setattr(pool, "_has_room", lambda: True)
    pool.ahead = 0
    candidate = candidate_of(end=lambda: done.append("end"))
    pool.end(candidate)
    pool.end(candidate)  # when its judgement is over
    assert not done
    with pool.alone():
        assert done == ["end"]


def test_nothing_is_timed_while_a_process_that_was_killed_lives() -> None:
    """It may still use the GPU."""
    pool, killed = FakePool([]), candidate_of(lingers=True)
    pool.ahead = 0
    pool.end(killed)
    for _ in range(2):
        with pytest.raises(MeasurementError, match=r"have not ended \(group 7\), as"), pool.alone():
            pass
    killed.process.lingers = False
    with pool.alone():
        assert not pool._ending


def test_processes_that_warm_up_are_stopped_while_a_call_is_timed() -> None:
    """Those that wait at its begin go on at its end, whatever happens."""
    sent: list[tuple[int, int]] = []
    pool = FakePool([])
    pool._waiting = [SimpleNamespace(send=lambda number, at=at: sent.append((at, number))) for at in range(2)]  # type: ignore
    with suppress(ZeroDivisionError), pool.alone():
        pool._waiting.append(SimpleNamespace())  # type: ignore[arg-type]
        assert sent == [(0, signal.SIGSTOP), (1, signal.SIGSTOP)]
        raise ZeroDivisionError
    assert sent[2:] == [(0, signal.SIGCONT), (1, signal.SIGCONT)]


def test_a_candidate_is_timed_alone_and_others_are_prepared_while_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate: Any = SimpleNamespace(practise=lambda: None)
    allowed = list[float]()
    pool = ProcessPool(cpu_device())
    assert pool._tried(warm_process(monkeypatch, candidate, allow=allowed.append)) is candidate
    assert vars(candidate).keys() == {"practise", "alone", "meanwhile"}
    assert (candidate.alone, candidate.meanwhile) == (pool.alone, pool._prepare)
    assert allowed == [10]


@pytest.mark.parametrize(("landlock", "kept"), [("files", True), ("not available: an old kernel", False)])
def test_a_cache_is_kept_where_no_candidate_can_write_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, landlock: str, kept: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    candidate, pool = SimpleNamespace(practise=lambda: None), ProcessPool(H200)
    pool._tried(warm_process(monkeypatch, candidate, landlock, cache=tmp_path))
    assert (pool._cache is not None) == kept
    pool.close()


def test_half_of_a_cache_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = list[str]()
    candidate, pool = SimpleNamespace(practise=lambda: None, end=lambda: done.append("end")), ProcessPool(H200)
    with pytest.raises(MeasurementError, match="No such file"):
        pool._tried(warm_process(monkeypatch, candidate, cache=tmp_path / "nothing"))
    assert (pool._cache, [*tmp_path.iterdir()], done) == (None, [], ["end"])


def test_a_process_that_still_warms_up_is_not_waited_for_while_another_is_loaded() -> None:
    pool = FakePool([True] * 9)
    pool.start(1)
    pool._waiting[0].has_answered = False  # type: ignore[misc]
    pool._prepare()
    assert not pool._ready
    assert pool.get()


def test_a_candidate_that_takes_too_much_while_others_are_tried_is_ended() -> None:
    def look() -> None:
        raise Ended("out_of_memory", "it took 17 GiB")

    pool = FakePool([True] * 9)
    pool.start(1)
    with pytest.raises(Ended, match="17 GiB"):
        pool._prepare(look)


@pytest.mark.parametrize(
    ("user", "landlock", "refused"),
    [
        (0, "not available: the kernel has no Landlock", True),
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
        assert has_open_files({"landlock": landlock}) == landlock.startswith("not")
