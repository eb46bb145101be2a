"""Run files: reading, writing, and one sentence for each file that cannot be read."""

import errno
import gc
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import BadFile
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import read_run, run_file, write_run
from tests.results.saved import make_run
from tests.results.store.files import RUN, content, refusal, replace
from tests.results.test_files import failing

SCHEMA = 3


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


def test_a_missing_file(tmp_path: Path) -> None:
    assert "cannot be read: No such file or directory" in refusal(tmp_path / "no.json")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        assert f"{path} is not a file: name one that --gpu-bench-save" in refusal(path)


def test_a_name_that_no_file_can_have() -> None:
    assert "cannot be read: File name too long" in refusal(Path("x" * 300))


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(BadFile, match=r"x.json cannot be read: Permission denied; name a place that may be read$"):
        read_run(Path("x.json"))


NO_RUN, NO_BLOCK = "is damaged, or no saved run: ", "has no `gpu_bench` block, as a file of pytest-benchmark has none"
PLAIN_PYTEST_BENCHMARK = {key: value for key, value in content().items() if key != "gpu_bench"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", f"{NO_RUN}Input data was truncated; save or copy it again, or name another"),
        (b"\0" * 100, f"{NO_RUN}JSON is malformed: invalid character (byte 0)"),
        (b"\x1f\x8b\x08 packed", f"{NO_RUN}JSON is malformed: invalid character (byte 0)"),
        ("{}".encode("utf-16"), f"{NO_RUN}JSON is malformed"),
        (b"nonsense", f"{NO_RUN}JSON is malformed"),
        (b"{nonsense", f"{NO_RUN}JSON is malformed"),
        (b'{"machine_info": {"\xff\xfe": 1}}', f"{NO_RUN}'utf-8' codec can't decode byte 0xff"),
        (b'{"machine_info": ' + b"[" * 100_000, f"{NO_RUN}maximum recursion depth exceeded"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", f"{NO_RUN}maximum recursion depth exceeded"),
        (b"[]", "has a field that is not as it should be: Expected `object`, got `array`"),
        (b"{}", NO_BLOCK),
        (b'{"datetime": 5}', NO_BLOCK),
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


MEASUREMENT = "$.gpu_bench.records[5].measurements[1]"
LABEL, NODEID = RUN.records[5].measurements[1].timing.label, RUN.records[5].nodeid


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("timing.samples_us.3", None, f"Expected `float`, got `null` - at `{MEASUREMENT}.timing.samples_us[3]`"),
        ("timing.samples_us.3", -2.5, f"measured: -2.5 for {LABEL} in {NODEID}; save the run again"),
        ("timing.samples_us.1", 1e308, f"measured: 1e+308 for {LABEL} in {NODEID}; save the run again"),
        ("speedup.reference_us", 1e308, f"measured: 1e+308 for {LABEL} in {NODEID}; save the run again"),
        ("timing.samples_us.0", 0, f"measured: 0 for {LABEL} in {NODEID}; save the run again"),
        ("timing.samples_us.11", 10**400, f"Number out of range - at `{MEASUREMENT}.timing.samples_us[11]`"),
        ("timing.kernels.0.kind", "dance", f"Invalid enum value 'dance' - at `{MEASUREMENT}.timing.kernels[0].kind`"),
        ("speedup.ratio", 0, f"measured: 0 for {LABEL} in {NODEID}; save the run again"),
        ("speedup.reference_us", -1, f"measured: -1 for {LABEL} in {NODEID}; save the run again"),
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


def test_a_number_of_an_earlier_session_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content(replace(RUN, earlier=RUN.records))
    found["gpu_bench"]["earlier"][5]["measurements"][1]["timing"]["samples_us"][0] = -1
    path.write_text(json.dumps(found))
    assert f"measured: -1 for {LABEL} in {NODEID}" in refusal(path)


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


# what is written is read again


@pytest.mark.parametrize("run", [replace(RUN, name="größe/1", settings={"reps": "12"}), make_run(0), make_run(3, 1)])
def test_what_is_written_is_read(run: SavedRun, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_run(run, path)
    assert read_run(path) == run
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]


def test_a_mark_of_byte_order_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_run(make_run(), path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_run(path) == make_run()


def test_text_that_is_not_unicode_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_run(replace(RUN, settings={"storage": "a\udcffb"}, machine_info={"x": object()}), path)
    found = read_run(path)
    assert found.settings == {"storage": "a\\udcffb"}
    assert found.records == RUN.records
    assert "object at" in found.machine_info["x"]


def test_nothing_is_written_when_it_cannot_be_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "encode_run", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        write_run(RUN, tmp_path / "a" / "run.json")
    assert not list(tmp_path.iterdir())


# other schemas


def refused(tmp_path: Path, schema: object, **others: object) -> str:
    """Return why a file of this schema is not read, without its name."""
    path, found = tmp_path / "run.json", content()
    found["gpu_bench"] |= {"schema": schema, **others}
    path.write_text(json.dumps(found))
    return refusal(path).removeprefix(f"{path} ")


@pytest.mark.parametrize("records", [[], "of another kind"])
def test_a_newer_schema(records: object, tmp_path: Path) -> None:
    """Whether or not the rest looks as it does today."""
    expected = f"was written by a newer pytest-gpubench (schema 7, this one reads {SCHEMA}): update it"
    assert refused(tmp_path, 7, records=records) == expected


@pytest.mark.parametrize("schema", ["1", None, [], True, 1.5, "x" * 1000])
def test_a_schema_that_is_no_number(schema: object, tmp_path: Path) -> None:
    assert refused(tmp_path, schema).startswith("has a field that is not as it should be: Expected `int`")


@pytest.mark.parametrize("schema", [SCHEMA - 1, 0, -(10**15)])
def test_an_older_schema(schema: int, tmp_path: Path) -> None:
    expected = f"has schema {schema}, and this pytest-gpubench reads {SCHEMA}: save the run again"
    assert refused(tmp_path, schema) == expected
