"""Clocks that an ended process left locked: restored by the next process; all others stay."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpubench.gpu.clocks import record, restore_abandoned
from pytest_gpubench.gpu.clocks.record import ClockRecord, boot_id, record_path, write_record
from tests.gpu.clocks.locking import (
    BOTH_RESET,
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


@pytest.mark.parametrize("at", ["held", SET, SET_MEMORY, RESET, RESET_MEMORY])
def test_after_a_kill_the_next_start_gives_them_back(tmp_path: Path, at: str) -> None:
    process = start(tmp_path, kill={} if at == "held" else {at: signal.SIGKILL})
    if at == "held":
        wait_until_held(process)
        assert [each.in_use for each in restore_abandoned(tmp_path)] == [True]
        process.kill()
    assert finish(process)[0] == -signal.SIGKILL
    before = whats(tmp_path)
    (restored,) = restore_abandoned(tmp_path)
    assert (
        f"the clocks of {GPU} were left locked at 1410 MHz (memory 3201 MHz) by pid {process.pid}" in restored.sentence
    )
    assert restored.sentence.endswith("which has ended; they are given back")
    assert whats(tmp_path) == before + BOTH_RESET
    assert record_of(tmp_path) is None
    assert restore_abandoned(tmp_path) == []


def test_without_records_nothing_is_opened_or_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert restore_abandoned(tmp_path / "missing") == []
    assert restore_abandoned(tmp_path) == []
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
    (restored,) = restore_abandoned(tmp_path)
    assert (restored.left, restored.in_use) == (lives, lives)
    assert restored.sentence.endswith("they are left alone") == lives
    assert whats(tmp_path) == ([] if lives else BOTH_RESET)
    assert record_path(tmp_path, GPU).exists() == lives
    if lives:
        assert record_path(tmp_path, GPU).read_bytes() == before


def test_one_living_owner_is_enough(tmp_path: Path) -> None:
    leave(tmp_path, owner(**DEAD), owner())
    assert [each.in_use for each in restore_abandoned(tmp_path)] == [True]
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
        "other GPU": lambda: write_record(path, ClockRecord(gpu="GPU-2", graphics=1, memory=None, owners=(owner(),))),
        "fifo": lambda: os.mkfifo(path),
        "nobody's": lambda: leave(tmp_path),
    }
    make[kind]()
    (restored,) = restore_abandoned(tmp_path)
    assert GPU in restored.sentence
    assert whats(tmp_path) == BOTH_RESET
    assert {each.gpu for each in changes(tmp_path)} == {GPU}
    assert restored.left == (kind == "folder")  # which is not ours to remove
    assert path.exists() == (kind == "folder")
    assert precious.read_text() == text


@pytest.mark.parametrize(("error", "left"), [("NoPermission", True), ("Lost", True), ("NotSupported", False)])
def test_what_cannot_be_given_back_stays_recorded(tmp_path: Path, fake: Recording, error: str, left: bool) -> None:
    leave(tmp_path, owner(**DEAD))
    fake.broken = {RESET: error}
    (restored,) = restore_abandoned(tmp_path)
    assert restored.left == left
    assert record_path(tmp_path, GPU).exists() == left
    assert ("doctor --restore-clocks" in restored.sentence) == left


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
    assert [each.left for each in restore_abandoned(tmp_path)] == [True, False]
    assert whats(tmp_path) == BOTH_RESET


# records


def test_a_record_is_public_and_survives_a_round_trip(tmp_path: Path) -> None:
    leave(tmp_path, owner())
    path = record_path(tmp_path, GPU)
    assert record_of(tmp_path) == msgspec.json.decode(path.read_bytes(), type=ClockRecord)
    fields = json.loads(path.read_text())
    assert fields["owners"][0]["boot"] == boot_id()
    assert fields["owners"][0]["holder"]["pid"] == os.getpid()
    assert {"pid", "started", "namespace", "host"} <= set(fields["owners"][0]["holder"])


@pytest.mark.parametrize("content", [None, "damaged"])
def test_a_record_of_another_user_resets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """The folder is open to all: anybody could have an administrator's clocks reset."""
    leave(tmp_path, owner(**DEAD))
    if content is not None:
        record_path(tmp_path, GPU).write_text(content)
    monkeypatch.setattr(record, "trusted_users", lambda: (os.geteuid() + 1,))
    assert restore_abandoned(tmp_path) == []
    assert whats(tmp_path) == []
    monkeypatch.undo()
    assert os.geteuid() in record.trusted_users()
    assert 0 in record.trusted_users()


def test_a_record_with_another_name_is_none(tmp_path: Path) -> None:
    """A hard link to a file of root's is no record of root's."""
    leave(tmp_path, owner(**DEAD))
    os.link(record_path(tmp_path, GPU), tmp_path / "another")
    assert restore_abandoned(tmp_path) == []
    (tmp_path / "another").unlink()
    assert len(restore_abandoned(tmp_path)) == 1
    assert whats(tmp_path) == BOTH_RESET
