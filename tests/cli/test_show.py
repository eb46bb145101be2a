from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.table import render
from pytest_gpubench.report.terminal import summary_lines
from pytest_gpubench.results.store import Storage, read_run, write_run
from pytest_gpubench.settings import Settings
from tests.cli.stored import Command, fill
from tests.results.saved import make_run


@pytest.mark.parametrize("verbose", [False, True])
def test_the_tables_are_those_of_the_end_of_the_run(verbose: bool, command: Command, tmp_path: Path) -> None:
    write_run(make_run(tests=7), tmp_path / "run.json")
    status, out, _ = command("show", "run.json", *(["--verbose"] if verbose else []))
    records, settings = read_run(tmp_path / "run.json").records, Settings(verbose=verbose)
    assert status == 0
    assert render(records, settings, Screen()) in out
    assert out.endswith("\n".join(summary_lines(records, settings)) + "\n")


@pytest.mark.parametrize("which", ["latest", "2", "0002"])
def test_a_run_is_named_in_many_ways(which: str, command: Command) -> None:
    last = fill(Path(".gpu_benchmarks"), days=2)[-1]
    assert command("show", which)[1].startswith(f"{last.name}, 2026-03-02 12:30 UTC, 00000002\n")


def test_a_run_of_two_devices_shows_both(command: Command) -> None:
    storage = Storage(Path(".gpu_benchmarks"))
    storage.save_each(make_run(), "main")
    storage.save_each(make_run(device="NVIDIA A100"), "main")
    _, out, _ = command("show", "main")
    assert "NVIDIA H200 (GPU)" in out
    assert "NVIDIA A100 (GPU)" in out
    _, out, _ = command("show", "main", "--device", "a100")
    assert "NVIDIA H200 (GPU)" not in out


@pytest.mark.parametrize("option", ["--html", "--markdown"])
def test_a_page_is_of_one_device(option: str, command: Command) -> None:
    storage = Storage(Path(".gpu_benchmarks"))
    storage.save_each(make_run(), "main")
    storage.save_each(make_run(device="NVIDIA A100"), "main")
    status, _, err = command("show", "main", option, "page")
    assert status == 2
    assert "choose one with --device" in err
    assert not Path("page").exists()


def test_only_the_tests_asked_for_are_shown(command: Command) -> None:
    fill(Path(".gpu_benchmarks"), days=1)
    _, out, _ = command("show", "latest", "--test", "softmax")
    assert "in 1 test on" in out
    status, out, err = command("show", "latest", "--test", "nothing")
    assert (status, out) == (2, "")
    assert "'nothing'" in err


@pytest.mark.parametrize(
    ("pattern", "is_meant"),
    [
        ("softmax", True),
        ("test_softmax[4096x1024-float16]", True),
        ("softmax[*float16]", True),
        ("test_s?ftmax", True),
        ("softmax[*float32]", False),
        ("[s]oftmax", False),
        ("", True),
    ],
)
def test_patterns(pattern: str, is_meant: bool, command: Command) -> None:
    run = make_run(tests=1)
    named = replace(run.records[0], nodeid="tests/perf/test_a.py::test_softmax[4096x1024-float16]")
    write_run(replace(run, records=(named,)), Path("run.json"))
    assert (command("show", "run.json", "--test", pattern)[0] == 0) is is_meant
