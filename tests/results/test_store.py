"""What is saved is read again, by us and by what knows pytest-benchmark; what cannot be is said in one sentence."""

import errno
import gc
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results import store
from pytest_gpubench.results.model import CommitInfo, Measurement, SavedRun, Timing
from pytest_gpubench.results.store import (
    LONGEST_PART,
    MOST_BYTES,
    SCHEMA,
    Storage,
    Stored,
    device_folder,
    file_part,
    read_run,
    sample_stats,
    write_run,
)
from tests.results.saved import make_run

RUN = make_run(tests=8, reps=12)
replace = msgspec.structs.replace


def content(run: SavedRun = RUN) -> dict[str, Any]:
    """Return a file's content, parsed by what is not msgspec."""
    found: dict[str, Any] = json.loads(store.encode_run(run))
    return found


def refusal(path: Path) -> str:
    """Return why a file is not read: one sentence that begins with its name."""
    with pytest.raises(BadFile) as caught:
        read_run(path)
    sentence = str(caught.value)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    return sentence


def with_timing(run: SavedRun, timing: Timing) -> SavedRun:
    """Return a run of one test that measured only this."""
    return replace(run, records=(replace(run.records[0], measurements=(Measurement(timing=timing),)),))


def timing_of(run: SavedRun) -> Timing:
    return run.records[0].measurements[0].timing


# there and back


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    run = replace(RUN, name="größe/1", settings={"reps": "12", "timer": "wall"})
    write_run(run, path)
    assert read_run(path) == run
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]


@given(tests=st.integers(0, 15), reps=st.integers(1, 30), seed=st.integers(0, 99))
def test_any_run_survives(tests: int, reps: int, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    run = make_run(tests, reps, seed)
    write_run(run, path)
    assert read_run(path) == run


def test_folders_on_the_way_are_made_and_links_followed(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "run.json"
    link = tmp_path / "link.json"
    link.symlink_to(path)
    write_run(RUN, link)
    assert link.is_symlink()
    assert read_run(path) == RUN


def test_a_pipe_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    write_run(RUN, pipe)
    assert json.loads(reader.communicate()[0]) == content()
    assert pipe.is_fifo()


def test_the_garbage_collector_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_run(RUN, path)
    read_run(path)
    assert gc.isenabled()
    gc.disable()
    try:
        read_run(path)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_text_that_is_not_unicode_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_run(replace(RUN, settings={"storage": "a\udcffb"}, machine_info={"x": object()}), path)
    found = read_run(path)
    assert found.settings == {"storage": "a\\udcffb"}
    assert found.records == RUN.records
    assert "object at" in found.machine_info["x"]


def test_what_json_has_no_form_for_in_extra_info_is_text(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    record = replace(RUN.records[0], extra_info={"where": Path("/a"), "nan": math.nan})
    write_run(replace(RUN, records=(record,)), path)
    assert read_run(path).records[0].extra_info == {"where": "/a", "nan": None}


# what pytest-benchmark, Bencher and github-action-benchmark read

FIELDS = {"group", "name", "fullname", "params", "param", "extra_info", "options", "stats"}
STATS = {
    *("min", "max", "mean", "stddev", "rounds", "median", "iqr", "q1", "q3", "iqr_outliers", "stddev_outliers"),
    *("outliers", "ld15iqr", "hd15iqr", "ops", "total", "data", "iterations"),
}


def test_the_file_has_the_form_of_pytest_benchmark() -> None:
    found = content()
    assert found.keys() == {"machine_info", "commit_info", "benchmarks", "datetime", "version", "gpu_bench"}
    assert found["gpu_bench"].keys() == {"schema", "version", "name", "settings", "records"}
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
    (entry,) = store.benchmark_entries(record)
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
    entries = store.benchmark_entries(replace(RUN.records[0], measurements=tuple(measurements)))
    assert len({entry["fullname"] for entry in entries}) == len(entries) == sum(measured for *_, measured in labels)


def test_an_arm_keeps_its_name_when_the_other_has_no_samples() -> None:
    record = RUN.records[0]
    _, candidate = record.measurements
    nothing = Measurement(timing=replace(candidate.timing, label="torch_softmax", samples_us=()))
    (entry,) = store.benchmark_entries(replace(record, measurements=(nothing, candidate)))
    assert entry["fullname"] == store.benchmark_entries(record)[1]["fullname"]


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
    text = store.encode_run(run).decode()
    assert "NaN" not in text
    stats = json.loads(text, parse_constant=pytest.fail)["benchmarks"][0]["stats"]
    assert stats["stddev"] == 0
    assert all(value is not None for value in stats.values())


def test_bencher_finds_its_fields() -> None:
    """Bencher's adapter takes machine_info and commit_info as objects, and of each benchmark these, as finite numbers.

    Its newest takes mean and stddev, an older one median and iqr.
    """
    found = content()
    assert isinstance(found["machine_info"], dict)
    assert isinstance(found["commit_info"], dict)
    for entry in found["benchmarks"]:
        assert 0 < len(entry["fullname"]) <= 1024
        for name in ("mean", "stddev", "median", "iqr"):
            assert math.isfinite(entry["stats"][name])


def test_github_action_benchmark_finds_its_fields() -> None:
    """Its reader of pytest-benchmark takes fullname, and of stats: ops, stddev, mean, rounds."""
    for entry in content()["benchmarks"]:
        stats = entry["stats"]
        assert isinstance(entry["fullname"], str)
        assert stats["ops"] == pytest.approx(1 / stats["mean"])
        assert stats["stddev"] >= 0
        assert stats["rounds"] == len(stats["data"]) == 12


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


# files that cannot be read


def test_a_missing_file(tmp_path: Path) -> None:
    assert "cannot be read: No such file or directory" in refusal(tmp_path / "no.json")


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder: name a file in it" in refusal(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe or a device" in refusal(tmp_path / "pipe")


def test_a_name_that_no_file_can_have() -> None:
    assert "cannot be read: File name too long" in refusal(Path("x" * 300))


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(BadFile, match=r"x.json cannot be read: Permission denied; name a place that may be read$"):
        read_run(Path("x.json"))


PLAIN_PYTEST_BENCHMARK = {key: value for key, value in content().items() if key != "gpu_bench"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b"  \n", "is cut off"),
        (b"\0" * 100, "is not text"),
        (b"\x1f\x8b\x08 packed", "is not text"),
        ("{}".encode("utf-16"), "is not text"),
        (b"PK\x03\x04", "is not text"),
        (b"nonsense", "is not JSON"),
        (b"<html>", "is not JSON"),
        (b"{nonsense", "is damaged: JSON is malformed"),
        (b'{"machine_info": {"\xff\xfe": 1}}', "is damaged: its text is not UTF-8"),
        (b'{"machine_info": ' + b"[" * 100_000, "is damaged: it is nested too deeply"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "is damaged: it is nested too deeply"),
        (b"[]", "is JSON but not a saved run: it is a list"),
        (b"{}", "is JSON but not a saved run: it has no `gpu_bench` block"),
        (b'{"datetime": 5}', "is JSON but not a saved run: it has no `gpu_bench` block"),
        (b'{"benchmarks": []}', "is JSON but not a saved run: it has no `gpu_bench` block"),
        (json.dumps(PLAIN_PYTEST_BENCHMARK).encode(), "was written by pytest-benchmark, not by pytest-gpubench"),
        (b'{"benchmarks": 1, "machine_info": 1}', "was written by pytest-benchmark, not by pytest-gpubench"),
        (b'{"gpu_bench": []}', "has a field that is not as it should be: `$.gpu_bench` is no object"),
        (b'{"gpu_bench": {}}', "has no schema that can be read: `$.gpu_bench.schema` is None"),
    ],
)
def test_a_file_that_is_not_a_run(data: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(data)
    assert refusal(path).startswith(f"{path} {sentence}")


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9, 0.99999])
def test_a_truncated_file(share: float, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    data = store.encode_run(RUN)
    path.write_bytes(data[: int(share * len(data))])
    assert "is cut off after" in refusal(path)


@given(st.binary(max_size=300))
def test_any_bytes_get_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.json"
    path.write_bytes(data)
    refusal(path)


@given(st.data())
def test_a_byte_that_was_changed_is_noticed_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever became of a byte, there is a run or a sentence, and nothing else."""
    path = tmp_path_factory.getbasetemp() / "changed.json"
    damaged = bytearray(store.encode_run(make_run(tests=2, reps=2)))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    with suppress(BadFile):
        assert isinstance(read_run(path), SavedRun)


def test_a_large_file_of_nonsense_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.json"
    with open(path, "wb") as file:
        file.truncate(200 << 20)
    monkeypatch.setattr(store, "_decode", pytest.fail)
    assert "is not text" in refusal(path)


@pytest.mark.parametrize(
    ("beyond", "sentence"), [(1, "too large to be a saved run: 2 GiB, and 2 GiB"), (0, "not text")]
)
def test_a_file_beyond_what_is_read(beyond: int, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with open(path, "wb") as file:
        file.truncate(MOST_BYTES + beyond)
    assert sentence in refusal(path)


RECORD, MEASUREMENT = "$.gpu_bench.records[5]", "$.gpu_bench.records[5].measurements[1]"


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("timing.samples_us.3", None, f"Expected `float`, got `null` - at `{MEASUREMENT}.timing.samples_us[3]`"),
        ("timing.samples_us.3", "fast", f"Expected `float`, got `str` - at `{MEASUREMENT}.timing.samples_us[3]`"),
        ("timing.samples_us.3", -2.5, f"`{MEASUREMENT}.timing.samples_us[3]` is -2.5, not above 0"),
        ("timing.samples_us.0", 0, f"`{MEASUREMENT}.timing.samples_us[0]` is 0, not above 0"),
        ("timing.samples_us.11", 10**400, f"Number out of range - at `{MEASUREMENT}.timing.samples_us[11]`"),
        ("timing.samples_us", 5, f"Expected `array`, got `int` - at `{MEASUREMENT}.timing.samples_us`"),
        ("timing.kernels.0.kind", "dance", f"Invalid enum value 'dance' - at `{MEASUREMENT}.timing.kernels[0].kind`"),
        ("timing.label", None, f"Expected `str`, got `null` - at `{MEASUREMENT}.timing.label`"),
        ("speedup.ratio", 0, f"`{MEASUREMENT}.speedup.ratio` is 0, not above 0"),
        ("speedup.reference_us", -1, f"`{MEASUREMENT}.speedup.reference_us` is -1, not above 0"),
        ("verdicts.0.outcome", "maybe", f"Invalid enum value 'maybe' - at `{MEASUREMENT}.verdicts[0].outcome`"),
    ],
)
def test_a_wrong_field_is_named(place: str, value: object, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content()
    *way, last = place.split(".")
    where = found["gpu_bench"]["records"][5]["measurements"][1]
    for step in way:
        where = where[int(step) if isinstance(where, list) else step]
    where[int(last) if isinstance(where, list) else last] = value
    path.write_text(json.dumps(found))
    assert sentence in refusal(path)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none(number: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content()
    found["gpu_bench"]["records"][0]["measurements"][0]["timing"]["samples_us"][2] = "HERE"
    path.write_text(json.dumps(found).replace('"HERE"', number))
    assert ("is damaged" in refusal(path)) != ("samples_us[2]" in refusal(path))


def test_missing_fields_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content()
    del found["gpu_bench"]["records"][2]["nodeid"]
    path.write_text(json.dumps(found))
    assert "missing required field `nodeid` - at `$.gpu_bench.records[2]`" in refusal(path)


def test_fields_that_are_not_known_yet_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content()
    found["more"] = found["gpu_bench"]["more"] = found["gpu_bench"]["records"][0]["more"] = {"a": [1]}
    path.write_text(json.dumps(found))
    assert read_run(path) == RUN


# schemas


@pytest.mark.parametrize("records", [[], "of another kind"])
def test_a_newer_schema(records: object, tmp_path: Path) -> None:
    """Whether or not the rest looks as it does today."""
    path = tmp_path / "run.json"
    found = content()
    found["gpu_bench"]["schema"] = 7
    found["gpu_bench"]["records"] = records
    path.write_text(json.dumps(found))
    expected = f"was written by a newer pytest-gpubench (schema 7, this one reads up to {SCHEMA}): update it"
    assert refusal(path) == f"{path} {expected}"


@pytest.mark.parametrize("schema", ["1", None, [], True, 1.5, "x" * 1000])
def test_a_schema_that_is_no_number(schema: object, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content()
    found["gpu_bench"]["schema"] = schema
    path.write_text(json.dumps(found))
    sentence = refusal(path)
    assert "has no schema that can be read: `$.gpu_bench.schema` is" in sentence
    assert len(sentence) < len(str(path)) + 160


@pytest.mark.parametrize("schema", [0, -3, -(10**15)])
def test_a_schema_that_never_was(schema: int, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content()
    found["gpu_bench"]["schema"] = schema
    path.write_text(json.dumps(found))
    assert "which no pytest-gpubench wrote" in refusal(path)


def test_old_schemas_are_migrated_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(found: dict[str, Any]) -> dict[str, Any]:
        found["gpu_bench"]["records"] = found["gpu_bench"].pop("tests")
        return found

    def second(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, "datetime": found["gpu_bench"]["ended"]}

    path = tmp_path / "run.json"
    found = content()
    found["gpu_bench"]["tests"] = found["gpu_bench"].pop("records")
    found["gpu_bench"]["ended"] = found.pop("datetime")
    path.write_text(json.dumps(found))
    monkeypatch.setattr(store, "SCHEMA", 3)
    monkeypatch.setattr(store, "MIGRATIONS", {1: first, 2: second})
    assert read_run(path) == RUN
    del found["gpu_bench"]["tests"]
    path.write_text(json.dumps(found))
    assert "is damaged: as schema 1 it lacks what belongs there" in refusal(path)


def test_a_file_of_an_old_schema_that_looks_like_today_is_migrated_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    write_run(RUN, path)
    monkeypatch.setattr(store, "SCHEMA", 2)
    monkeypatch.setattr(store, "MIGRATIONS", {1: lambda found: {**found, "datetime": "migrated"}})
    assert read_run(path) == replace(RUN, datetime="migrated")


# writing that fails


def failing(number: int) -> Callable[..., Any]:
    def fail(*_arguments: object, **_others: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "cannot be written: No space left on device; make room there, or name another place"),
        (errno.EROFS, "cannot be written: Read-only file system; name a place that may be written"),
        (errno.EACCES, "cannot be written: Permission denied; name a place that may be written"),
        (errno.EIO, "cannot be written: Input/output error"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(
    function: str, number: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    monkeypatch.setattr(os, function, failing(number))
    with pytest.raises(BadFile) as caught:
        write_run(RUN, path)
    assert str(caught.value) == f"{path} {sentence}"
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_an_interrupt_leaves_the_old_file(function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "run.json"
    path.write_text("old")
    monkeypatch.setattr(os, function, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_run(RUN, path)
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]
    assert path.read_text() == "old"


def test_a_folder_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="cannot be written: Is a directory"):
        write_run(RUN, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFile, match="cannot be written: "):
        write_run(RUN, tmp_path / "file" / "run.json")


def test_nothing_is_written_when_it_cannot_be_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "encode_run", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        write_run(RUN, tmp_path / "a" / "run.json")
    assert not list(tmp_path.iterdir())


# the storage


def names(storage: Storage, device: str | None = None) -> list[str]:
    return [str(one.path.relative_to(storage.root)) for one in storage.runs(device)]


def test_runs_are_numbered_in_a_folder_of_their_gpu(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "deep" / "runs")
    first, second = storage.save(RUN, "main"), storage.save(RUN, "")
    other = storage.save(make_run(1, device="NVIDIA A100-SXM4-80GB"), "main")
    folder = storage.root / "NVIDIA-H200"
    assert first == folder / "0001_main.json"
    assert second == folder / "0002_01234567_20260301_123045.json"
    assert other == storage.root / "NVIDIA-A100-SXM4-80GB" / "0001_main.json"
    assert read_run(first) == replace(RUN, name="main")
    assert (storage.root / ".gitignore").read_text() == "*\n"
    assert sorted(one.name for one in folder.iterdir()) == [first.name, second.name]
    assert storage.runs()[0] == Stored(path=first, device="NVIDIA-H200", number=1, name="main")


@pytest.mark.parametrize(
    ("commit", "ended", "name"),
    [
        (CommitInfo(id="0123456789", dirty=True), "2026-03-01T12:30:45+02:00", "01234567_20260301_103045_dirty"),
        (CommitInfo(id="0123456789", dirty=None), "2026-03-01T12:30:45Z", "01234567_20260301_123045"),
        (CommitInfo(error="git is not installed"), "2026-03-01T12:30:45+00:00", "unversioned_20260301_123045"),
        (CommitInfo(id="../x"), "2026-03-01T12:30:45+00:00", "x_20260301_123045"),
    ],
)
def test_what_has_no_name_is_named_by_commit_and_time(
    commit: CommitInfo, ended: str, name: str, tmp_path: Path
) -> None:
    path = Storage(tmp_path).save(replace(RUN, commit_info=commit, datetime=ended), "")
    assert path.name == f"0001_{name}.json"


def test_a_time_that_cannot_be_read_is_now() -> None:
    assert re.fullmatch(r"01234567_\d{8}_\d{6}", store.automatic_name(replace(RUN, datetime="yesterday")))


def test_a_gitignore_is_left_as_it_is(tmp_path: Path) -> None:
    """Whoever takes it away wants the runs in the repository."""
    storage = Storage(tmp_path / "runs")
    storage.save(RUN)
    ignore = storage.root / ".gitignore"
    ignore.write_text("mine")
    storage.save(RUN)
    assert ignore.read_text() == "mine"
    ignore.unlink()
    storage.save(RUN)
    assert not ignore.exists()


def test_several_gpu_models_are_saved_apart(tmp_path: Path) -> None:
    other = make_run(2, device="NVIDIA A100").records
    run = replace(RUN, records=(RUN.records[0], *other, *RUN.records[1:]))
    storage = Storage(tmp_path)
    first, second = storage.save_each(run, "mixed")
    assert read_run(first).records == RUN.records
    assert read_run(second).records == other
    assert storage.find("mixed") == [second, first] or storage.find("mixed") == [first, second]
    assert storage.save(run, "mixed").name == "0002_mixed.json"
    assert [path.name for path in storage.find("latest")] == ["0002_mixed.json"] * 2


def test_a_run_of_nothing_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no test measured anything"):
        Storage(tmp_path / "runs").save(make_run(0))
    assert not list(tmp_path.iterdir())


def test_numbers_go_on_after_gaps_and_beyond_four_digits(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    folder = storage.save(RUN, "a").parent
    (folder / "0001_a.json").rename(folder / "9999_a.json")
    assert storage.save(RUN, "b").name == "10000_b.json"
    assert storage.save(RUN, "c").name == "10001_c.json"
    assert [one.number for one in storage.runs()] == [9999, 10000, 10001]


def test_a_number_that_is_claimed_is_not_taken(tmp_path: Path) -> None:
    """Somebody is writing, or was killed while writing: neither is overwritten."""
    storage = Storage(tmp_path)
    folder = storage.save(RUN, "a").parent
    (folder / ".0002.tmp").write_text("half a")
    assert storage.save(RUN, "b").name == "0003_b.json"
    assert [one.name for one in storage.runs()] == ["a", "b"]


def test_a_number_that_was_saved_while_we_claimed_it_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(tmp_path)
    folder = storage.save(RUN, "a").parent
    (folder / "0002_b.json").write_text("saved after our first look")
    looks = iter([2, 3, 3])
    monkeypatch.setattr(store, "_next_number", lambda folder: next(looks))
    assert storage.save(RUN, "c").name == "0003_c.json"
    assert sorted(one.name for one in folder.iterdir()) == ["0001_a.json", "0002_b.json", "0003_c.json"]


SAVE = """
import sys
from pathlib import Path
from pytest_gpubench.results.store import Storage
from tests.results.saved import make_run
run = make_run(tests=2, reps=3)
print("ready", flush=True)
sys.stdin.readline()
for number in range(40):
    Storage(Path(sys.argv[1])).save(run, f"{sys.argv[2]}-{number}")
"""


def test_processes_that_save_at_once_share_no_number(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", SAVE, tmp_path / "runs", name],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.communicate("go\n")
        assert worker.returncode == 0
    stored = Storage(tmp_path / "runs").runs()
    assert len(stored) == 120
    assert len({one.number for one in stored}) == 120
    assert {one.name for one in stored} == {f"{name}-{number}" for name in "abc" for number in range(40)}
    assert not [one for one in (tmp_path / "runs" / "NVIDIA-H200").iterdir() if one.name.startswith(".")]
    for one in stored[::30]:
        assert read_run(one.path).name == one.name


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_an_interrupt_while_saving_leaves_nothing(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    storage = Storage(tmp_path)
    folder = storage.save(RUN, "a").parent
    with monkeypatch.context() as patch:
        patch.setattr(os, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            storage.save(RUN, "b")
    assert [one.name for one in folder.iterdir()] == ["0001_a.json"]
    assert storage.save(RUN, "b").name == "0002_b.json"


@pytest.mark.parametrize(("where", "function"), [(Path, "mkdir"), (os, "fsync"), (os, "replace")])
def test_a_storage_that_cannot_be_written(
    where: object, function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, function, failing(errno.EROFS))
    with pytest.raises(BadFile, match="cannot be written: Read-only file system; name a place that may be written"):
        Storage(tmp_path / "runs").save(RUN)


def test_a_storage_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(BadFile, match="cannot be written: File exists"):
        Storage(tmp_path / "runs").save(RUN)
    with pytest.raises(BadFile, match="cannot be read: Not a directory"):
        Storage(tmp_path / "runs").runs()


# finding


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """Runs of two GPU models, the second one's between the first one's."""
    found = Storage(tmp_path / "runs")
    began = time.time() - 1000
    saves = [("NVIDIA H200", "main"), ("NVIDIA A100", "main"), ("NVIDIA H200", "feature/x"), ("NVIDIA H200", "main")]
    for index, (device, name) in enumerate(saves):
        path = found.save(make_run(1, 2, device=device), name)
        os.utime(path, (began + index, began + index))
    return found


FIRST, OTHER, FEATURE, LAST = (
    "NVIDIA-H200/0001_main.json",
    "NVIDIA-A100/0001_main.json",
    "NVIDIA-H200/0002_feature%2Fx.json",
    "NVIDIA-H200/0003_main.json",
)


def test_runs_are_listed_oldest_first(storage: Storage) -> None:
    assert names(storage) == [FIRST, OTHER, FEATURE, LAST]
    assert names(storage, "NVIDIA H200") == names(storage, "NVIDIA-H200") == [FIRST, FEATURE, LAST]
    assert names(storage, "NVIDIA B200") == []
    assert [one.name for one in storage.runs()] == ["main", "main", "feature/x", "main"]


def test_numbers_order_what_was_copied(storage: Storage) -> None:
    os.utime(storage.root / FIRST, (2e9, 2e9))
    assert names(storage) == [OTHER, FIRST, FEATURE, LAST]


@pytest.mark.parametrize(
    ("which", "found"),
    [
        ("latest", {LAST, OTHER}),
        ("main", {LAST, OTHER}),
        (" main ", {LAST, OTHER}),
        ("feature/x", {FEATURE}),
        ("1", {FIRST, OTHER}),
        ("0001", {FIRST, OTHER}),
        ("3", {LAST}),
    ],
)
def test_runs_are_found(which: str, found: set[str], storage: Storage) -> None:
    assert {str(path.relative_to(storage.root)) for path in storage.find(which)} == found


def test_a_name_comes_before_a_number_and_a_file(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage.find("1") != [storage.save(RUN, "1")]
    assert storage.find("1") == [storage.root / "NVIDIA-H200" / "0004_1.json"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main").write_text("")
    assert storage.root / LAST in storage.find("main")


def test_a_file_is_found_wherever_it_is(storage: Storage, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.json"
    shutil.copy(storage.root / FIRST, path)
    assert storage.find(str(path)) == [path]
    assert Storage(tmp_path / "none").find(str(path)) == [path]


@pytest.mark.parametrize("which", ["mai", "main_", "9", "no/such/file.json", "", "\x1b[31m", "x" * 300, "²"])
def test_what_is_not_there_is_told_with_what_is(which: str, storage: Storage) -> None:
    with pytest.raises(
        BadFile, match=r"there is no saved run and no file .* has 4 runs: 0003 \(main\), 0002"
    ) as caught:
        storage.find(which)
    assert str(caught.value).isprintable()


def test_of_many_runs_the_newest_are_named(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    for number in range(20):
        storage.save(make_run(1, 1), f"run{number}")
    with pytest.raises(BadFile, match=r"0020 \(run19\), .*0013 \(run12\), 12 more$"):
        storage.find("main")


def test_where_nothing_is_saved(tmp_path: Path) -> None:
    assert Storage(tmp_path / "no").runs() == []
    with pytest.raises(BadFile, match="nothing is saved yet: save one with --gpu-bench-save=NAME"):
        Storage(tmp_path / "no").find("latest")
    assert not list(tmp_path.iterdir())


def test_what_is_not_a_run_is_passed_over(storage: Storage) -> None:
    expected = names(storage)
    (storage.root / "notes.txt").write_text("")
    (storage.root / "NVIDIA-H200" / "readme_1.json").write_text("")
    (storage.root / "NVIDIA-H200" / "0009_main.json.bak").write_text("")
    (storage.root / "0007_main.json").write_text("")
    assert names(storage) == expected


# names


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("main", "main"),
        ("v1.2+cu12 (fast)", "v1.2+cu12 %28fast%29"),
        ("feature/x", "feature%2Fx"),
        ("../../etc/passwd", "..%2F..%2Fetc%2Fpasswd"),
        ("größe", "größe"),
        ("gro\u0308ße", "größe"),
        ("50%", "50%25"),
        ("a\nb\0", "a%0Ab%00"),
        ("   ", ""),
        ("x" * 999, "x" * 163 + "-0000000000000000"),
        ("x" * 162 + "//" + "x" * 99, "x" * 162 + "-0000000000000000"),
        ("x" * 160 + "//" + "x" * 99, "x" * 160 + "%2F-0000000000000000"),
    ],
)
def test_a_name_in_the_name_of_a_file(name: str, part: str) -> None:
    """A long one is cut between characters, never within what stands for one."""
    assert re.sub("-[0-9a-f]{16}$", "-0000000000000000", file_part(name)) == part


@given(st.text(max_size=300))
def test_any_name_fits_the_name_of_a_file(name: str) -> None:
    part = file_part(name)
    assert len(part.encode()) <= LONGEST_PART
    assert "/" not in part
    assert "\0" not in part


@given(st.text(st.characters(codec="ascii"), max_size=60), st.text(st.characters(codec="ascii"), max_size=60))
def test_no_two_names_share_a_file(one: str, other: str) -> None:
    assert (file_part(one) == file_part(other)) == (one.strip() == other.strip())


@pytest.mark.parametrize(("length", "hashed"), [(LONGEST_PART, False), (LONGEST_PART + 1, True), (5000, True)])
def test_a_long_name_is_cut_and_still_found(length: int, hashed: bool, tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    name = "n" * length
    path = storage.save(make_run(1, 1), name)
    assert (path.name == f"0001_{name}.json") is not hashed
    storage.save(make_run(1, 1), name + "m")
    assert storage.find(name) == [path]
    assert read_run(path).name == name


@given(st.text(min_size=1, max_size=60).filter(lambda text: text.strip()))
def test_whatever_the_name_it_is_found(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.mktemp("names")
    path = Storage(root).save(make_run(1, 1), name)
    assert path.parent.parent == root
    assert Storage(root).find(name) == [path]
    (stored,) = Storage(root).runs()
    assert file_part(stored.name) == file_part(name)


@pytest.mark.parametrize(
    ("device", "folder"),
    [
        ("NVIDIA H200", "NVIDIA-H200"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
        ("Intel(R) Xeon(R) @ 2.0GHz", "Intel-R-Xeon-R-2.0GHz"),
        ("../..", "unknown"),
        ("", "unknown"),
        ("A" * 300, "A" * 80),
    ],
)
def test_the_folder_of_a_device(device: str, folder: str) -> None:
    assert device_folder(device) == folder
    assert device_folder(folder) == folder
