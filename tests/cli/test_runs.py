import os
import re
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.replay.baselines import keep
from pytest_gpubench.replay.capture import CapturedCall
from pytest_gpubench.replay.images import sha256_of
from pytest_gpubench.results.store import Storage
from pytest_gpubench.results.store.calls import CallStore
from tests.cli.stored import Command, dated, fill
from tests.replay.test_call_data import KERNEL, call_of_graph, kernel_node
from tests.results.measured import alone, record, run
from tests.results.saved import make_run


def test_each_run_has_a_line(command: Command) -> None:
    fill(Path("runs"), days=2)
    Storage(Path("runs")).save_each(dated(make_run(tests=4), 3), "main")
    status, out, _ = command("list", "--storage", "runs")
    assert status == 0
    header, _, *lines = out.splitlines()
    assert header.split() == ["Number", "Name", "Date", "Device", "Commit", "Tests", "Limits"]
    assert [line.split()[:2] for line in lines] == [["0001", "-"], ["0002", "-"], ["0003", "main"]]
    assert lines[0].endswith("2026-03-01 12:30 UTC  NVIDIA H200  00000001      7  5 pass")
    assert lines[2].endswith("00000003      4  4 pass")


@pytest.mark.parametrize(
    ("text", "minute"),
    [
        ("2026-03-01T12:30:45.123456+00:00", "2026-03-01 12:30 UTC"),
        ("2026-03-01T12:30:45", "2026-03-01 12:30 UTC"),
        ("2026-03-01T00:30:45+02:00", "2026-02-28 22:30 UTC"),
        ("2026-03-01T12:30:45-05:30", "2026-03-01 18:00 UTC"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00"),
        ("", ""),
    ],
)
def test_the_minute_of_a_run_is_that_of_utc(text: str, minute: str, command: Command) -> None:
    Storage(Path("runs")).save_each(msgspec.structs.replace(make_run(tests=1), datetime=text), "main")
    header, _, line = command("list", "--storage", "runs")[1].splitlines()
    assert line[header.index("Date") : header.index("Device")].rstrip() == minute


def test_runs_are_listed_oldest_first_or_those_of_a_device(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage may come from the environment."""
    monkeypatch.setenv("GPU_BENCH_STORAGE", "elsewhere")
    for day, device in ((1, "NVIDIA H200"), (2, "NVIDIA A100"), (3, "NVIDIA H200")):
        Storage(Path("elsewhere")).save_each(dated(make_run(tests=1, device=device), day), f"day {day}")
    assert re.findall(r"day \d", command("list")[1]) == ["day 1", "day 2", "day 3"]
    assert re.findall(r"day \d", command("list", "--device", "nvidia a100")[1]) == ["day 2"]
    said = "--device=b300: elsewhere has runs of NVIDIA-A100, NVIDIA-H200 only"
    assert command("list", "--device", "b300") == (2, "", f"pytest-gpubench list: {said}\n")
    (path,) = Path("elsewhere").glob("*/0002_*.json")
    for which, status in ((path, 0), ("day 1", 2)):  # a path means one file, whatever is asked for
        assert (
            command("show", which, "--device", "b300")[0]
            == command("compare", which, path, "--device", "b300")[0]
            == status
        )


def test_nothing_saved_is_said(command: Command) -> None:
    status, out, _ = command("list")
    assert status == 0
    assert out.endswith(": there are no saved runs; pytest --gpu-bench-save=NAME saves one; see --storage too\n")


@pytest.mark.parametrize("words", [("list",), ("history", "test_plain")])
def test_a_damaged_run_is_told_after_the_others(words: tuple[str, ...], command: Command) -> None:
    first, second = fill(Path(".gpu_benchmarks"), days=2)
    first.write_text("{")
    status, out, err = command(*words)
    runs = re.findall(r"^\d{4}", out, re.MULTILINE)
    assert (status, runs, str(first) in err, str(second) in err) == (2, ["0002"], True, False)


def test_sessions_are_counted_where_a_run_has_several(command: Command) -> None:
    storage = Storage(Path("runs"))
    for name in ("one", "main", "main"):
        storage.save_each(make_run(tests=4), name)
    header, _, *lines = command("list", "--storage", "runs")[1].splitlines()
    assert header.split()[5:] == ["Tests", "Sessions", "Limits"]
    assert [line.split()[-4:-2] for line in lines] == [["4", "1"], ["4", "2"]]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def call_from(image: bytes, label: str) -> CapturedCall:
    kernel = msgspec.structs.replace(KERNEL, image=sha256_of(image))
    data = msgspec.structs.replace(call_of_graph(kernel_node(kernel)), label=label)
    return CapturedCall(data, {sha256_of(image): image})


def saved_with(call: CapturedCall, day: int) -> Path:
    """Save a run whose only measurement has a call."""
    item = msgspec.structs.replace(alone(), call=keep(call, CallStore(Path("runs"))))
    (path,) = Storage(Path("runs")).save_each(dated(run(record(item)), day), "")
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
    """An image that another call needs stays, and so does the call of a run that is not saved yet."""
    saved_with(call_from(b"one", "a"), 1)
    before = names()
    saved_with(call_from(b"one", "b"), 2)
    saved_with(call_from(b"two", "c"), 3)
    store = CallStore(Path("runs"))
    for name in names():
        os.utime(store.path(name), (0, 0))
    unsaved = keep(call_from(b"three", "d"), store)
    assert len(names()) == 7
    command("list", "--storage", "runs", "--prune", "--keep", "2", "--dry-run")
    assert len(names()) == 7
    status, out, _ = command("list", "--storage", "runs", "--prune", "--keep", "2")
    assert status == 0
    assert "removed the calls that only they had: " in out
    assert len(before - names()) == 1
    assert {unsaved, sha256_of(b"one")} <= names()
    assert len(names()) == 6


def test_where_a_run_cannot_be_read_no_call_is_removed(command: Command) -> None:
    saved_with(call_from(b"one", "a"), 1)
    saved_with(call_from(b"two", "b"), 2)
    saved_with(call_from(b"three", "c"), 3).write_text("{")
    status, _, err = command("list", "--storage", "runs", "--prune", "--keep", "1")
    assert status == 2
    assert "calls of saved runs were left as they are" in err
    assert len(names()) == 6
