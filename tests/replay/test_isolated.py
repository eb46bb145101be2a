"""Two stored calls in a process of their own: its answer, and its endings without one."""

import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from pytest_gpubench import MeasurementError
from pytest_gpubench.replay import comparison, isolated, stored
from pytest_gpubench.replay.isolated import Answer, answer_in, compare_isolated
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.stored import StoredPair
from pytest_gpubench.settings import Settings
from pytest_gpubench.settings.cache import Producer
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.verdict.replays import Replay
from tests.replay.on_cpu import OTHER, OnCpu, raising
from tests.timing.fakes import ArmsTimer, Clock, rep

FOUND = Replay(SpeedupEstimate(0.9, Interval(0.89, 0.91), 24, 0.001), 10.0, 11.1, "", ("a note",))
ENCODED = msgspec.msgpack.encode(FOUND)


@pytest.fixture
def pair(on_cpu: OnCpu, monkeypatch: pytest.MonkeyPatch) -> StoredPair:
    monkeypatch.setattr(stored, "find_builder", lambda: on_cpu.builder)
    monkeypatch.setattr(isolated, "find_device", lambda wanted: {"cuda": on_cpu.device}[wanted])
    us = {"saved": 10.0, "today": 11.0}
    monkeypatch.setattr(comparison, "make_timer", lambda *args: ArmsTimer(Clock(), lambda name, at: rep(us[name])))
    plan = Plan("cold", None, None, 0.005, 1.0, held_up_time_s=5.0)
    return StoredPair(on_cpu.captured(OTHER), on_cpu.captured(), parse_tolerance("median:2%"), Settings(), plan)


def process(answer: bytes | None, status: int | None = 0, asked: list[Any] | None = None) -> Callable[..., int | None]:
    """Return what stands for a process that writes an answer, or none, and ends with a status."""

    def run(command: list[str], folder: Path, environment: object, log: Path, timeout_s: float) -> int | None:
        if asked is not None:
            asked.extend([command, folder, timeout_s, pickle.loads((log.parent / "pair").read_bytes())])
        if answer is not None:
            (log.parent / "answer").write_bytes(answer)
        return status

    return run


def test_the_answer_of_the_process_is_returned(
    pair: StoredPair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    start = Path.cwd()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(isolated, "run_logged", process(ENCODED, asked=asked))
    values: dict[tuple[str, ...], torch.Tensor] = {("args[0]",): torch.ones(4, dtype=torch.int8)}
    assert compare_isolated(pair, lambda text: None, lambda: values) == FOUND
    command, folder, timeout_s, told = asked
    assert folder == start, "a test may have changed it"
    assert command[1:3] == ["-m", "pytest_gpubench.replay.isolated"]
    assert timeout_s == 70.0
    assert (told.old, told.new, told.tolerance) == (pair.old, pair.new, pair.tolerance)
    assert torch.equal(told.inputs["args[0]",], torch.ones(4, dtype=torch.int8))


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (None, -signal.SIGSEGV, r"the process that replayed it gave no answer \(SIGSEGV\)"),
        (None, None, r"the process that replayed it gave no answer \(not within 70 s\)"),
        (ENCODED[:-5], 0, r"the process that replayed it gave no answer \(exit status 0\)"),
        (b"", 1, r"the process that replayed it gave no answer \(exit status 1\)"),
        (msgspec.msgpack.encode({"found": "nothing"}), 0, "gave no answer"),
        (msgspec.msgpack.encode("it fails\033[2J"), 0, r"^it fails\\x1b\[2J$"),
    ],
)
def test_a_process_that_breaks_is_a_reason(
    answer: bytes | None, status: int | None, reason: str, pair: StoredPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "run_logged", process(answer, status))
    with pytest.raises(NotReplayable, match=reason):
        compare_isolated(pair, lambda text: None)


def test_the_same_code_needs_no_process(pair: StoredPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "run_logged", lambda *args: pytest.fail("it was started"))
    assert compare_isolated(replace(pair, old=pair.new), lambda text: None) == Replay(None)


def test_a_producer_is_in_no_other_process(pair: StoredPair) -> None:
    settings = Settings(cache=Producer(lambda: None))
    with pytest.raises(NotReplayable, match=r"process of its own, which cannot call producer <lambda>$"):
        compare_isolated(replace(pair, settings=settings), lambda text: None)


# in the process


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, None),
        (torch.OutOfMemoryError("full"), "there is no room for its memory beside today's"),
        (MeasurementError("a record is missing"), "a record is missing"),
        (NotReplayable("its inputs differ"), "its inputs differ"),
    ],
)
def test_the_process_compares_both_or_says_why_not(
    error: Exception | None, reason: str | None, pair: StoredPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pair").write_bytes(pickle.dumps(pair))
    if error is not None:
        monkeypatch.setattr(StoredPair, "compare", raising(error))
    answer_in(tmp_path)
    answer: Answer = msgspec.msgpack.decode((tmp_path / "answer").read_bytes(), type=Answer)
    if reason is not None:
        assert answer == reason
    else:
        assert isinstance(answer, Replay)
        assert (answer.old_us, answer.new_us, answer.doubt) == (10.0, 11.0, "")
