"""Locked clocks by a fake that records what would be changed: in what order, and who gives them back after what."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu import clocks as module
from pytest_gpubench.gpu.clocks import (
    CLOCK_LIMIT_TDP,
    ClockLock,
    Owner,
    Record,
    boot_id,
    nearest,
    read_record,
    record_path,
    restore_abandoned,
    restore_all,
    write_record,
)
from pytest_gpubench.gpu.lock import Holder, LockFile
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.settings import ClockWish, clock_wish
from tests.gpu import recording_nvml
from tests.gpu.recording_nvml import Recording, changes

GPU = "GPU-fake-1"
SET, SET_MEMORY = "SetGpuLockedClocks", "SetMemoryLockedClocks"
RESET, RESET_MEMORY = "ResetGpuLockedClocks", "ResetMemoryLockedClocks"
BOTH_SET, BOTH_RESET = [SET, SET_MEMORY], [RESET, RESET_MEMORY]

CHILD = """
import os, signal, sys
from pathlib import Path
import pynvml
assert pynvml.IS_FAKE
from pytest_gpubench.gpu.clocks import ClockLock
from pytest_gpubench.settings import clock_wish
folder, wish, how = sys.argv[1:]
if how == "handler":
    signal.signal(signal.SIGTERM, lambda *_: (print("mine", flush=True), sys.exit(7)))
if how == "ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def say(sentence): print(sentence, flush=True)
lock = ClockLock("GPU-fake-1", clock_wish(wish), Path(folder), say)
if how == "exit":
    lock.acquire()
    sys.exit(3)
with lock:
    if how == "error":
        raise RuntimeError("of the test")
    if how == "fork":
        child = os.fork()
        if not child:
            sys.exit(0)
        os.waitpid(child, 0)
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""

Process = subprocess.Popen[str]


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Recording]:
    """Nothing in this file can reach the NVML of this machine."""
    library = Recording(tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    yield library
    assert module._ENDS.locks == []
    assert module._ENDS.handlers == []


def start(folder: Path, wish: str = "1410", how: str = "wait", **fakes: Any) -> Process:
    """Start a process that locks the clocks, with the fake for its pynvml."""
    (folder / "fakes").mkdir(exist_ok=True)
    (folder / "fakes" / "pynvml.py").write_text(Path(recording_nvml.__file__).read_text())
    root = Path(module.__file__).parents[2]
    paths = {"PYTHONPATH": os.pathsep.join([str(folder / "fakes"), str(root)])}
    variables = {**os.environ, **paths, "FAKE_NVML": json.dumps({"folder": str(folder), **fakes})}
    command = [sys.executable, "-c", CHILD, str(folder), wish, how]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def wait_until_held(process: Process) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"


def finish(process: Process) -> tuple[int, str, str]:
    output, errors = process.communicate("\n", timeout=60)
    return process.returncode, output, errors


def whats(folder: Path) -> list[str]:
    return [change.what for change in changes(folder)]


def record_of(folder: Path) -> Record | None:
    return read_record(record_path(folder, GPU))


def owner(**values: Any) -> Owner:
    """An owner that lives, unless it is told otherwise."""
    boot = values.pop("boot", boot_id())
    return Owner(boot, values.pop("number", 0), msgspec.structs.replace(Holder.of_this_process(), **values))


def leave(folder: Path, *owners: Owner, graphics: int = 1410) -> None:
    """Leave the record of a process that locked the clocks."""
    write_record(record_path(folder, GPU), Record(gpu=GPU, graphics=graphics, memory=3201, owners=owners))


DEAD: dict[str, Any] = {"pid": os.getpid(), "started": 1}


# what is asked for


@pytest.mark.parametrize(("text", "wish"), [("base", "base"), ("max", "max"), ("1410", 1410), ("1", 1)])
def test_a_wish(text: str, wish: ClockWish) -> None:
    assert clock_wish(text) == wish


@pytest.mark.parametrize(
    "text",
    ["", "0", "000", "-1", "-1410", "1410.5", "1e3", "fast", "Max", "1_410", "+5", " 9", "1410MHz", "²", "9" * 5000],
)
def test_what_is_no_wish(text: str) -> None:
    with pytest.raises(ValueError, match="it must be base, max or a whole number of MHz above 0"):
        clock_wish(text)


@given(st.integers(1, 10**9 - 1))
def test_every_number_of_mhz_is_a_wish(mhz: int) -> None:
    assert clock_wish(str(mhz)) == mhz


@given(st.lists(st.integers(1, 3000), min_size=1), st.integers(1, 4000))
def test_no_supported_clock_is_nearer(supported: list[int], wanted: int) -> None:
    chosen = nearest(supported, wanted)
    assert chosen in supported
    assert all(abs(chosen - wanted) <= abs(other - wanted) for other in supported)


@pytest.mark.parametrize(
    ("wish", "default", "graphics"),
    [
        ("max", 1980, 1980),
        ("base", 1410, 1410),
        ("base", 1408, 1410),
        ("base", 1980, CLOCK_LIMIT_TDP),  # an H200's default is its highest clock
        ("base", None, CLOCK_LIMIT_TDP),
        (1410, 1980, 1410),
        (1, 1980, 345),
        (9999, 1980, 1980),
    ],
)
def test_what_a_wish_comes_to(tmp_path: Path, fake: Recording, wish: ClockWish, default: int, graphics: int) -> None:
    fake.answers["DefaultApplicationsClock"] = default
    with ClockLock(GPU, wish, tmp_path) as lock:
        assert lock.graphics_mhz == (None if graphics == CLOCK_LIMIT_TDP else graphics)
    assert changes(tmp_path)[0].clocks == (graphics, graphics)
    assert changes(tmp_path)[1].clocks == (3201, 3201)


@pytest.mark.parametrize(("wish", "chosen"), [(1409, 1410), (1402, 1395), (1403, 1410), (1417, 1410), (1418, 1425)])
def test_a_clock_that_is_not_supported_is_snapped_and_said_so(tmp_path: Path, wish: int, chosen: int) -> None:
    said: list[str] = []
    with ClockLock(GPU, wish, tmp_path, said.append) as lock:
        assert lock.graphics_mhz == chosen
    assert said == [
        f"{GPU} does not support {wish} MHz: its clocks are locked at {chosen} MHz, the nearest that it does"
    ]


def test_a_supported_clock_is_not_talked_about(tmp_path: Path) -> None:
    said: list[str] = []
    with ClockLock(GPU, 1410, tmp_path, said.append):
        pass
    assert said == []


# the order of calls


def test_recorded_then_set_then_read_then_reset(tmp_path: Path, fake: Recording) -> None:
    with ClockLock(GPU, 1410, tmp_path) as lock:
        assert [(each.what, each.gpu, each.clocks, each.recorded) for each in changes(tmp_path)] == [
            (SET, GPU, (1410, 1410), True),
            (SET_MEMORY, GPU, (3201, 3201), True),
        ]
        assert fake.asked[-3:] == [SET, SET_MEMORY, "GetClockInfo"]
        assert lock.first_reading_mhz == 345
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
    with pytest.raises(DeviceUnavailable, match="split into MIG instances"):
        ClockLock(uuid, 1410, tmp_path, nvml=Nvml(fake, uuid)).acquire()
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
        assert module._ENDS.locks != []


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
    monkeypatch.setattr(module, "GUARD_S", 0.0)
    guard = LockFile(tmp_path, f"{GPU}.clocks")
    assert guard.try_acquire()
    with pytest.raises(DeviceUnavailable, match=f"another process that is changing the clocks of {GPU}"):
        ClockLock(GPU, 1410, tmp_path).acquire()
    leave(tmp_path, owner(**DEAD))
    assert "are not given back: waited" in restore_abandoned(tmp_path)[0]
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
    assert restore_abandoned(tmp_path) == []
    assert finish(first)[0] == 0
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET


def test_a_process_that_wants_another_clock_fails(tmp_path: Path) -> None:
    with ClockLock(GPU, 1410, tmp_path):
        status, _, errors = finish(start(tmp_path, "max"))
        assert status == 1
        assert "DeviceUnavailable: asked to lock the clocks" in errors
        assert whats(tmp_path) == BOTH_SET


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


@pytest.mark.parametrize("at", ["held", SET, SET_MEMORY, RESET, RESET_MEMORY])
def test_after_a_kill_the_next_start_gives_them_back(tmp_path: Path, at: str) -> None:
    process = start(tmp_path, kill={} if at == "held" else {at: signal.SIGKILL})
    if at == "held":
        wait_until_held(process)
        assert restore_abandoned(tmp_path) == []
        process.kill()
    assert finish(process)[0] == -signal.SIGKILL
    before = whats(tmp_path)
    sentences = restore_abandoned(tmp_path)
    assert len(sentences) == 1
    assert f"the clocks of {GPU} were left locked at 1410 MHz (memory 3201 MHz) by pid {process.pid}" in sentences[0]
    assert sentences[0].endswith("which has ended; they are given back")
    assert whats(tmp_path) == before + BOTH_RESET
    assert record_of(tmp_path) is None
    assert restore_abandoned(tmp_path) == []


def test_after_a_kill_the_next_lock_gives_them_back(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_until_held(process)
    process.kill()
    finish(process)
    assert finish(start(tmp_path, "max"))[0] == 0
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET + BOTH_SET + BOTH_RESET


# handlers in this process


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in module.ENDINGS]
    with ClockLock(GPU, 1410, tmp_path), ClockLock("GPU-fake-2", 1410, tmp_path):
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in module.ENDINGS] == before


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


# what others left


def test_without_records_nothing_is_opened_or_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert restore_abandoned(tmp_path / "missing") == []
    assert restore_all(tmp_path) == module.Restored((), 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "lives"),
    [
        ({}, True),
        ({"started": 1}, False),  # its number is used again
        ({"pid": 2**22 + 1}, False),
        ({"boot": "another"}, False),
        ({"namespace": "another container's", "started": 1}, True),  # cannot be seen
        ({"host": "another", "started": 1}, True),
        ({"started": None}, True),
    ],
)
def test_only_the_clocks_of_who_has_ended_are_given_back(tmp_path: Path, values: dict[str, Any], lives: bool) -> None:
    leave(tmp_path, owner(**values))
    before = record_path(tmp_path, GPU).read_bytes()
    sentences = restore_abandoned(tmp_path)
    assert len(sentences) == (0 if lives else 1)
    assert whats(tmp_path) == ([] if lives else BOTH_RESET)
    assert record_path(tmp_path, GPU).exists() == lives
    if lives:
        assert record_path(tmp_path, GPU).read_bytes() == before
        restored = restore_all(tmp_path)
        assert restored.left == 1
        assert restored.sentences[0].endswith("they are left alone")
        assert record_path(tmp_path, GPU).read_bytes() == before


def test_one_living_owner_is_enough(tmp_path: Path) -> None:
    leave(tmp_path, owner(**DEAD), owner())
    assert restore_abandoned(tmp_path) == []
    assert whats(tmp_path) == []


@pytest.mark.parametrize("kind", ["text", "empty", "folder", "link", "other GPU", "fifo", "nobody's"])
def test_a_damaged_record_is_reported_and_its_gpu_reset(tmp_path: Path, kind: str) -> None:
    path = record_path(tmp_path, GPU)
    precious = tmp_path / "precious"
    leave(tmp_path, owner())
    text = path.rename(precious).read_text()
    make: dict[str, Callable[[], object]] = {
        "text": lambda: path.write_text('{"gpu": 3'),
        "empty": path.touch,
        "folder": path.mkdir,
        "link": lambda: path.symlink_to(precious),
        "other GPU": lambda: write_record(path, Record(gpu="GPU-fake-2", graphics=1, memory=None, owners=(owner(),))),
        "fifo": lambda: os.mkfifo(path),
        "nobody's": lambda: leave(tmp_path),
    }
    make[kind]()
    restored = restore_all(tmp_path)
    assert len(restored.sentences) == 1
    assert GPU in restored.sentences[0]
    assert whats(tmp_path) == BOTH_RESET
    assert {each.gpu for each in changes(tmp_path)} == {GPU}
    assert restored.left == (1 if kind == "folder" else 0)  # which is not ours to remove
    assert path.exists() == (kind == "folder")
    assert precious.read_text() == text


@pytest.mark.parametrize(("error", "left"), [("NoPermission", 1), ("Lost", 1), ("NotSupported", 0)])
def test_what_cannot_be_given_back_stays_recorded(tmp_path: Path, fake: Recording, error: str, left: int) -> None:
    leave(tmp_path, owner(**DEAD))
    fake.broken = {RESET: error}
    restored = restore_all(tmp_path)
    assert restored.left == left
    assert record_path(tmp_path, GPU).exists() == bool(left)
    assert ("doctor --restore-clocks" in restored.sentences[0]) == bool(left)


@pytest.mark.parametrize(("boot", "sentences"), [(boot_id(), 1), ("another", 0)])
def test_a_gpu_that_is_not_here(tmp_path: Path, fake: Recording, boot: str, sentences: int) -> None:
    """A record of another boot and an unknown GPU is that of another host, which has the same folder."""
    leave(tmp_path, owner(**DEAD, boot=boot))
    fake.gpus = ()
    assert len(restore_abandoned(tmp_path)) == sentences
    assert record_path(tmp_path, GPU).exists()
    assert whats(tmp_path) == []


def test_one_gpu_does_not_keep_another_from_being_restored(tmp_path: Path) -> None:
    record_path(tmp_path, "GPU-fake-0").write_text("{")  # unknown to NVML
    leave(tmp_path, owner(**DEAD))
    restored = restore_all(tmp_path)
    assert (len(restored.sentences), restored.left) == (2, 1)
    assert whats(tmp_path) == BOTH_RESET


def test_a_record_is_public_and_survives_a_round_trip(tmp_path: Path) -> None:
    leave(tmp_path, owner())
    path = record_path(tmp_path, GPU)
    assert record_of(tmp_path) == msgspec.json.decode(path.read_bytes(), type=Record)
    fields = json.loads(path.read_text())
    assert fields["owners"][0]["boot"] == boot_id()
    assert fields["owners"][0]["holder"]["pid"] == os.getpid()
    assert {"pid", "started", "namespace", "host"} <= set(fields["owners"][0]["holder"])
