"""Candidates that end, hang, take memory or forge a verdict: each costs only itself, on the CPU."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.channel import HEADER, Channel
from pytest_gpubench.judge.isolation import LEVELS
from pytest_gpubench.judge.judging import Judge
from pytest_gpubench.judge.process import Ended, Process, remove
from pytest_gpubench.judge.process_pool import ProcessPool
from tests.judge.hostile import HONEST, hostile, spec_text

ALL = hostile(on_gpu=False)
FEW = ("ends: segfault, first", "forges: replies to come, loaded", "returns: a deep list")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Return a judge whose limit an honest candidate keeps."""
    spec = tmp_path_factory.mktemp("hostile") / "spec.py"
    spec.write_text(spec_text((64, 256), 0.01))
    with Judge(spec, "cpu", timeout_s=20, memory_bytes=2**30, budget_s=0.01, ahead=1) as judge:
        yield judge


@pytest.mark.parametrize("name", [each if each in FEW else pytest.param(each, marks=pytest.mark.slow) for each in ALL])
def test_hostile_candidates_cost_only_themselves(judge: Judge, tmp_path: Path, name: str) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(ALL[name].text)
    found = judge(path)
    assert found.status in ALL[name].statuses, found


def test_the_next_is_judged_right(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(HONEST)
    assert judge(path).status == "pass"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_verdicts_and_nothing_else(tmp_path: Path, number: signal.Signals) -> None:
    """The process of the candidate that hangs is gone, as are those that wait, and their folders."""
    (tmp_path / "spec.py").write_text(spec_text((64, 256), 0.01))
    (tmp_path / "hangs.py").write_text(ALL["hangs: sleeps, first"].text)
    folder = tmp_path / "folder"
    folder.mkdir()
    words = ["judge", "--jsonl", "--device", "cpu", "--spec", "spec.py", "--ahead", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest_gpubench", *words],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as judging:
        assert judging.stdin is not None
        assert judging.stdout is not None
        judging.stdin.write("nothing.py\nhangs.py\n")
        judging.stdin.flush()
        assert '"refused"' in judging.stdout.readline()
        while not list(folder.glob("gpu_bench_judge_*/hangs.py")):
            pass
        judging.send_signal(number)
        assert judging.stdout.read() == ""
        assert judging.wait() == 130
    assert not list(folder.iterdir())
    assert not [each for each in Path("/proc").glob("[0-9]*/cmdline") if str(folder) in _text_of(each)]


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class FakePool(ProcessPool):
    """A pool of which those processes work that the test lists."""

    def __init__(self, works: list[bool]) -> None:
        super().__init__(cpu_device(), ahead=2)
        self.works = works

    def _start(self) -> Any:
        works = self.works.pop(0)

        class Fake:
            isolation: dict[str, str] = {}  # noqa: RUF012

            def kill(self) -> None: ...

        fake = Fake()
        fake.works = works  # type: ignore[attr-defined]
        return fake

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


def test_a_reply_that_trickles_in_is_not_waited_for() -> None:
    """The clock is looked at whenever a part is missing."""
    one, other = socket.socketpair()
    with one, other:
        one.sendall(HEADER.pack(100) + b" ")
        with pytest.raises(RuntimeError, match="late"):
            Channel(other).receive(look=_late)


def _late() -> None:
    raise RuntimeError("late")


def test_a_process_that_did_not_stand_still_is_found_out() -> None:
    """Whatever woke it, and though it stopped itself again."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as sleeper:
        process = Process.__new__(Process)
        process.pid, process.frozen = sleeper.pid, False
        process.allow(100)
        for _ in range(2):
            process.freeze()
            process.thaw()
        for signals in ([signal.SIGCONT], [signal.SIGCONT, signal.SIGSTOP]):
            process.freeze()
            for number in signals:
                os.killpg(sleeper.pid, number)
            until_stopped = os.WSTOPPED | os.WCONTINUED | os.WNOWAIT
            assert os.waitid(os.P_PID, sleeper.pid, until_stopped) is not None
            with pytest.raises(Ended, match="had to stand still"):
                process.thaw()
            process.thaw()
        sleeper.kill()


def test_a_folder_too_deep_for_python_is_removed(tmp_path: Path) -> None:
    """And one that is closed to its owner."""
    box = tmp_path / "box"
    deep = box
    for _ in range(3):
        deep = deep.joinpath(*["d"] * 400)
        deep.mkdir(parents=True)
    (box / "shut").mkdir(mode=0)
    remove(box)
    assert not box.exists()
