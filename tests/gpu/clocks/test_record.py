"""The record on disk of locked clocks."""

import json
import os
from pathlib import Path

import msgspec

from pytest_gpubench.gpu.clocks import ClockLock
from pytest_gpubench.gpu.clocks.record import ClockRecord, boot_id, record_path
from tests.gpu.clocks.locking import (
    GPU,
    leave,
    owner,
    record_of,
)


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
