import re
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.report.annotations import Annotation, github_lines

ROOT = "/checkout"


def place(number: int = 0, level: Literal["error", "warning"] = "error") -> Annotation:
    return Annotation(f"{ROOT}/tests/test_{number}.py", 12, f"test_{number}", "too slow", level)


@pytest.mark.parametrize(
    ("given_place", "line"),
    [
        (
            Annotation("/checkout/tests/test_a.py", 12, "test_it", "0.9x, wanted 1x: slower"),
            "::error file=tests/test_a.py,line=12,title=test_it::0.9x, wanted 1x: slower",
        ),
        (Annotation("/checkout/b/test_a.py", 1, "t", "s", "warning"), "::warning file=b/test_a.py,line=1,title=t::s"),
        (Annotation("/checkout/tests/../a.py", 1, "t", "s"), "::error file=a.py,line=1,title=t::s"),
        (Annotation("/checkout/a.py", None, "t", "s"), "::error file=a.py,title=t::s"),
        (Annotation("/elsewhere/a.py", 3, "t", "s"), "::error title=t::/elsewhere/a.py:3: s"),
        (Annotation("/checkouts/a.py", None, "t", "s"), "::error title=t::/checkouts/a.py: s"),
        (Annotation("/checkout/../a.py", 3, "t", "s"), "::error title=t::/checkout/../a.py:3: s"),
        (Annotation("/checkout/..a.py", 3, "t", "s"), "::error file=..a.py,line=3,title=t::s"),
        (Annotation("", 3, "t", "s"), "::error title=t::s"),
        (Annotation("", None, "only a title", ""), "::error title=only a title::only a title"),
        (
            Annotation("/checkout/a,b:c.py", 2, "x[1,2]::y 5%", "5 %\r\nof: a, b"),
            "::error file=a%2Cb%3Ac.py,line=2,title=x[1%2C2]%3A%3Ay 5%25::5 %25%0D%0Aof: a, b",
        ),
    ],
)
def test_a_place_is_one_command(given_place: Annotation, line: str) -> None:
    assert github_lines([given_place], ROOT) == [line]


def test_a_checkout_behind_a_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for root, path in (("real", "link"), ("link", "real")):
        line = github_lines([Annotation(str(tmp_path / path / "a.py"), 1, "t", "s")], str(tmp_path / root))
        assert line == ["::error file=a.py,line=1,title=t::s"]
    assert github_lines([Annotation("/a/b.py", 3, "t", "s")]) == ["::error title=t::/a/b.py:3: s"]  # not known


@pytest.mark.parametrize(
    ("number", "shown", "summed_up"), [(0, 0, 0), (1, 1, 0), (10, 10, 0), (11, 9, 2), (500, 9, 491)]
)
@pytest.mark.parametrize("level", ["error", "warning"])
def test_at_most_ten_of_a_level(level: Literal["error", "warning"], number: int, shown: int, summed_up: int) -> None:
    lines = github_lines([place(each, level) for each in range(number)], ROOT)
    assert len(lines) == shown + bool(summed_up)
    assert all(line.startswith(f"::{level} file=tests/test_{index}.py,") for index, line in enumerate(lines[:shown]))
    if summed_up:
        noun = "failure" if level == "error" else "warning"
        assert lines[-1].startswith(f"::{level} title={summed_up} more {noun}s of GPU benchmarks::not shown ")
        assert "test_9, test_10" in lines[-1]
        assert lines[-1].endswith(f" and {summed_up - 5} more") == (summed_up > 5)


def test_errors_come_first_and_are_counted_alone() -> None:
    places = [place(each, "warning" if each % 2 else "error") for each in range(24)]
    kinds = [line.split(" ")[0] for line in github_lines(places, ROOT)]
    assert kinds == ["::error"] * 10 + ["::warning"] * 10


@pytest.mark.parametrize(("length", "title", "sentence", "cuts"), [(255, 255, 255, 0), (5000, 255, 4000, 2)])
def test_what_is_too_long_is_cut(length: int, title: int, sentence: int, cuts: int) -> None:
    (line,) = github_lines([Annotation("", None, "t" * length, "s" * length)])
    found = re.fullmatch("::error title=(t+…?)::(s+…?)", line)
    assert found
    assert (len(found[1]), len(found[2]), line.count("…")) == (title, sentence, cuts)


@given(st.builds(Annotation, st.text(), st.none() | st.integers(), st.text(), st.text()))
def test_a_command_is_one_line_that_says_what_it_was_given(one: Annotation) -> None:
    """The line is read back as the runner does: split at the second `::`, properties at commas, then unescaped."""
    (line,) = github_lines([one], ROOT)
    assert "\r" not in line
    assert "\n" not in line
    line.encode()
    found = re.fullmatch("::error(?: (.*?))?::(.*)", line)
    assert found
    properties = dict(each.split("=", 1) for each in (found[1] or "").split(",") if each)
    assert properties.keys() <= {"file", "line", "title"}
    assert shown(unescaped(properties.get("title", ""))) == shown(one.title)
    assert shown(unescaped(found[2])).endswith(shown(one.sentence))


def unescaped(text: str) -> str:
    for escape, each in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(escape, each)
    return text


def shown(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
