"""Fields that pytest-benchmark, Bencher and github-action-benchmark read from a file."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import Measurement
from pytest_gpubench.results.model import TestRecord
from pytest_gpubench.results.store import encode_run, write_run
from pytest_gpubench.results.store.benchmarks import sample_stats
from tests.results.saved import make_run
from tests.results.store.files import RUN, content, replace, timing_of

FIELDS = {"group", "name", "fullname", "params", "param", "extra_info", "options", "stats"}
STATS = {
    *("min", "max", "mean", "stddev", "rounds", "median", "iqr", "q1", "q3", "iqr_outliers", "stddev_outliers"),
    *("outliers", "ld15iqr", "hd15iqr", "ops", "total", "data", "iterations"),
}
"""Of these Bencher reads mean and stddev, an older one median and iqr; github-action-benchmark ops, stddev and mean."""


def test_the_file_has_the_form_of_pytest_benchmark() -> None:
    found = content()
    assert found.keys() == {"machine_info", "commit_info", "benchmarks", "datetime", "version", "gpu_bench"}
    assert found["gpu_bench"].keys() == {"schema", "version", "name", "settings", "records", "earlier", "left_out"}
    for entry in found["benchmarks"]:
        assert entry.keys() == FIELDS
        assert entry["stats"].keys() == STATS


def test_times_are_seconds() -> None:
    stats = content()["benchmarks"][0]["stats"]
    assert stats["data"] == pytest.approx([sample / 1e6 for sample in timing_of(RUN).samples_us], rel=1e-15)
    assert stats["median"] == pytest.approx(150e-6, rel=0.05)


def test_what_has_no_samples_has_no_entry_but_is_kept() -> None:
    found = content()
    assert not [entry for entry in found["benchmarks"] if "unmeasured" in entry["fullname"]]
    assert [record for record in found["gpu_bench"]["records"] if "unmeasured" in record["nodeid"]]


def test_names_are_those_of_the_test_and_of_what_it_measured() -> None:
    names = {(entry["name"], entry["fullname"]) for entry in content()["benchmarks"]}
    test = "tests/perf/test_path.py::test_path[data/a/b.pt]"
    assert ("test_path[data/a/b.pt] torch_path", f"{test} torch_path") in names
    assert ("test_path[data/a/b.pt] triton_path", f"{test} triton_path") in names
    assert ("test_plain", "tests/perf/test_plain.py::test_plain") in names
    example = "test_given triton_given (shape=(4096, 33))"
    assert (example, f"tests/perf/test_given.py::{example}") in names


def entries_of(record: TestRecord) -> list[dict[str, Any]]:
    """Return the benchmarks that a saved run holds for one test."""
    found: list[dict[str, Any]] = json.loads(encode_run(replace(RUN, records=(record,))))["benchmarks"]
    return found


@pytest.mark.parametrize(
    ("nodeid", "name", "param"),
    [
        ("a/test_b.py::test_c", "test_c", None),
        ("a/test_b.py::TestD::test_c[x-1]", "test_c[x-1]", "x-1"),
        ("a/test_b.py::test_c[a::b[0]]", "test_c[a::b[0]]", "a::b[0]"),
        ("test_c", "test_c", None),
    ],
)
def test_the_parts_of_a_nodeid(nodeid: str, name: str, param: str | None) -> None:
    record = replace(make_run(5).records[4], nodeid=nodeid)
    (entry,) = entries_of(record)
    assert (entry["name"], entry["fullname"], entry["param"]) == (name, nodeid, param)


@given(st.lists(st.tuples(st.sampled_from(["a", "a #2", "b", ""]), st.sampled_from(["", "n=1"]), st.booleans())))
def test_no_two_entries_of_a_test_have_one_name(labels: list[tuple[str, str, bool]]) -> None:
    timing = timing_of(RUN)
    measurements = [
        Measurement(
            timing=replace(timing, label=label, samples_us=timing.samples_us if measured else ()), example=example
        )
        for label, example, measured in labels
    ]
    entries = entries_of(replace(RUN.records[0], measurements=tuple(measurements)))
    assert len({entry["fullname"] for entry in entries}) == len(entries) == sum(measured for *_, measured in labels)


@given(st.lists(st.floats(1e-7, 10), min_size=1, max_size=60))
def test_statistics_are_those_of_pytest_benchmark(data: list[float]) -> None:
    stats = pytest.importorskip("pytest_benchmark.stats")
    real = stats.Stats()
    real.data = data
    ours = sample_stats(data)
    expected = real.as_dict()
    counts = {"iqr_outliers", "stddev_outliers", "outliers"}  # ties at a bound fall by the last digit of the mean
    for name in expected.keys() - counts:
        scale = max(data) * 1e-9
        assert ours[name] == pytest.approx(expected[name], rel=1e-9, abs=scale), name
    assert ours.keys() == {*expected, "data", "iterations"}


@pytest.mark.parametrize(
    ("data", "outliers"),
    [
        ([1.0], "0;0"),
        ([1.0, 1.0, 1.0], "0;0"),
        ([1.0, 2.0, 3.0, 4.0, 5.0], "2;0"),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 60.0, -60.0], "2;2"),
        ([*range(1, 21), 100.0], "1;1"),
    ],
)
def test_outliers_are_counted(data: list[float], outliers: str) -> None:
    stats = pytest.importorskip("pytest_benchmark.stats")
    real = stats.Stats()
    real.data = data
    assert sample_stats(data)["outliers"] == real.outliers == outliers


def test_a_single_rep_has_no_nan(tmp_path: Path) -> None:
    run = make_run(tests=5, reps=1)
    text = encode_run(run).decode()
    assert "NaN" not in text
    stats = json.loads(text, parse_constant=pytest.fail)["benchmarks"][0]["stats"]
    assert stats["stddev"] == 0
    assert all(value is not None for value in stats.values())


def test_pytest_benchmark_compares_our_files(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("pytest-benchmark")
    if not command.exists():
        pytest.skip("pytest-benchmark is not installed")
    first, second = tmp_path / "0001_old.json", tmp_path / "0002_new.json"
    write_run(RUN, first)
    write_run(make_run(tests=8, reps=12, seed=1, slower=2.0), second)
    csv = tmp_path / "out.csv"
    done = subprocess.run(
        [command, "compare", first, second, "--group-by=fullname", f"--csv={csv}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Failed to load" not in done.stdout + done.stderr
    assert "test_plain" in done.stdout
    rows = [line for line in csv.read_text().splitlines() if "::test_plain," in line]
    medians = [float(row.split(",")[-7]) for row in rows] if rows else []
    assert len(csv.read_text().splitlines()) == 1 + 2 * len(content()["benchmarks"])
    assert len(medians) == 2
