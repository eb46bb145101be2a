"""Real processes, on the CPU, over gloo: what they take, what is told of them, and that none is left behind.

The processes of most tests are copies of one that has imported torch already: importing it is most of what they cost.
"""

import builtins
import faulthandler
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist

import pytest_gpubench
from pytest_gpubench import KernelsDiffer, MeasurementError, Rank, Ranks, WrongResult
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks import Job, measure_ranks, worker
from pytest_gpubench.timing.ranks.worker import Assignment, Failure
from tests import fork_server
from tests.timing.ranks.fake_ranks import PLAN, notes, nothing

PATIENT_S, IMPATIENT_S = 60.0, 3.0


def numbers(rank: Rank) -> tuple[torch.Tensor]:
    return (torch.full((1000,), float(rank.index + 1)),)


def reduce_all(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    return x


def is_sum(rank: Rank, out: torch.Tensor) -> None:
    assert torch.equal(out, torch.full((1000,), 3.0)), f"found {out[0]}"
    assert (rank.world_size, dist.get_world_size(), os.environ["LOCAL_RANK"]) == (2, 2, str(rank.index))
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"


def is_four(rank: Rank, out: torch.Tensor) -> None:
    assert rank.index == 0 or out[0] == 4, "it is not 4"


def die_on_second(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)


MARK = "GPU_BENCH_TEST_HANGS"
"""Names a file that is made when a rank hangs."""


def hang_on_second(x: torch.Tensor) -> None:
    if dist.get_rank() == 1:
        if mark := os.environ.get(MARK):
            Path(mark).touch()
        wait_for_ever()
    dist.all_reduce(x)


def wait_for_ever() -> None:
    while True:
        time.sleep(0.1)


@pytest.fixture
def no_orphans() -> Any:
    before = children()
    yield
    assert children() <= before


@pytest.fixture
def forked(no_orphans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__])
    monkeypatch.setattr(torch.multiprocessing, "get_context", lambda method: server)


def children(parent: int | None = None) -> set[int]:
    """Return the processes that this one has started and that still are there, but for multiprocessing's own."""
    parent, found = parent or os.getpid(), set()
    for pid in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"multiprocessing.forkserver" in command and parent == os.getpid():
            found |= children(pid)
        elif b"resource_tracker" not in command:
            found.add(pid)
    return found


def measured(job: Job, timeout_s: float = PATIENT_S) -> Ranks | None:
    return measure_ranks(replace(job, timeout_s=timeout_s), cpu_device(), 2)


@pytest.mark.usefixtures("no_orphans")
def test_an_all_reduce_is_checked_and_timed_by_both() -> None:
    """Without a number of reps both stop after the same."""
    plan = replace(PLAN, reps=None, max_time_s=0.2)
    found = measured(Job(reduce_all, plan, numbers, is_sum, collective="all_reduce", message_bytes=4000))
    assert found is not None
    assert found.timing.reps >= 12
    assert found.timing.label == "reduce_all"
    assert found.timing.timer == "wall"
    assert found.timing.moved_bytes == 4000
    assert found.timing.warmup_calls == 2
    assert found.timing.median_us >= max(found.medians_us)


@pytest.mark.usefixtures("forked")
def test_what_is_not_timed_is_checked_all_the_same() -> None:
    assert measured(Job(reduce_all, PLAN, numbers, is_sum, timed=False)) is None
    with pytest.raises(WrongResult, match="rank 1 of 2 of 'reduce_all' failed: it is not 4"):
        measured(Job(reduce_all, PLAN, numbers, is_four, timed=False))


@pytest.mark.usefixtures("forked")
def test_a_rank_that_dies_is_named_and_not_the_one_that_notices() -> None:
    with pytest.raises(
        MeasurementError, match="rank 1 of 2 of 'die_on_second' ended with SIGKILL while it was calling"
    ):
        measured(Job(die_on_second, PLAN, numbers))


@pytest.mark.usefixtures("forked")
def test_a_rank_that_hangs_is_ended_and_said_where_it_hung() -> None:
    with pytest.raises(MeasurementError, match="made no progress within the 3 s") as caught:
        measured(Job(hang_on_second, PLAN, numbers), IMPATIENT_S)
    assert "\n" not in str(caught.value)
    first, second = notes(caught.value)
    assert first.startswith("gpu_bench: rank 0 was calling the function for the first time")
    assert re.findall(r"in (\w+)$", second, re.MULTILINE) == ["wait_for_ever", "hang_on_second"]


ORPHANS = """
import multiprocessing, os, signal, sys, threading, time
from tests.timing.ranks.test_worker import *

torch.multiprocessing.get_context = lambda method: multiprocessing.get_context("fork")

def end():
    while not os.path.exists(os.environ[MARK]):
        time.sleep(0.05)
    print(*children(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=end).start()
measured(Job(hang_on_second, PLAN, numbers))
"""


def test_ranks_end_with_the_process_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", fork_server.PopenWithTorch)
    root = Path(__file__).parents[3]
    command, environment = [sys.executable, "-c", ORPHANS], {"PYTHONPATH": str(root), MARK: str(tmp_path / "hangs")}
    ended = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=False, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2
    until_s = time.monotonic() + 20
    while any(is_running(pid) for pid in pids) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not [pid for pid in pids if is_running(pid)]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


OURS = f"{Path(pytest_gpubench.__file__).parent}{os.sep}"


class Ended(BaseException):
    """Stands for the end of a rank's process."""


Failed = Callable[..., Failure]


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Failed:
    """Return what a rank reports that cannot go on: it is called in this process, without others."""

    def end(status: int) -> None:
        raise Ended

    monkeypatch.setattr(worker, "Peers", lambda *given: SimpleNamespace(meet=lambda: None))
    monkeypatch.setattr(os, "_exit", end)

    def fail(function: Callable[[], object], pickled: bytes | None = None, **others: Any) -> Failure:
        said: list[Any] = []
        pipe: Any = SimpleNamespace(send=said.append, close=lambda: None)
        assignment = Assignment(0, 2, 1, None, str(tmp_path / "dump"), Pacing(None))
        job = pickle.dumps(Job(function, **{"plan": PLAN, **others}))
        try:
            with pytest.raises(Ended):
                worker.run_worker(assignment, job if pickled is None else pickled, pipe)
        finally:
            faulthandler.unregister(signal.SIGUSR1)
        kind, failure = said[-1]
        assert kind == "failed"
        return cast(Failure, failure)

    return fail


def fail_with(error: Exception) -> None:
    raise error


class NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (ValueError("first line\nsecond line"), MeasurementError, "raised ValueError: first line"),
        (NoText(), MeasurementError, "raised NoText: <NoText object>"),
        (KernelsDiffer("x"), KernelsDiffer, "failed: x"),
        (WrongResult("x"), WrongResult, "failed: x"),
    ],
)
def test_what_a_rank_raises_is_what_the_test_raises(
    failed: Failed, error: Exception, kind: type[Exception], sentence: str
) -> None:
    found = failed(partial(fail_with, error))
    assert (found.kind, found.sentence) == (kind, sentence)
    assert re.findall(r"in (\w+)\n", found.traceback) == ["fail_with"] * (kind is MeasurementError)  # ours needs none


def test_an_error_before_the_job_is_known_is_one_of_the_beginning(failed: Failed) -> None:
    assert failed(nothing, pickled=b"").sentence == "cannot begin (EOFError: Ran out of input)"


def divide() -> float:
    return 1 / 0


def through_ours() -> ZeroDivisionError:
    """Return an error that went through the package before anyone else."""
    with pytest.raises(ZeroDivisionError) as raised:
        Producer(divide).run(lambda: None)
    return raised.value.with_traceback(raised.tb.tb_next)


def cause_of_ours() -> None:
    raise ValueError("later") from through_ours()


def context_of_ours() -> None:
    error = ValueError("later")
    error.__context__ = through_ours()
    raise error


def group_of_ours() -> None:
    raise vars(builtins)["ExceptionGroup"]("two", [through_ours(), ValueError()])


needs_groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="needs ExceptionGroup")


@pytest.mark.parametrize(
    ("function", "lines"),
    [
        (cause_of_ours, ["divide", "cause_of_ours"]),  # what it came from is told first
        (context_of_ours, ["divide", "context_of_ours"]),
        pytest.param(group_of_ours, ["group_of_ours", "divide"], marks=needs_groups),
    ],
)
def test_a_traceback_its_causes_and_members_are_of_the_users_own_lines(
    failed: Failed, function: Callable[[], None], lines: list[str]
) -> None:
    found = failed(function)
    assert [line for line in re.findall(r", in (\w+)\n", found.traceback) if line != "through_ours"] == lines
    assert OURS not in found.traceback


def test_a_bug_of_ours_has_its_own(failed: Failed) -> None:
    assert "in do_job" in failed(nothing, plan=None).traceback


def must_be_four(rank: Rank, out: object) -> None:
    raise AssertionError("it is not 4")


def test_a_check_shows_where_it_failed(failed: Failed) -> None:
    found = failed(nothing, check=must_be_four)
    assert (found.kind, found.sentence) == (WrongResult, "failed: it is not 4")
    assert "in must_be_four" in found.traceback
    assert OURS not in found.traceback
    assert "direct cause" not in found.traceback
