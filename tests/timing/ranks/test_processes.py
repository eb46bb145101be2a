"""Errors of ranks in the test's process: one cause, and the state of the other ranks."""

import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

import pytest_gpubench
from pytest_gpubench import BadRequest, DeviceFacts, MeasurementError
from pytest_gpubench.gpu.clocks import ClockLock
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks import Job, measure_ranks, processes
from pytest_gpubench.timing.ranks.worker import Failure
from tests.gpu.recording_nvml import Recording
from tests.timing.ranks.fake_ranks import DONE, MEASURING, PLAN, FakeRanks, Start, failed, notes, nothing

OURS = f"{Path(pytest_gpubench.__file__).parent}{os.sep}"


def error_of(fake: FakeRanks, timeout_s: float = 60) -> BaseException:
    with pytest.raises((MeasurementError, BadRequest)) as caught:
        measure_ranks(Job(nothing, PLAN, label="", timeout_s=timeout_s), cpu_device(), len(fake.said))
    return caught.value


@pytest.mark.parametrize(
    "cause",
    [Failure(MeasurementError, "is why", died=True, at_s=2.0), Failure(BadRequest, "is why", at_s=0.0)],
    ids=["it died", "it was the first"],
)
def test_the_cause_is_told_and_not_what_others_notice_of_it(ranks_saying: Start, cause: Failure) -> None:
    noticed = Failure(MeasurementError, "noticed", "trace", at_s=1.0)
    error = error_of(ranks_saying(failed(noticed), failed(cause)))
    assert type(error) is cause.kind
    assert str(error) == "rank 1 of 2 of 'nothing' is why"


def test_a_failure_is_said_once_for_all_ranks_and_the_others_beside_it(ranks_saying: Start) -> None:
    planted = [Failure(MeasurementError, "raised ValueError: x", f"trace {n}", at_s=9 - n) for n in range(3)]
    noticed = Failure(MeasurementError, "raised RuntimeError: " + "gone " * 100, "trace", at_s=20.0)
    dead = Failure(MeasurementError, "ended with SIGKILL", at_s=20.0)
    first, second, third = map(failed, planted)
    error = error_of(ranks_saying(first, failed(noticed), second, [MEASURING, DONE], failed(dead), third))
    assert str(error) == "ranks 0, 2 and 5 of 6 of 'nothing' raised ValueError: x"
    trace, others = notes(error)
    assert trace == "trace 2"  # of the first
    assert others.removeprefix("gpu_bench: meanwhile ").split("; ") == [
        "rank 1 was measuring, and " + ("raised RuntimeError: " + "gone " * 100)[:150],
        "rank 3 was done",
        "rank 4 was measuring, and ended with SIGKILL",
    ]


def test_what_died_says_so_by_itself(ranks_saying: Start) -> None:
    died = [Failure(MeasurementError, f"ended with {how}", died=True, at_s=0.0) for how in ("SIGKILL", "SIGTERM")]
    assert notes(error_of(ranks_saying(*map(failed, died)))) == ["gpu_bench: meanwhile rank 1 ended with SIGTERM"]


def test_where_all_fail_alike_there_are_no_others(ranks_saying: Start) -> None:
    error = error_of(ranks_saying(*[failed(Failure(MeasurementError, "raised ValueError: x"))] * 2))
    assert str(error).startswith("ranks 0 and 1 of 2 of")
    assert notes(error) == []


@pytest.mark.parametrize(
    ("doing", "waited_s", "sentence"),
    [
        (("starting", "starting"), 300, "did not start within 300 s: what does the test's module do"),
        (("measuring", "starting"), 300, "did not start within 300 s: what does the test's module do"),
        (("measuring", "measuring"), 7, "made no progress within the 7 s of timeout_s=, and was ended: does every"),
    ],
)
def test_a_hang_is_told_with_the_time_that_was_waited(
    ranks_saying: Start, monkeypatch: pytest.MonkeyPatch, doing: Sequence[str], waited_s: float, sentence: str
) -> None:
    """That of a start is not what the test has asked for."""
    asked_s = []

    def wait_no_time(pipes: Any, timeout_s: float) -> list[Any]:
        asked_s.append(timeout_s)
        return wait(pipes, 0)

    monkeypatch.setattr(processes, "wait", wait_no_time)
    error = error_of(ranks_saying(*([("doing", each)] * (each != "starting") for each in doing)), timeout_s=7)
    assert asked_s[-1] == waited_s
    assert str(error).startswith(f"'nothing' over 2 ranks {sentence}")
    assert notes(error) == [f"gpu_bench: rank {index} was {each}" for index, each in enumerate(doing)]


DUMP = f"""Current thread 0x00007f (most recent call first):
  File "/site-packages/torch/distributed/distributed_c10d.py", line 2501 in all_reduce
  File "/srv/tests/steps.py", line 12 in wait_for_ever
  File "{OURS}timing/ranks/worker.py", line 112 in call_once
  File "{OURS}timing/ranks/worker.py", line 50 in run_worker
  File "/usr/lib/python3.11/multiprocessing/process.py", line 108 in run
  File "<string>", line 1 in <module>
"""


def test_where_a_rank_hangs_is_told_by_lines_that_are_not_ours(ranks_saying: Start) -> None:
    (note,) = notes(error_of(ranks_saying([MEASURING], dump=DUMP), timeout_s=0))
    first, *lines = note.splitlines()
    assert first == "gpu_bench: rank 0 was measuring"
    assert [line.rpartition(" ")[2] for line in lines] == ["all_reduce", "wait_for_ever"]


FACTS = DeviceFacts(type="cuda", name="a GPU", host="here")


def test_ranks_are_told_of_clocks_that_the_process_of_the_test_has_locked(
    ranks_saying: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each of its own GPU's: in a process of its own there is no record of locks."""
    fake = ranks_saying([DONE], [DONE])
    monkeypatch.setitem(sys.modules, "pynvml", Recording(tmp_path))
    first, second = (
        Device(torch.device("cuda", index), replace(FACTS, uuid=f"GPU-fake-{index + 1}", max_sm_clock_mhz=1980))
        for index in (0, 1)
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(processes, "cuda_device", lambda index: [first, second][index])
    with ClockLock("GPU-fake-2", 1410, tmp_path):
        assert measure_ranks(Job(nothing, PLAN, timed=False), first, 2) is None
    assert [each.pacing for each in fake.assignments] == [Pacing(1980), Pacing(1410)]
    assert [(each.index, each.device_index) for each in fake.assignments] == [(0, 0), (1, 1)]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")
def test_the_store_is_reached_from_this_host_only(ranks_saying: Start) -> None:
    fake = ranks_saying([DONE])
    measure_ranks(Job(nothing, PLAN, timed=False), cpu_device(), 1)
    assert fake.listening == [f"0100007F:{fake.assignments[0].port:04X}"]
