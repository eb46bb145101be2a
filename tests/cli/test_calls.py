"""The calls of saved runs in `list`, and what `list --prune` leaves of them."""

from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.replay.baselines import keep
from pytest_gpubench.replay.call_data import CallData
from pytest_gpubench.replay.capture import CapturedCall
from pytest_gpubench.replay.images import sha256_of
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import Storage
from pytest_gpubench.results.store.calls import CallStore
from tests.cli.stored import Command, dated
from tests.replay.test_call_data import KERNEL, call_of_graph, kernel_node
from tests.results.saved import make_run


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def call_from(image: bytes, label: str) -> CapturedCall:
    kernel = msgspec.structs.replace(KERNEL, image=sha256_of(image))
    data: CallData = msgspec.structs.replace(call_of_graph(kernel_node(kernel)), label=label)
    return CapturedCall(data, {sha256_of(image): image})


def saved_with(call: CapturedCall, day: int) -> Path:
    """Save a run whose only measurement has a call."""
    run: SavedRun = dated(make_run(tests=1), day)
    record = run.records[0]
    item = msgspec.structs.replace(record.measurements[0], call=keep(call, CallStore(Path("runs"))))
    record = msgspec.structs.replace(record, measurements=(item, *record.measurements[1:]))
    run = msgspec.structs.replace(run, records=(record, *run.records[1:]))
    (path,) = Storage(Path("runs")).save_each(run, "")
    return path


def names() -> set[str]:
    return set(CallStore(Path("runs")).names())


def test_list_counts_calls_and_says_what_they_take(command: Command) -> None:
    saved_with(call_from(b"one", "a"), 1)
    status, out, _ = command("list", "--storage", "runs")
    assert status == 0
    header, _, line, last = out.splitlines()
    place = header.index("Calls")
    assert line[place : place + len("Calls")].strip() == "1"
    assert last.startswith("calls of these runs: 2 files, ")


def test_calls_of_removed_runs_go_with_them(command: Command) -> None:
    """An image that another call needs stays."""
    saved_with(call_from(b"one", "a"), 1)
    before = names()
    saved_with(call_from(b"one", "b"), 2)
    saved_with(call_from(b"two", "c"), 3)
    assert len(names()) == 5
    status, out, _ = command("list", "--storage", "runs", "--prune", "--keep", "2")
    assert status == 0
    assert "removed the calls that only they had: " in out
    assert len(before - names()) == 1
    assert sha256_of(b"one") in names()
    assert len(names()) == 4


def test_a_dry_run_removes_no_call(command: Command) -> None:
    saved_with(call_from(b"one", "a"), 1)
    saved_with(call_from(b"two", "b"), 2)
    command("list", "--storage", "runs", "--prune", "--keep", "1", "--dry-run")
    assert len(names()) == 4


def test_where_a_run_cannot_be_read_no_call_is_removed(command: Command) -> None:
    saved_with(call_from(b"one", "a"), 1)
    saved_with(call_from(b"two", "b"), 2)
    saved_with(call_from(b"three", "c"), 3).write_text("{")
    status, _, err = command("list", "--storage", "runs", "--prune", "--keep", "1")
    assert status == 2
    assert "calls of saved runs were left as they are" in err
    assert len(names()) == 6
