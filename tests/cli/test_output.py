import pytest

from pytest_gpubench.cli.output import shortened, table, width_of


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
