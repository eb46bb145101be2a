"""Files are written whole or not at all."""

import errno
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_gpubench import BadFile
from pytest_gpubench.results.files import replace_file, trace_name, write_text


def failing(number: int | None) -> Callable[..., Any]:
    def fail(*_arguments: object, **_others: object) -> None:
        raise KeyboardInterrupt if number is None else OSError(number, os.strerror(number))

    return fail


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_folders_on_the_way_are_made_and_links_followed(tmp_path: Path) -> None:
    path, link = tmp_path / "a" / "b" / "file", tmp_path / "link"
    link.symlink_to(path)
    write_text("größe \udcff\n", link)
    assert link.is_symlink()
    assert path.read_bytes() == "größe \\udcff\n".encode()  # a lone surrogate is escaped


OWNED = partial(replace_file, data=b"data", mode=0o644)


@pytest.mark.parametrize(
    ("write", "umask", "mode"),
    [(partial(write_text, "data"), 0o027, 0o640), (OWNED, 0, 0o644), (OWNED, 0o027, 0o640)],
)
def test_others_may_read_a_file_as_the_umask_says_and_not_write_what_is_its_owners(
    write: Callable[[Path], None], umask: int, mode: int, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "file")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_a_pipe_that_only_a_number_leads_to_is_written_into() -> None:
    """As that of `-o /dev/stdout | less` is: no path of the file system is its own."""
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:
        write_text("data", Path(f"/dev/fd/{writing}"))
        os.close(writing)
        assert pipe.read() == b"data"


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "cannot be written: No space left on device; make room there, or name another place"),
        (errno.EROFS, "cannot be written: Read-only file system; name a place that may be written"),
        (errno.EACCES, "cannot be written: Permission denied; name a place that may be written"),
        (errno.EIO, "cannot be written: Input/output error"),
        (None, ""),  # Ctrl-C
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(
    function: str, number: int | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    monkeypatch.setattr(os, function, failing(number))
    with pytest.raises(BadFile if number else KeyboardInterrupt) as caught:
        write_text("new", path)
    assert not number or str(caught.value) == f"{path} {sentence}"
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("folder", "Is a directory"),
        (".", "Is a directory"),
        ("/", "Is a directory"),
        ("file/x.csv", "Not a directory"),
        ("x" * 256, "File name too long"),
        ("a\0b", ".*embedded null .*"),
    ],
)
def test_a_path_that_cannot_be_written_is_told(
    target: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").write_text("as before")
    with pytest.raises(BadFile, match=f"cannot be written: {reason}$") as caught:
        write_text("text", Path(target))
    assert str(caught.value).isprintable()
    assert names(tmp_path) == ["file", "folder"]
    assert Path("file").read_text() == "as before"


NODEID = "tests/test_a.py::test_it[a/b]"


@given(st.text(), st.text(), st.integers(1, 99), st.text())
@example("test_a.py::test_it[" + "x" * 300, "ä" * 300, 1, "\ud800")
def test_a_name_is_safe_on_any_file_system(nodeid: str, label: str, number: int, example: str) -> None:
    name = trace_name(nodeid, label, number, example)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*\.json\.gz", name)
    assert len(name) <= 200
    assert trace_name(f"{nodeid}!", label, number, example) != name


@pytest.mark.parametrize(
    "others",
    [
        ("tests/test_a.py::test_it[a-b]", "f", 1, ""),  # the same once it is safe
        ("tests/TEST_a.py::test_it[a/b]", "f", 1, ""),  # the same where capitals are
        ("other/test_a.py::test_it[a/b]", "f", 1, ""),
        (NODEID, "g", 1, ""),
        (NODEID, "f", 2, ""),
        (NODEID, "f", 1, "x=1"),
    ],
)
def test_no_two_calls_share_a_name(others: tuple[str, str, int, str]) -> None:
    assert trace_name(NODEID, "f").lower() != trace_name(*others).lower()


def test_a_name_can_be_read() -> None:
    assert trace_name("tests/deep/test_a.py::test_it[4096]", "softmax").startswith("test_a.test_it-4096-softmax-")
