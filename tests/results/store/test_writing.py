"""What is written is read again, and what cannot be written leaves the old file."""

import errno
import json
import math
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.errors import BadFile
from pytest_gpubench.results.store import read_run, write_run, writing
from pytest_gpubench.results.store.writing import write_whole
from tests.results.saved import make_run
from tests.results.store.files import RUN, content, failing, replace


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


def test_a_pipe_that_only_a_number_leads_to_is_written_into() -> None:
    """As that of `-o /dev/stdout | less` is: no path of the file system is its own."""
    reading, writing_end = os.pipe()
    with open(reading, "rb") as pipe:
        write_whole(b"text", Path(f"/dev/fd/{writing_end}"))
        os.close(writing_end)
        assert pipe.read() == b"text"


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
    monkeypatch.setattr(writing, "encode_run", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        write_run(RUN, tmp_path / "a" / "run.json")
    assert not list(tmp_path.iterdir())
