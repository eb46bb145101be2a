"""Locked clocks, by a fake NVML that records what would be changed: their choice, the record, errors, every end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench import BadRequest, DeviceUnavailable
from pytest_gpubench.gpu import clocks
from pytest_gpubench.gpu.clocks import ClockLock, restore_abandoned
from pytest_gpubench.gpu.lock import GpuLock
from pytest_gpubench.settings import environment_settings
from tests.gpu.holding import Start, held, leave_clocks_locked
from tests.gpu.recording_nvml import BOTH_RESET, BOTH_SET, RESET, RESET_MEMORY, SET, SET_MEMORY, Recording, changes

CLOCK_LIMIT_TDP = 0xFFFFFF01

GPU = "GPU-fake-1"
CHILD = """
from tests.gpu import recording_nvml
sys.modules["pynvml"], how, os.environ["FAKE_NVML"] = recording_nvml, *sys.argv[2:]
from pytest_gpubench.gpu.clocks import ClockLock
with ClockLock("GPU-fake-1", 1410, folder):
    if how == "exit":
        sys.exit(3)
    if how == "error":
        raise RuntimeError("of the test")
    if how == "fork":
        child = os.fork()
        if not child:
            sys.exit(0)
        os.waitpid(child, 0)
"""


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Recording]:
    """Nothing here can reach the NVML of this machine."""
    library = Recording(tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    yield library
    assert clocks.LOCKS == {}


def whats(folder: Path) -> list[str]:
    return [change.what for change in changes(folder)]


def record_path(folder: Path) -> Path:
    return folder / f"{GPU}.clocks.json"


# the choice of clocks


NO_WISHES = ("0", "000", "-1", "1410.5", "1e3", "fast", "Max", "1410MHz", "²", "9" * 5000)


@pytest.mark.parametrize(
    ("text", "wish"),
    [("base", "base"), ("max", "max"), ("1410", 1410), ("1", 1), *((text, None) for text in NO_WISHES)],
)
def test_a_wish_is_a_word_or_a_number(monkeypatch: pytest.MonkeyPatch, text: str, wish: object) -> None:
    monkeypatch.setenv("GPU_BENCH_LOCK_CLOCKS", text)
    sentence = "it must be a whole number of MHz above 0, or one of base, max"
    with pytest.raises(BadRequest, match=sentence) if wish is None else nullcontext():
        assert environment_settings().lock_clocks == wish


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
        (1402, 1980, 1395),
        (1403, 1980, 1410),
        (1417, 1980, 1410),
        (1418, 1980, 1425),
        (9999, 1980, 1980),
    ],
)
def test_the_locked_clock_is_the_nearest_that_is_supported(
    tmp_path: Path, fake: Recording, wish: Any, default: int, graphics: int
) -> None:
    fake.answers["DefaultApplicationsClock"] = default
    said: list[str] = []
    with ClockLock(GPU, wish, tmp_path, said.append) as lock:
        assert lock.graphics_mhz == (None if graphics == CLOCK_LIMIT_TDP else graphics)
    assert [each.clocks for each in changes(tmp_path)[:2]] == [(graphics, graphics), (3201, 3201)]
    told = f"{GPU} does not support {wish} MHz: its clocks are locked at {graphics} MHz, the nearest that it does"
    assert said == [told] * (wish not in ("base", "max", graphics))


# the record


def test_recorded_then_set_then_reset(tmp_path: Path, fake: Recording) -> None:
    with ClockLock(GPU, 1410, tmp_path):
        assert whats(tmp_path) == BOTH_SET
        assert fake.asked[-2:] == BOTH_SET
        record = json.loads(record_path(tmp_path).read_text())
        assert (record["graphics"], record["memory"], record["holder"]["pid"]) == (1410, 3201, os.getpid())
    assert [(each.what, each.gpu, each.recorded) for each in changes(tmp_path)] == [
        (what, GPU, True) for what in BOTH_SET + BOTH_RESET
    ]
    assert not record_path(tmp_path).exists()


def test_gpus_do_not_mind_each_other_and_one_is_locked_once(tmp_path: Path) -> None:
    with ClockLock(GPU, 1410, tmp_path), ClockLock("GPU-fake-2", "max", tmp_path):
        with pytest.raises(DeviceUnavailable, match=rf"locked the clocks of {GPU} already, at 1410 MHz \(memory 3201"):
            ClockLock(GPU, 1410, tmp_path).__enter__()
        assert whats(tmp_path) == 2 * BOTH_SET
    assert [each.gpu for each in changes(tmp_path)[4:]] == 2 * ["GPU-fake-2"] + 2 * [GPU]


def test_a_record_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*paths: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DeviceUnavailable, match=r"clocks of GPU-fake-1, .*cannot be written .*No space left on device"):
        ClockLock(GPU, 1410, tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_what_a_link_of_somebody_else_leads_to_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    record_path(tmp_path).symlink_to(tmp_path / "precious")
    with ClockLock(GPU, 1410, tmp_path):
        assert not record_path(tmp_path).is_symlink()
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_record_that_is_gone_at_the_end_does_not_keep_the_clocks(tmp_path: Path) -> None:
    with ClockLock(GPU, 1410, tmp_path):
        record_path(tmp_path).unlink()
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET


# what cannot be locked, or given back


def test_memory_that_cannot_be_locked_is_left_alone(tmp_path: Path, fake: Recording) -> None:
    fake.broken = {SET_MEMORY: "NotSupported", RESET_MEMORY: "NotSupported"}
    said: list[str] = []
    with ClockLock(GPU, 1410, tmp_path, said.append):
        pass
    assert whats(tmp_path) == [SET, RESET]
    assert said == [f"the memory clock of {GPU} cannot be locked, only that of its multiprocessors is"]
    assert not record_path(tmp_path).exists()


@pytest.mark.parametrize(
    ("broken", "sentence", "changed"),
    [
        ({SET: "NoPermission", RESET: "NoPermission"}, "not the rights: run as root", []),
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
    assert "given back" not in str(caught.value)
    assert whats(tmp_path) == changed
    assert not record_path(tmp_path).exists()


@pytest.mark.parametrize(("uuid", "mode"), [(GPU, [1, 1]), ("MIG-1", [0, 0])])
def test_an_instance_of_a_gpu_is_refused(tmp_path: Path, fake: Recording, uuid: str, mode: list[int]) -> None:
    fake.answers["MigMode"] = mode
    fake.gpus = (uuid,)
    with pytest.raises(DeviceUnavailable, match="split into MIG instances"):
        ClockLock(uuid, 1410, tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_change_is_taken_back(tmp_path: Path, fake: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the alarm of a timeout, whose handler raises."""

    def interrupted(query: str) -> None:
        if query == SET_MEMORY:
            raise TimeoutError

    monkeypatch.setattr(fake, "fail", interrupted)
    with pytest.raises(TimeoutError):
        ClockLock(GPU, 1410, tmp_path).__enter__()
    assert whats(tmp_path) == [SET, *BOTH_RESET]
    assert not record_path(tmp_path).exists()


def test_clocks_that_cannot_be_given_back_are_said_and_stay_recorded(tmp_path: Path, fake: Recording) -> None:
    """The next holder cannot give them back either, and locks nothing."""
    said: list[str] = []
    with ClockLock(GPU, 1410, tmp_path, said.append):
        fake.broken = {RESET: "Lost"}
    (sentence,) = said
    assert f"nvidia-smi -i {GPU} -rgc" in sentence
    with pytest.raises(DeviceUnavailable, match=r"were left locked at 1410 MHz .* could not be given back"):
        ClockLock(GPU, "max", tmp_path).__enter__()
    assert whats(tmp_path) == BOTH_SET
    assert record_path(tmp_path).exists()


# clocks that a dead process left locked


def test_the_next_holder_gives_them_back_first(tmp_path: Path) -> None:
    leave_clocks_locked(tmp_path, GPU)
    said: list[str] = []
    with ClockLock(GPU, "max", tmp_path, said.append):
        assert whats(tmp_path) == BOTH_RESET + BOTH_SET
    (sentence,) = said
    assert f"the clocks of {GPU} were left locked at 1410 MHz (memory 3201 MHz) by pid {os.getpid()}" in sentence
    assert sentence.endswith("which has ended; they are given back")


@pytest.mark.parametrize("is_held", [False, True])
def test_they_are_restored_only_while_nobody_has_the_turn(tmp_path: Path, is_held: bool) -> None:
    leave_clocks_locked(tmp_path, GPU)
    with held(GpuLock(GPU if is_held else "GPU-fake-2", tmp_path)):
        (restored,) = restore_abandoned(tmp_path)
    assert restored.left == is_held
    if is_held:
        assert restored.sentence.startswith(f"the clocks of {GPU}, held by pid {os.getpid()}")
    assert restored.sentence.endswith("they are left alone" if is_held else "which has ended; they are given back")
    assert whats(tmp_path) == ([] if is_held else BOTH_RESET)
    assert record_path(tmp_path).exists() == is_held
    with held(GpuLock(GPU, tmp_path), timeout_s=0):
        """The turn was given back."""


def test_without_records_nothing_is_opened_or_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert restore_abandoned(tmp_path / "missing") == []
    assert restore_abandoned(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["text", "empty", "null", "bytes", "folder", "link", "fifo"])
def test_a_damaged_record_is_reported_and_its_gpu_reset(tmp_path: Path, kind: str) -> None:
    path, precious = record_path(tmp_path), tmp_path / "precious"
    leave_clocks_locked(tmp_path, GPU)
    text = path.rename(precious).read_text()
    make: dict[str, Callable[[], object]] = {
        "text": lambda: path.write_text('{"graphics": 3'),
        "empty": path.touch,
        "null": lambda: path.write_text("null"),
        "bytes": lambda: path.write_bytes(b"\xe9"),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to(precious),
        "fifo": lambda: os.mkfifo(path),
    }
    make[kind]()
    (restored,) = restore_abandoned(tmp_path)
    assert f"the record of the clocks of {GPU}" in restored.sentence
    assert whats(tmp_path) == BOTH_RESET
    assert restored.left == path.exists() == (kind == "folder")  # which is not ours to remove
    assert precious.read_text() == text


@pytest.mark.parametrize(("error", "left"), [("NoPermission", True), ("Lost", True), ("NotSupported", False)])
def test_what_cannot_be_given_back_stays_recorded(tmp_path: Path, fake: Recording, error: str, left: bool) -> None:
    leave_clocks_locked(tmp_path, GPU)
    fake.broken = {RESET: error}
    (restored,) = restore_abandoned(tmp_path)
    assert restored.left == record_path(tmp_path).exists() == left
    assert ("doctor --restore-clocks" in restored.sentence) == left


def test_a_gpu_that_is_not_here_does_not_keep_another_from_being_restored(tmp_path: Path) -> None:
    leave_clocks_locked(tmp_path, "GPU-fake-0")
    leave_clocks_locked(tmp_path, GPU)
    assert [each.left for each in restore_abandoned(tmp_path)] == [True, False]
    assert whats(tmp_path) == BOTH_RESET
    assert (tmp_path / "GPU-fake-0.clocks.json").exists()


@pytest.mark.parametrize("why", ["another user's", "another name"])
def test_a_record_of_another_user_resets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """The folder is open to all: anybody could have an administrator's clocks reset, also by a link to root's file."""
    assert set(clocks.TRUSTED_USERS) == {0, os.geteuid()}
    leave_clocks_locked(tmp_path, GPU)
    if why == "another user's":
        monkeypatch.setattr(clocks, "TRUSTED_USERS", (os.geteuid() + 1,))
    else:
        os.link(record_path(tmp_path), tmp_path / "another")
    assert restore_abandoned(tmp_path) == []
    assert whats(tmp_path) == []


# how a process ends


def finished(start: Start, folder: Path, how: str = "", **fakes: Any) -> "subprocess.Popen[str]":
    """Return a process that has locked the clocks, with the fake for its pynvml, and ended."""
    process = start(CHILD, folder, how, json.dumps({"folder": str(folder), **fakes}))
    process.communicate(timeout=60)
    return process


@pytest.mark.parametrize(("how", "status"), [("", 0), ("error", 1), ("exit", 3), ("fork", 0)])
def test_a_process_that_ends_of_its_own_gives_them_back(tmp_path: Path, start: Start, how: str, status: int) -> None:
    process = finished(start, tmp_path, how)
    assert process.returncode == status
    assert whats(tmp_path) == BOTH_SET + BOTH_RESET
    assert {each.pid for each in changes(tmp_path)} == {process.pid}
    assert not record_path(tmp_path).exists()


@pytest.mark.parametrize("at", BOTH_SET + BOTH_RESET)
def test_a_kill_in_the_midst_of_a_change_leaves_the_record_to_the_next_holder(
    tmp_path: Path, start: Start, at: str
) -> None:
    assert finished(start, tmp_path, kill={at: signal.SIGKILL}).returncode == -signal.SIGKILL
    assert record_path(tmp_path).exists()
    assert [each.left for each in restore_abandoned(tmp_path)] == [False]
    assert whats(tmp_path)[-2:] == BOTH_RESET
