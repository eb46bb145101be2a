"""A newer schema is refused, an older one migrated, and what is none is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.results.model import VALIDITY
from pytest_gpubench.results.store import read_run, schema, write_run
from pytest_gpubench.results.store.schema import SCHEMA
from tests.results.store.files import RUN, content, refusal, replace


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
    found["gpu_bench"]["schema"] = 1
    path.write_text(json.dumps(found))
    monkeypatch.setattr(schema, "SCHEMA", 3)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: first, 2: second})
    assert read_run(path) == RUN
    del found["gpu_bench"]["tests"]
    path.write_text(json.dumps(found))
    assert "is damaged: as schema 1 it lacks what belongs there" in refusal(path)


def test_a_file_of_an_old_schema_that_looks_like_today_is_migrated_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    write_run(RUN, path)
    monkeypatch.setattr(schema, "SCHEMA", SCHEMA + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", {SCHEMA: lambda found: {**found, "datetime": "migrated"}})
    assert read_run(path) == replace(RUN, datetime="migrated")


def test_verdicts_of_schema_1_have_their_limit_in_one_text(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content()
    found["gpu_bench"]["schema"] = 1
    verdicts = [
        verdict
        for record in found["gpu_bench"]["records"]
        for measurement in record.get("measurements", ())
        for verdict in measurement.get("verdicts", ())
    ]
    for verdict in verdicts:
        verdict["limit"] = f"{verdict.pop('kind')}={verdict.pop('asked')}"
    assert verdicts
    path.write_text(json.dumps(found))
    assert read_run(path) == RUN
    verdicts[0]["limit"] = "nobody else on the GPU"
    path.write_text(json.dumps(found))
    whole = next(each for record in read_run(path).records for item in record.measurements for each in item.verdicts)
    assert (whole.kind, whole.limit) == (VALIDITY, "nobody else on the GPU")


def test_a_run_of_schema_2_has_one_session(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content()
    found["gpu_bench"]["schema"] = 2
    del found["gpu_bench"]["earlier"]
    path.write_text(json.dumps(found))
    assert read_run(path) == RUN
    assert RUN.earlier == ()
