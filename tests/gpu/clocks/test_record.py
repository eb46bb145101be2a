"""The record on disk of locked clocks."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.gpu.clocks import ClockLock, restore_abandoned
from pytest_gpubench.gpu.clocks import record as module
from pytest_gpubench.gpu.clocks.record import ClockRecord, boot_id, record_path
from tests.gpu.clocks.locking import BOTH_RESET, DEAD, GPU, leave, owner, record_of, whats


def test_the_temporary_file_of_somebody_else_is_not_written_to(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("mine")
    record_path(tmp_path, GPU).with_suffix(".new").symlink_to(target)
    with ClockLock(GPU, 1410, tmp_path):
        assert record_of(tmp_path) is not None
    assert target.read_text() == "mine"


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
    monkeypatch.setattr(module, "trusted_users", lambda: (os.geteuid() + 1,))
    assert restore_abandoned(tmp_path) == []
    assert whats(tmp_path) == []
    monkeypatch.undo()
    assert os.geteuid() in module.trusted_users()
    assert 0 in module.trusted_users()


def test_a_record_with_another_name_is_none(tmp_path: Path) -> None:
    """A hard link to a file of root's is no record of root's."""
    leave(tmp_path, owner(**DEAD))
    os.link(record_path(tmp_path, GPU), tmp_path / "another")
    assert restore_abandoned(tmp_path) == []
    (tmp_path / "another").unlink()
    assert len(restore_abandoned(tmp_path)) == 1
    assert whats(tmp_path) == BOTH_RESET
