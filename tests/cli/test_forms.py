import csv
import io
import json
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import Storage, write_run
from tests.cli.stored import Command
from tests.results.saved import make_run


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
        if timing.measured:
            assert timing.median_interval_us is not None
            assert float(row["median_us"]) == timing.median_us
            assert float(row["median_low_us"]) == timing.median_interval_us.low
            assert float(row["std_us"]) == timing.std_us
            assert float(row["q3_us"]) == timing.quartiles_us[2]
        else:
            assert row["median_us"] == ""
            assert row["unmeasured"] == timing.unmeasured
        if item.speedup is not None:
            assert float(row["speedup"]) == item.speedup.ratio
            assert row["limits"] == "min_speedup=1.2 pass"


def test_a_single_rep_has_no_spread(command: Command) -> None:
    rows = rows_of(export(make_run(tests=1, reps=1), command, "--csv"))
    assert {row["std_us"] for row in rows} == {""}
    assert {row["median_low_us"] for row in rows} == {""}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=1+1", "'=1+1"),
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("+1", "'+1"),
        ("-cmd", "'-cmd"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", "\\t=1"),
        ("\rx", "\\rx"),
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
        assert row["std_us"] is None


def test_benchmarks_are_those_of_the_file_without_our_block(command: Command) -> None:
    content = json.loads(export(make_run(), command, "--pytest-benchmark"))
    whole = json.loads(Path("run.json").read_bytes())
    del whole["gpu_bench"]
    assert content == whole


def test_a_file_is_written_whole_and_alone(command: Command) -> None:
    write_run(make_run(), Path("run.json"))
    assert command("show", "run.json", "--csv", "run.csv")[:2] == (0, "")
    assert len(rows_of(Path("run.csv").read_text(encoding="utf-8"))) == 9
    assert sorted(path.name for path in Path().iterdir()) == ["run.csv", "run.json"]


def test_a_run_of_two_devices_needs_a_choice(command: Command) -> None:
    for device in ("NVIDIA H200", "NVIDIA A100"):
        Storage(Path(".gpu_benchmarks")).save_each(make_run(device=device), "main")
    status, out, err = command("show", "main", "--csv")
    assert (status, out) == (2, "")
    assert "choose one with --device" in err
    assert "A100" in command("show", "main", "--csv", "--device", "a100")[1]
