import csv
import io
import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.table import render
from pytest_gpubench.report.terminal import summary_lines
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import Storage, read_run, write_run
from pytest_gpubench.settings import Settings
from tests.cli.stored import Command, fill
from tests.results.saved import make_run


@pytest.mark.parametrize("verbose", [False, True])
def test_the_tables_are_those_of_the_end_of_the_run(verbose: bool, command: Command, tmp_path: Path) -> None:
    write_run(make_run(tests=7), tmp_path / "run.json")
    last = fill(Path(".gpu_benchmarks"), days=2)[-1]
    assert command("show", "latest")[1].startswith(f"{last.name}, 2026-03-02 12:30 UTC, 00000002\n")
    status, out, _ = command("show", "run.json", *(["--verbose"] if verbose else []))
    records, settings = read_run(tmp_path / "run.json").records, Settings(verbose=verbose)
    assert status == 0
    assert render(records, settings, Screen()) in out
    assert out.endswith("\n".join(summary_lines(records, settings)) + "\n")


@pytest.mark.parametrize("option", ["", "--html", "--markdown", "--csv"])
def test_a_page_is_of_one_device(option: str, command: Command) -> None:
    storage = Storage(Path(".gpu_benchmarks"))
    storage.save_each(make_run(), "main")
    storage.save_each(make_run(device="NVIDIA A100"), "main")
    if not option:
        assert all(f"{name} (GPU)" in command("show", "main")[1] for name in ("NVIDIA H200", "NVIDIA A100"))
        assert "NVIDIA H200 (GPU)" not in command("show", "main", "--device", "a100")[1]
        return
    status, _, err = command("show", "main", option, "page")
    assert status == 2
    assert "choose one with --device" in err
    assert not Path("page").exists()
    assert command("show", "main", option, "page", "--device", "a100")[0] == 0
    assert "A100" in Path("page").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("pattern", "is_meant"),
    [
        ("softmax", True),
        ("test_softmax[4096x1024-float16]", True),
        ("softmax[*float16]", True),
        ("softmax[*float32]", False),
        ("[s]oftmax", False),
        ("", True),
    ],
)
def test_patterns(pattern: str, is_meant: bool, command: Command) -> None:
    run = make_run(tests=1)
    named = replace(run.records[0], nodeid="tests/perf/test_a.py::test_softmax[4096x1024-float16]")
    other = replace(run.records[0], nodeid="")
    write_run(replace(run, records=(named, other)), Path("run.json"))
    status, out, err = command("show", "run.json", "--test", pattern)
    if is_meant:
        assert (status, f"in {1 if pattern else 2} test" in out) == (0, True)
    else:
        assert (status, out, err) == (2, "", f"pytest-gpubench show: no test of this run has {pattern!r} in its id\n")


def export(run: SavedRun, command: Command, *words: str) -> str:
    write_run(run, Path("run.json"))
    status, out, err = command("show", "run.json", *words)
    assert (status, err) == (0, "")
    return out


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_each_measurement_has_a_line_with_the_numbers_of_the_run(command: Command) -> None:
    run = make_run(tests=7)
    rows = rows_of(export(run, command, "--csv"))
    items = [(record, item) for record in run.records for item in record.measurements]
    assert len(rows) == len(items)
    for row, (record, item) in zip(rows, items, strict=True):
        timing = item.timing
        assert (row["test"], row["function"], row["device"]) == (record.nodeid, timing.label, record.device.name)
        assert row["commit"] == run.commit_info.id
        assert int(row["reps"]) == timing.reps
        assert row["median_us"] == (str(timing.median_us) if timing.measured else "")
        assert row["unmeasured"] == (timing.unmeasured or "")
        assert row["limits"] == ("min_speedup=1.2 pass" if item.speedup else "")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=1+1", "'=1+1"),
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("-cmd", "'-cmd"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", "\\t=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a=1", "a=1"),
        ("", ""),
    ],
)
def test_no_cell_is_a_formula(value: str, written: str, command: Command) -> None:
    run = make_run(tests=1)
    bad = msgspec.structs.replace(run.records[0], nodeid=value)
    rows = rows_of(export(msgspec.structs.replace(run, records=(bad,)), command, "--csv"))
    assert rows[0]["test"] == written


def test_json_has_the_columns_of_the_csv_file(command: Command) -> None:
    """Numbers as numbers, null for what is not known, parameters and verdicts as they are."""
    run = make_run(tests=7, reps=1)
    rows, plain_rows = json.loads(export(run, command, "--json")), rows_of(export(run, command, "--csv"))
    items = [(record, item) for record in run.records for item in record.measurements]
    for row, plain, (record, item) in zip(rows, plain_rows, items, strict=True):
        assert list(row) == list(plain)
        assert (row["params"], row["dirty"]) == (record.params, False)
        assert [each["outcome"] for each in row["limits"]] == [each.outcome.value for each in item.verdicts]
        for name in plain.keys() - {"params", "dirty", "limits", "std_us", "rel_std"}:
            assert plain[name] == ("" if row[name] is None else str(row[name]))
        assert (row["std_us"], plain["std_us"], plain["median_low_us"]) == (None, "", "")


def test_benchmarks_are_those_of_the_file_without_our_block(command: Command) -> None:
    content = json.loads(export(make_run(), command, "--pytest-benchmark"))
    whole = json.loads(Path("run.json").read_bytes())
    del whole["gpu_bench"]
    assert content == whole
