from pathlib import Path

import pytest

from pytest_gpubench.results.store import Storage
from tests.cli.stored import Command, dated, fill
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


def test_the_storage_comes_from_the_environment_too(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(Path("elsewhere"), days=1)
    monkeypatch.setenv("GPU_BENCH_STORAGE", "elsewhere")
    status, out, _ = command("list")
    assert status == 0
    assert "0001" in out


def test_only_the_device_asked_for_is_listed(command: Command) -> None:
    fill(Path(".gpu_benchmarks"), days=1)
    Storage(Path(".gpu_benchmarks")).save_each(make_run(device="NVIDIA A100"), "")
    assert len(command("list")[1].splitlines()) == 4
    assert "A100" in command("list", "--device", "nvidia a100")[1]
    assert "H200" not in command("list", "--device", "nvidia a100")[1]
    status, out, err = command("list", "--device", "b300")
    assert (status, out) == (2, "")
    assert "--device=b300" in err
    assert "H200" in err


def test_nothing_saved_is_said(command: Command) -> None:
    status, out, _ = command("list")
    assert status == 0
    assert out == ".gpu_benchmarks: there are no saved runs; pytest --gpu-bench-save=NAME saves one\n"


def test_a_damaged_run_is_told_after_the_others(command: Command) -> None:
    first, second = fill(Path(".gpu_benchmarks"), days=2)
    first.write_text("{")
    status, out, err = command("list")
    assert status == 2
    assert [line.split()[0] for line in out.splitlines()[::2]] == ["Number", "0002"]
    assert str(first) in err
    assert str(second) not in err


def test_sessions_are_counted_where_a_run_has_several(command: Command) -> None:
    storage = Storage(Path("runs"))
    for name in ("one", "main", "main"):
        storage.save_each(make_run(tests=4), name)
    header, _, *lines = command("list", "--storage", "runs")[1].splitlines()
    assert header.split()[5:] == ["Tests", "Sessions", "Limits"]
    assert [line.split()[-4:-2] for line in lines] == [["4", "1"], ["4", "2"]]
