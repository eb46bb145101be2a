"""Run files: reading, writing, and one sentence for each file that cannot be read."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import Measurement
from pytest_gpubench.results.model import SavedRun, TestRecord
from pytest_gpubench.results.store import read_run, write_run
from tests.results.saved import make_run
from tests.results.store.files import RUN, content, refusal, replace, timing_of
from tests.results.test_files import failing

SCHEMA = 3


def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe is not waited for."""
    os.mkfifo(tmp_path / "pipe")
    for path, sentence in (
        (tmp_path / "no.json", "cannot be read: No such file or directory"),
        (Path("x" * 300), "cannot be read: File name too long"),
        (tmp_path, "is not a file: name one that --gpu-bench-save"),
        (tmp_path / "pipe", "is not a file: name one that --gpu-bench-save"),
    ):
        assert f"{path} {sentence}" in refusal(path)
    monkeypatch.setattr(Path, "read_bytes", failing(errno.EACCES))
    assert refusal(Path("x.json")) == "x.json cannot be read: Permission denied; name a place that may be read"


NO_RUN, NO_BLOCK = "is damaged, or no saved run: ", "has no `gpu_bench` block, as a file of pytest-benchmark has none"
PLAIN_PYTEST_BENCHMARK = {key: value for key, value in content().items() if key != "gpu_bench"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", f"{NO_RUN}Input data was truncated; save or copy it again, or name another"),
        (b"\0" * 100, f"{NO_RUN}JSON is malformed: invalid character (byte 0)"),
        (b"\x1f\x8b\x08 packed", f"{NO_RUN}JSON is malformed: invalid character (byte 0)"),
        ("{}".encode("utf-16"), f"{NO_RUN}JSON is malformed"),
        (b"{nonsense", f"{NO_RUN}JSON is malformed"),
        (
            b'{"machine_info": {"\xff\xfe": 1}, "gpu_bench": {"schema": 3}}',
            f"{NO_RUN}'utf-8' codec can't decode byte 0xff",
        ),
        (b'{"machine_info": ' + b"[" * 100_000, f"{NO_RUN}maximum recursion depth exceeded"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", f"{NO_RUN}maximum recursion depth exceeded"),
        (b'{"gpu_bench": {"schema": 3, "records": [NaN]}}', f"{NO_RUN}JSON is malformed"),
        (b"[]", "has a field that is not as it should be: Expected `object`, got `array`"),
        (b"{}", NO_BLOCK),
        (json.dumps(PLAIN_PYTEST_BENCHMARK).encode(), NO_BLOCK),
        (b'{"gpu_bench": []}', "has a field that is not as it should be: Expected `object | null`, got `array`"),
        (b'{"gpu_bench": {}}', "has a field that is not as it should be: Object missing required field `schema`"),
    ],
)
def test_a_file_that_is_not_a_run(data: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(data)
    assert refusal(path).startswith(f"{path} {sentence}")


@given(st.binary(max_size=300))
def test_any_bytes_get_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.json"
    path.write_bytes(data)
    refusal(path)


def written(found: dict[str, Any], folder: Path) -> Path:
    path = folder / "run.json"
    path.write_text(json.dumps(found))
    return path


MEASUREMENT = "$.gpu_bench.records[5].measurements[1]"
LABEL, NODEID = RUN.records[5].measurements[1].timing.label, RUN.records[5].nodeid


@pytest.mark.parametrize("session", ["records", "earlier"])
@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("timing.samples_us.3", None, f"Expected `float`, got `null` - at `{MEASUREMENT}.timing.samples_us[3]`"),
        ("timing.samples_us.3", -2.5, f"measured: -2.5 for {LABEL} in {NODEID}; save the run again"),
        ("timing.samples_us.1", 1e15, f"measured: 1e+15 for {LABEL} in {NODEID}; save the run again"),
        ("speedup.reference_us", 1e308, f"measured: 1e+308 for {LABEL} in {NODEID}; save the run again"),
        ("timing.samples_us.0", 0, f"measured: 0 for {LABEL} in {NODEID}; save the run again"),
        ("timing.samples_us.11", 10**400, f"Number out of range - at `{MEASUREMENT}.timing.samples_us[11]`"),
        ("timing.kernels.0.kind", "dance", f"Invalid enum value 'dance' - at `{MEASUREMENT}.timing.kernels[0].kind`"),
        ("speedup.ratio", 0, f"measured: 0 for {LABEL} in {NODEID}; save the run again"),
        ("speedup.reference_us", -1, f"measured: -1 for {LABEL} in {NODEID}; save the run again"),
    ],
)
def test_a_wrong_field_is_named(session: str, place: str, value: object, sentence: str, tmp_path: Path) -> None:
    found = content(replace(RUN, earlier=RUN.records))
    *way, last = place.split(".")
    where = found["gpu_bench"][session][5]["measurements"][1]
    for step in way:
        where = where[int(step) if isinstance(where, list) else step]
    where[int(last) if isinstance(where, list) else last] = value
    assert sentence.replace("records", session) in refusal(written(found, tmp_path))


def test_missing_fields_are_named_and_those_not_known_yet_skipped(tmp_path: Path) -> None:
    found = content()
    found["more"] = found["gpu_bench"]["more"] = found["gpu_bench"]["records"][0]["more"] = {"a": [1]}
    assert read_run(written(found, tmp_path)) == RUN
    del found["gpu_bench"]["records"][2]["nodeid"]
    told = "missing required field `nodeid` - at `$.gpu_bench.records[2]`"
    assert told in refusal(written(found, tmp_path))


# what is written is read again


@pytest.mark.parametrize("run", [replace(RUN, name="größe/1", settings={"reps": "12"}), make_run(0), make_run(3, 1)])
def test_what_is_written_is_read(run: SavedRun, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_run(run, path)
    assert read_run(path) == run
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_run(path) == run  # with the mark of byte order that some editors write


def test_text_that_is_not_unicode_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_run(replace(RUN, settings={"storage": "a\udcffb"}, machine_info={"x": object()}), path)
    found = read_run(path)
    assert (found.settings, found.records) == ({"storage": "a\\udcffb"}, RUN.records)
    assert "object at" in found.machine_info["x"]


def test_nothing_is_written_when_it_cannot_be_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.results.store.run_file.encode_run", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        write_run(RUN, tmp_path / "a" / "run.json")
    assert not list(tmp_path.iterdir())


# other schemas


NEWER = f"was written by a newer pytest-gpubench (schema 7, this one reads {SCHEMA}): update it"
OLDER = f"and this pytest-gpubench reads {SCHEMA}: save the run again"
OTHERS: tuple[object, ...] = ("1", None, [], True, 1.5, "x" * 1000)


@pytest.mark.parametrize(
    ("schema", "others", "sentence"),
    [
        (7, {"records": []}, NEWER),
        (7, {"records": "of another kind"}, NEWER),  # whether or not the rest looks as it does today
        *[(older, {}, f"has schema {older}, {OLDER}") for older in (SCHEMA - 1, 0, -(10**15))],
        *[(other, {}, "has a field that is not as it should be: Expected `int`") for other in OTHERS],
    ],
)
def test_another_schema_is_refused(schema: object, others: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    found = content()
    found["gpu_bench"] |= {"schema": schema, **others}
    path = written(found, tmp_path)
    assert refusal(path).startswith(f"{path} {sentence}")


FIELDS = {"group", "name", "fullname", "params", "param", "extra_info", "options", "stats"}


def test_the_file_has_the_form_of_pytest_benchmark() -> None:
    """Times are in seconds; what has no samples has no entry there, and is kept."""
    found = content()
    assert found.keys() == {"machine_info", "commit_info", "benchmarks", "datetime", "version", "gpu_bench"}
    assert found["gpu_bench"].keys() == {"schema", "version", "name", "settings", "records", "earlier", "left_out"}
    assert all(entry.keys() == FIELDS for entry in found["benchmarks"])
    assert not [entry for entry in found["benchmarks"] if "unmeasured" in entry["fullname"]]
    assert [record for record in found["gpu_bench"]["records"] if "unmeasured" in record["nodeid"]]
    stats = found["benchmarks"][0]["stats"]
    assert stats["data"] == pytest.approx([sample / 1e6 for sample in timing_of(RUN).samples_us], rel=1e-15)
    assert (stats["median"], stats["iterations"]) == (pytest.approx(150e-6, rel=0.05), 1)
    names = {entry["fullname"]: entry["name"] for entry in found["benchmarks"]}
    test, example = "tests/perf/test_path.py::test_path[data/a/b.pt]", "test_given triton_given (shape=(4096, 33))"
    assert names[f"{test} torch_path"] == "test_path[data/a/b.pt] torch_path"
    assert names["tests/perf/test_plain.py::test_plain"] == "test_plain"
    assert names[f"tests/perf/test_given.py::{example}"] == example


def entries_of(record: TestRecord) -> list[dict[str, Any]]:
    return list(content(replace(RUN, records=(record,)))["benchmarks"])


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
    items = [
        Measurement(timing=replace(timing, label=label, samples_us=timing.samples_us * measured), example=example)
        for label, example, measured in labels
    ]
    entries = entries_of(replace(RUN.records[0], measurements=tuple(items)))
    assert len({entry["fullname"] for entry in entries}) == len(entries) == sum(measured for *_, measured in labels)


def stats_of(samples_s: list[float]) -> tuple[dict[str, Any], Any]:
    """Return the statistics that a saved run holds of these samples, and those of pytest-benchmark."""
    timing = replace(timing_of(RUN), samples_us=tuple(1e6 * sample for sample in samples_s))
    (entry,) = entries_of(replace(RUN.records[0], measurements=(Measurement(timing=timing),)))
    real = pytest.importorskip("pytest_benchmark.stats").Stats()
    real.data = entry["stats"]["data"]
    return entry["stats"], real


@given(st.lists(st.floats(1e-7, 10), min_size=1, max_size=60))
def test_statistics_are_those_of_pytest_benchmark(data: list[float]) -> None:
    """Bencher reads mean and stddev, an older one median and iqr; github-action-benchmark ops, stddev and mean."""
    ours, real = stats_of(data)
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
        ([4.0, 10.0, 11.0, 12.0, 13.0, 14.0], "1;1"),
    ],
)
def test_outliers_are_counted(data: list[float], outliers: str) -> None:
    ours, real = stats_of(data)
    assert ours["outliers"] == real.outliers == outliers


def test_a_single_rep_has_no_nan(tmp_path: Path) -> None:
    write_run(make_run(tests=5, reps=1), tmp_path / "run.json")
    stats = json.loads((tmp_path / "run.json").read_text(), parse_constant=pytest.fail)["benchmarks"][0]["stats"]
    assert (stats["stddev"], None in stats.values()) == (0, False)


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
    assert len(csv.read_text().splitlines()) == 1 + 2 * len(content()["benchmarks"])
