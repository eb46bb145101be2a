"""Signals and exits: a process resets its clocks, and ends with the status that it would have had."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.clocks import ClockLock
from pytest_gpubench.gpu.clocks.signals import ENDINGS
from tests.gpu.clocks.locking import (
    BOTH_RESET,
    BOTH_SET,
    GPU,
    RESET,
    RESET_MEMORY,
    SET,
    SET_MEMORY,
    finish,
    record_of,
    start,
    wait_until_held,
    whats,
)
from tests.gpu.recording_nvml import Recording, changes

# how a process ends


@pytest.mark.parametrize(("how", "status"), [("wait", 0), ("error", 1), ("exit", 3), ("fork", 0)])
def test_ends_of_its_own(tmp_path: Path, how: str, status: int) -> None:
    process = start(tmp_path, how=how)
    assert finish(process)[0] == status
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
    assert {each.pid for each in changes(tmp_path)} == {process.pid}
    assert record_of(tmp_path) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_gives_them_back_and_ends_the_process_as_it_did_before(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path)
    wait_until_held(process)
    process.send_signal(number)
    assert process.wait(60) == -number
    finish(process)
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
    assert record_of(tmp_path) is None


def test_a_handler_that_was_there_is_called_afterwards(tmp_path: Path) -> None:
    process = start(tmp_path, how="handler")
    wait_until_held(process)
    process.send_signal(signal.SIGTERM)
    status = process.wait(60)
    assert (status, finish(process)[1]) == (7, "mine\n")
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    process = start(tmp_path, how="ignored")
    wait_until_held(process)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[:2] == (0, "released\n")
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET


@pytest.mark.parametrize("at", [SET, SET_MEMORY, RESET, RESET_MEMORY])
def test_a_signal_in_the_midst_of_a_change_waits_until_it_is_done(tmp_path: Path, at: str) -> None:
    process = start(tmp_path, kill={at: signal.SIGTERM})
    assert finish(process)[0] == -signal.SIGTERM
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
    assert record_of(tmp_path) is None


# handlers in this process


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in ENDINGS]
    with ClockLock(GPU, 1410, tmp_path), ClockLock("GPU-fake-2", 1410, tmp_path):
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in ENDINGS] == before


def test_handlers_are_put_back_where_nothing_was_locked(tmp_path: Path, fake: Recording) -> None:
    before = signal.getsignal(signal.SIGTERM)
    fake.broken = {SET: "NoPermission"}
    with pytest.raises(DeviceUnavailable):
        ClockLock(GPU, 1410, tmp_path).acquire()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_of_somebody_else_stays_and_may_call_ours(tmp_path: Path) -> None:
    heard: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("first"))
    try:
        lock = ClockLock(GPU, 1410, tmp_path)
        lock.acquire()
        ours: Any = signal.getsignal(signal.SIGTERM)

        def theirs(number: int, frame: FrameType | None) -> None:
            heard.append("theirs")
            ours(number, frame)

        signal.signal(signal.SIGTERM, theirs)
        signal.raise_signal(signal.SIGTERM)
        assert heard == ["theirs", "first"]
        assert not lock.held
        assert signal.getsignal(signal.SIGTERM) is theirs
        with ClockLock(GPU, 1410, tmp_path):
            signal.raise_signal(signal.SIGTERM)
        assert heard == 2 * ["theirs", "first"]
        assert whats(tmp_path) == 2 * (BOTH_SET + BOTH_RESET)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_interrupt_reaches_the_block_with_the_clocks_given_back(tmp_path: Path) -> None:
    seen: list[str] = []

    def interrupted() -> None:
        with ClockLock(GPU, 1410, tmp_path):
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                seen.extend(whats(tmp_path))

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen == whats(tmp_path) == BOTH_SET + BOTH_RESET


def test_another_thread_locks_without_handlers(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def lock() -> None:
        with ClockLock(GPU, 1410, tmp_path):
            assert signal.getsignal(signal.SIGTERM) is before

    thread = threading.Thread(target=lock)
    thread.start()
    thread.join()
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
