"""Errors of ranks in the test's process: one cause, and the state of the other ranks."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace

import pytest_gpubench
from pytest_gpubench import BadRequest, DeviceFacts, MeasurementError
from pytest_gpubench.gpu.clocks import ClockLock
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks import Job, processes
from pytest_gpubench.timing.ranks.processes import Processes, RankProcess, serve_on_loopback
from pytest_gpubench.timing.ranks.worker import Assignment, Failure
from tests.gpu.recording_nvml import Recording
from tests.timing.ranks.jobs import PLAN, notes, nothing

STARTING = "starting"
OURS = f"{Path(pytest_gpubench.__file__).parent}{os.sep}"


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        (
            [
                Failure(MeasurementError, "noticed", "", at_s=1.0),
                Failure(MeasurementError, "died", died=True, at_s=2.0),
            ],
            "^rank 1 of 2 of 'nothing' died",
        ),
        (
            [Failure(MeasurementError, "noticed", "trace", at_s=2.0), Failure(BadRequest, "failed", "", at_s=1.0)],
            "^rank 1 of 2 of 'nothing' failed",
        ),
    ],
)
def test_the_cause_is_told_and_not_what_others_notice_of_it(failures: list[Failure], expected: str) -> None:
    with pytest.raises(failures[1].kind, match=expected):
        processes_of(*failures)._raise_failed()


def processes_of(*failures: Failure | None) -> Processes:
    """Return processes some of whose ranks have failed, and the others are done."""
    found = Processes(Job(nothing, PLAN), b"", [])
    nobody: Any = None
    found.workers = [
        RankProcess(nobody, nobody, Path(), "measuring", done=True, failure=failure) for failure in failures
    ]
    return found


def test_a_failure_is_said_once_for_all_ranks_and_the_others_beside_it() -> None:
    planted = [Failure(MeasurementError, "raised ValueError: x", f"trace {n}", at_s=9 - n) for n in range(3)]
    noticed = Failure(MeasurementError, "raised RuntimeError: " + "gone " * 100, "trace", at_s=20.0)
    dead = Failure(MeasurementError, "ended with SIGKILL", at_s=20.0)
    with pytest.raises(MeasurementError) as caught:
        processes_of(planted[0], noticed, planted[1], None, dead, planted[2])._raise_failed()
    assert str(caught.value) == "ranks 0, 2 and 5 of 6 of 'nothing' raised ValueError: x"
    trace, others = notes(caught.value)
    assert trace == "trace 2"  # of the first
    first, third, last = others.removeprefix("gpu_bench: meanwhile ").split("; ")
    assert first == "rank 1 was measuring, and " + ("raised RuntimeError: " + "gone " * 100)[:150]
    assert third == "rank 3 was done"
    assert last == "rank 4 was measuring, and ended with SIGKILL"


def test_what_died_says_so_by_itself() -> None:
    dead = Failure(MeasurementError, "ended with SIGKILL while it was measuring", died=True)
    assert str(processes_of(dead).workers[0]) == dead.sentence


def test_where_all_fail_alike_there_are_no_others() -> None:
    with pytest.raises(MeasurementError, match=r"^ranks 0 and 1 of 2 of") as caught:
        processes_of(*[Failure(MeasurementError, "raised ValueError: x")] * 2)._raise_failed()
    assert notes(caught.value) == []


@pytest.mark.parametrize(
    ("doing", "waited_s", "sentence"),
    [
        ((STARTING, STARTING), 300, "did not start within 300 s: what does the test's module do"),
        (("measuring", STARTING), 300, "did not start within 300 s: what does the test's module do"),
        (("measuring", "measuring"), 7, "made no progress within the 7 s of timeout_s=, and was ended: does every"),
    ],
)
def test_a_hang_is_told_with_the_time_that_was_waited(
    monkeypatch: pytest.MonkeyPatch, doing: Sequence[str], waited_s: float, sentence: str
) -> None:
    """That of a start is not what the test has asked for."""
    asked_s = []

    def wait(pipes: object, timeout_s: float) -> list[object]:
        asked_s.append(timeout_s)
        return []

    monkeypatch.setattr(processes, "wait", wait)
    monkeypatch.setattr(processes, "TRACEBACK_S", 0)
    nobody: Any = SimpleNamespace(pid=None)
    hanging = Processes(Job(nothing, PLAN, timeout_s=7), b"", [])
    hanging.workers = [RankProcess(nobody, nobody, Path("nowhere"), each) for each in doing]
    with pytest.raises(MeasurementError) as caught:
        hanging._listen()
    assert asked_s == [waited_s]
    assert str(caught.value).startswith(f"'nothing' over 2 ranks {sentence}")
    assert notes(caught.value) == [f"gpu_bench: rank {index} was {each}" for index, each in enumerate(doing)]


DUMP = f"""Current thread 0x00007f (most recent call first):
  File "/site-packages/torch/distributed/distributed_c10d.py", line 2501 in all_reduce
  File "/srv/tests/steps.py", line 12 in wait_for_ever
  File "{OURS}timing/ranks/worker.py", line 112 in call_once
  File "{OURS}timing/ranks/worker.py", line 50 in run_worker
  File "/usr/lib/python3.11/multiprocessing/process.py", line 108 in run
  File "<string>", line 1 in <module>
"""


def test_where_a_rank_hangs_is_told_by_lines_that_are_not_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "wait", lambda pipes, timeout_s: [])
    monkeypatch.setattr(processes, "TRACEBACK_S", 0)
    (tmp_path / "0.txt").write_text(DUMP)
    nobody: Any = SimpleNamespace(pid=None)
    hanging = Processes(Job(nothing, PLAN), b"", [])
    hanging.workers = [RankProcess(nobody, nobody, tmp_path / "0.txt", "measuring")]
    with pytest.raises(MeasurementError) as caught:
        hanging._listen()
    (note,) = notes(caught.value)
    first, *lines = note.splitlines()
    assert first == "gpu_bench: rank 0 was measuring"
    assert [line.rpartition(" ")[2] for line in lines] == ["all_reduce", "wait_for_ever"]


FACTS = DeviceFacts(type="cuda", name="a GPU", host="here")


class FakeContext:
    """Stands for multiprocessing: start nothing, and keep what would have been told to each process."""

    def __init__(self) -> None:
        self.assignments: list[Assignment] = []

    def Pipe(self, duplex: bool) -> tuple[object, Any]:
        return None, SimpleNamespace(close=lambda: None)

    def Process(self, target: Callable[..., object], args: tuple[Any, ...], name: str) -> Any:
        self.assignments.append(args[0])
        return SimpleNamespace(start=lambda: None)


def test_ranks_are_told_of_clocks_that_the_process_of_the_test_has_locked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of its own GPU's: in a process of its own there is no record of locks."""
    context = FakeContext()
    monkeypatch.setattr(torch.multiprocessing, "get_context", lambda kind: context)
    monkeypatch.setitem(sys.modules, "pynvml", Recording(tmp_path))
    gpus = [
        Device(torch.device("cuda", index), replace(FACTS, uuid=f"GPU-fake-{index}", max_sm_clock_mhz=1980))
        for index in (1, 2)
    ]
    with ClockLock("GPU-fake-2", 1410, tmp_path):
        Processes(Job(nothing, PLAN), b"", gpus)._start(1, tmp_path)
    assert [assignment.pacing for assignment in context.assignments] == [Pacing(1980), Pacing(1410)]
    assert [(assignment.index, assignment.device_index) for assignment in context.assignments] == [(0, 1), (1, 2)]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_the_store_is_reached_from_this_host_only() -> None:
    store = serve_on_loopback()
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    listening = [line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{store.port:04X}")]
    assert listening == [f"0100007F:{store.port:04X}"]
    store.set("a", "b")
    assert store.get("a") == b"b"
