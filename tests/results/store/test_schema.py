"""Another schema is refused, and what is none is told."""

import json
from pathlib import Path

import pytest

from pytest_gpubench.results.store.schema import SCHEMA
from tests.results.store.files import content, refusal


@pytest.mark.parametrize("records", [[], "of another kind"])
def test_a_newer_schema(records: object, tmp_path: Path) -> None:
    """Whether or not the rest looks as it does today."""
    path = tmp_path / "run.json"
    found = content()
    found["gpu_bench"]["schema"] = 7
    found["gpu_bench"]["records"] = records
    path.write_text(json.dumps(found))
    expected = f"was written by a newer pytest-gpubench (schema 7, this one reads {SCHEMA}): update it"
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


@pytest.mark.parametrize("schema", [SCHEMA - 1, 0, -(10**15)])
def test_an_older_schema(schema: int, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    found = content()
    found["gpu_bench"]["schema"] = schema
    path.write_text(json.dumps(found))
    assert refusal(path) == f"{path} has schema {schema}, and this pytest-gpubench reads {SCHEMA}: save the run again"
