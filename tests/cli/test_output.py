from pathlib import Path

import pytest

from pytest_gpubench.cli.output import shortened, table, width_of, write_to
from pytest_gpubench.errors import BadFile
from pytest_gpubench.units import printable


def test_a_table_has_columns() -> None:
    assert table(["a", "bb"], [["x", "1"], ["yyy", "22"]], right=(1,)) == ["a    bb", "x     1", "yyy  22"]


def test_control_characters_are_escaped() -> None:
    assert table(["a"], [["\x1b[31mred\n"]])[1] == "\\x1b[31mred\\n"


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("größe", 5), ("名前", 4), ("e\u0301", 1), ("", 0)])
def test_widths(text: str, width: int) -> None:
    assert width_of(text) == width


@pytest.mark.parametrize("length", [59, 60, 61, 300])
def test_long_names_lose_their_middle(length: int) -> None:
    text = "a" * (length // 2) + "b" * (length - length // 2)
    short = shortened(text, 60)
    assert len(short) == min(length, 60)
    assert (short == text) is (length <= 60)
    assert (short[0], short[-1]) == ("a", "b")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("folder", "Is a directory"),
        (".", "Is a directory"),
        ("/", "Is a directory"),
        ("file/x.csv", "Not a directory"),
        ("x" * 256, "File name too long"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_file_that_cannot_be_written_leaves_nothing(
    target: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").write_text("as before")
    with pytest.raises(BadFile) as caught:
        write_to("text", target)
    assert str(caught.value) == f"{printable(target)} cannot be written: {reason}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert Path("file").read_text() == "as before"


@pytest.mark.parametrize("target", ["new/folder/x.html", "x" * 255, "link"])
def test_a_file_is_written_wherever_a_run_is(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("led_to")
    write_to("gr\xf6\xdfe \udcff\n", target)
    assert Path(target).read_bytes() == b"gr\xc3\xb6\xc3\x9fe \\udcff\n"
    assert Path("link").is_symlink()
    assert Path("led_to").exists() is (target == "link")
