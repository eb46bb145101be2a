"""Locked clocks: the order of changes, errors, and several processes that lock the same GPU."""

import os
from pathlib import Path

import pytest

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.clocks import ClockLock, restore_abandoned
from pytest_gpubench.gpu.clocks.lock import LOCKS
from pytest_gpubench.gpu.clocks.record import boot_id, record_path
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock_file import LockFile
from tests.gpu.clocks.locking import (
    BOTH_RESET,
    BOTH_SET,
    DEAD,
    GPU,
    RESET,
    RESET_MEMORY,
    SET,
    SET_MEMORY,
    finish,
    leave,
    owner,
    record_of,
    start,
    wait_until_held,
    whats,
)
from tests.gpu.recording_nvml import Recording, changes

# the order of calls


def test_recorded_then_set_then_reset(tmp_path: Path, fake: Recording) -> None:
    with ClockLock(GPU, 1410, tmp_path) as lock:
        assert [(each.what, each.gpu, each.clocks, each.recorded) for each in changes(tmp_path)] == [
            (SET, GPU, (1410, 1410), True),
            (SET_MEMORY, GPU, (3201, 3201), True),
        ]
        assert fake.asked[-2:] == [SET, SET_MEMORY]
        found = record_of(tmp_path)
        assert found is not None
        assert (found.graphics, found.memory) == (1410, 3201)
        mine = found.owners[0]
        assert (mine.holder.pid, mine.holder.started, mine.boot) == (
            os.getpid(),
            Holder.of_this_process().started,
            boot_id(),
        )
    assert [(each.what, each.recorded) for each in changes(tmp_path)[2:]] == [(RESET, True), (RESET_MEMORY, True)]
    assert record_of(tmp_path) is None
    assert not lock.held


def test_given_back_after_an_exception(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ClockLock(GPU, "max", tmp_path):
        _ = 1 / 0
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
    assert record_of(tmp_path) is None


def test_releasing_twice_changes_nothing_more(tmp_path: Path) -> None:
    lock = ClockLock(GPU, "max", tmp_path)
    lock.release()
    assert whats(tmp_path) == []
    lock.acquire()
    with pytest.raises(RuntimeError, match="already"):
        lock.acquire()
    lock.release()
    lock.release()
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
    lock.acquire()
    lock.release()
    assert whats(tmp_path) == 2 * (BOTH_SET + BOTH_RESET)


def test_memory_that_cannot_be_locked_is_left_alone(tmp_path: Path, fake: Recording) -> None:
    fake.broken = {SET_MEMORY: "NotSupported", RESET_MEMORY: "NotSupported"}
    said: list[str] = []
    with ClockLock(GPU, 1410, tmp_path, said.append) as lock:
        assert lock.record is not None
        assert lock.record.memory is None
        assert record_of(tmp_path) == lock.record
    assert whats(tmp_path) == [SET, RESET]
    assert said == [f"the memory clock of {GPU} cannot be locked, only that of its multiprocessors is"]
    assert record_of(tmp_path) is None


@pytest.mark.parametrize(
    ("broken", "sentence", "changed"),
    [
        ({SET: "NoPermission"}, "not the rights: run as root", []),
        ({SET: "NotSupported"}, "the GPU or its driver cannot do that", []),
        ({SET: "Lost"}, "NVML failed", BOTH_RESET),
        ({SET_MEMORY: "NoPermission"}, "not the rights: run as root", [SET, *BOTH_RESET]),
        ({SET_MEMORY: "Lost"}, "NVML failed", [SET, *BOTH_RESET]),
        ({"GetSupportedMemoryClocks": "NotSupported"}, "does not say which clocks it supports", []),
        ({"GetSupportedGraphicsClocks": "NotSupported"}, "does not say which clocks it supports", []),
        ({"GetHandleByUUID": "Lost"}, "NVML does not know GPU", []),
        ({"Init": "Lost"}, "NVML does not start", []),
    ],
)
def test_what_cannot_be_locked_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, fake: Recording, broken: dict[str, str], sentence: str, changed: list[str]
) -> None:
    fake.broken = broken
    with pytest.raises(DeviceUnavailable) as caught, ClockLock(GPU, 1410, tmp_path):
        pass
    assert str(caught.value).startswith(f"asked to lock the clocks of {GPU}, but ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert whats(tmp_path) == changed
    assert record_of(tmp_path) is None


@pytest.mark.parametrize(("uuid", "mode"), [(GPU, [1, 1]), ("MIG-1", [0, 0])])
def test_an_instance_of_a_gpu_is_refused(tmp_path: Path, fake: Recording, uuid: str, mode: list[int]) -> None:
    fake.answers["MigMode"] = mode
    fake.gpus = (uuid,)
    with pytest.raises(DeviceUnavailable, match="split into MIG instances"):
        ClockLock(uuid, 1410, tmp_path).acquire()
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*paths: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DeviceUnavailable, match=r"cannot be written .*No space left on device"):
        ClockLock(GPU, 1410, tmp_path).acquire()
    assert whats(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{GPU}.clocks"]


def test_an_interrupted_change_is_taken_back(tmp_path: Path, fake: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the alarm of a timeout, whose handler raises."""

    def interrupted(query: str) -> None:
        if query == SET_MEMORY:
            raise TimeoutError

    monkeypatch.setattr(fake, "fail", interrupted)
    with pytest.raises(TimeoutError):
        ClockLock(GPU, 1410, tmp_path).acquire()
    assert whats(tmp_path) == [SET, *BOTH_RESET]
    assert record_of(tmp_path) is None


def test_clocks_that_cannot_be_given_back_are_said_and_stay_recorded(tmp_path: Path, fake: Recording) -> None:
    said: list[str] = []
    with ClockLock(GPU, 1410, tmp_path, said.append):
        fake.broken = {RESET: "Lost"}
    assert len(said) == 1
    assert f"nvidia-smi -i {GPU} -rgc" in said[0]
    assert record_of(tmp_path) is not None


def test_the_temporary_file_of_somebody_else_is_not_written_to(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    record_path(tmp_path, GPU).with_suffix(".new").symlink_to(target)
    with ClockLock(GPU, 1410, tmp_path):
        assert record_of(tmp_path) is not None
    assert target.read_text() == "mine"


# several who want the same GPU


def test_the_last_one_gives_them_back(tmp_path: Path) -> None:
    first, second = ClockLock(GPU, 1410, tmp_path), ClockLock(GPU, 1409, tmp_path)
    first.acquire()
    second.acquire()
    assert whats(tmp_path) == BOTH_SET
    first.release()
    assert whats(tmp_path) == BOTH_SET
    found = record_of(tmp_path)
    assert found is not None
    assert len(found.owners) == 1
    second.release()
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
    assert record_of(tmp_path) is None


def test_another_clock_is_refused_and_names_who_holds_it(tmp_path: Path) -> None:
    with ClockLock(GPU, 1410, tmp_path):
        with pytest.raises(DeviceUnavailable, match=rf"at 1980 MHz, but pid {os.getpid()} .* locked them at 1410 MHz"):
            ClockLock(GPU, "max", tmp_path).acquire()
        assert whats(tmp_path) == BOTH_SET
        assert LOCKS != []


def test_gpus_do_not_mind_each_other(tmp_path: Path) -> None:
    with ClockLock(GPU, 1410, tmp_path), ClockLock("GPU-fake-2", "max", tmp_path):
        pass
    assert [(each.what, each.gpu) for each in changes(tmp_path)[4:]] == [
        (RESET, "GPU-fake-2"),
        (RESET_MEMORY, "GPU-fake-2"),
        (RESET, GPU),
        (RESET_MEMORY, GPU),
    ]


def test_a_dead_owner_beside_a_living_one_does_not_keep_them(tmp_path: Path) -> None:
    with ClockLock(GPU, 1410, tmp_path) as lock:
        assert lock.record is not None
        leave(tmp_path, owner(**DEAD), *lock.record.owners)
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
    assert record_of(tmp_path) is None


def test_what_a_dead_owner_left_is_given_back_before_it_is_locked_anew(tmp_path: Path) -> None:
    leave(tmp_path, owner(**DEAD))
    said: list[str] = []
    with ClockLock(GPU, "max", tmp_path, said.append):
        assert whats(tmp_path) == BOTH_RESET + BOTH_SET
    assert len(said) == 1
    assert f"the clocks of {GPU} were left locked at 1410 MHz (memory 3201 MHz) by pid {os.getpid()}" in said[0]


@pytest.mark.parametrize("text", ["", "{", "null", '{"gpu": "GPU-fake-1"}', "\udce9"])
def test_a_damaged_record_is_said_and_the_clocks_are_reset_first(tmp_path: Path, text: str) -> None:
    record_path(tmp_path, GPU).write_bytes(text.encode(errors="surrogateescape"))
    said: list[str] = []
    with ClockLock(GPU, "max", tmp_path, said.append):
        assert whats(tmp_path) == BOTH_RESET + BOTH_SET
    assert len(said) == 1
    assert "is damaged" in said[0]
    assert record_of(tmp_path) is None


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_record_that_is_gone_at_the_end_does_not_keep_the_clocks(tmp_path: Path, damage: str) -> None:
    with ClockLock(GPU, 1410, tmp_path):
        record_path(tmp_path, GPU).unlink()
        if damage == "damaged":
            record_path(tmp_path, GPU).write_text("{")
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
    assert not record_path(tmp_path, GPU).exists()


def test_a_guard_that_another_holds_is_waited_for_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.gpu.clocks.record.GUARD_S", 0.0)
    guard = LockFile(tmp_path, f"{GPU}.clocks")
    assert guard.try_acquire()
    with pytest.raises(DeviceUnavailable, match=f"another process that is changing the clocks of {GPU}"):
        ClockLock(GPU, 1410, tmp_path).acquire()
    leave(tmp_path, owner(**DEAD))
    assert "are not given back: waited" in restore_abandoned(tmp_path)[0].sentence
    guard.release()
    assert whats(tmp_path) == []


def test_a_second_process_does_not_reset_what_the_first_locked(tmp_path: Path) -> None:
    first, second = start(tmp_path), start(tmp_path)
    wait_until_held(first)
    wait_until_held(second)
    found = record_of(tmp_path)
    assert found is not None
    assert {each.holder.pid for each in found.owners} == {first.pid, second.pid}
    assert finish(second)[0] == 0
    assert whats(tmp_path) == BOTH_SET
    assert [each.in_use for each in restore_abandoned(tmp_path)] == [True]
    assert finish(first)[0] == 0
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
