"""Schemas: other versions and invalid ones are refused."""

import json
from pathlib import Path

import pytest

from pytest_gpubench.results.store.schema import SCHEMA
from tests.results.store.files import content, refusal


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
