"""What is written is read again."""

import errno
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.results.store import read_run, reading, write_run
from tests.results.saved import make_run
from tests.results.store.files import RUN, replace
from tests.results.test_files import failing


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


def test_nothing_is_written_when_it_cannot_be_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "encode_run", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        write_run(RUN, tmp_path / "a" / "run.json")
    assert not list(tmp_path.iterdir())
