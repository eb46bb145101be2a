"""The note about the process that holds a lock."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pytest_gpubench.gpu.holder import Holder


def note(**changes: Any) -> Holder:
    return replace(Holder.of_this_process("x"), **changes)


@pytest.mark.parametrize(
    ("changes", "local", "ended"),
    [
        ({}, True, False),
        ({"pid": 2**30}, True, True),
        ({"started": 1}, True, True),  # the number was used again
        ({"started": None}, True, False),
        ({"host": "elsewhere", "pid": 2**30}, False, False),
        ({"namespace": "pid:[1]", "pid": 2**30}, False, False),
        ({"namespace": None}, False, False),
    ],
)
def test_what_is_known_of_a_holder(changes: dict[str, object], local: bool, ended: bool) -> None:
    holder = note(**changes)
    assert (holder.is_local, holder.has_ended) == (local, ended)
    assert ("in a container there" in str(holder)) == (not local)


def test_a_note_cannot_write_on_the_terminal() -> None:
    text = str(note(command="\x1b[2J" + "x" * 500, user="a\nb", since_s=1e300))
    assert text.isprintable()
    assert len(text) < 300
    assert "since an unknown time" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["/usr/bin/pytest", "-n", "2"], "pytest -n 2"),
        (["/lib/pytest/__main__.py", "tests"], "pytest tests"),
        (["-c"], "-c"),
        ([], "python"),
    ],
)
def test_a_command_is_written_as_it_was_typed(monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str) -> None:
    monkeypatch.setattr("sys.argv", arguments)
    assert Holder.of_this_process().command == text


def test_every_text_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name has to be UTF-8."""
    monkeypatch.setenv("LOGNAME", "\udcff")
    found = Holder.of_this_process("\udcff", "\udcff")
    assert msgspec.json.decode(msgspec.json.encode(found), type=Holder) == found


def test_long_texts_are_cut() -> None:
    assert Holder.of_this_process("x" * 80).test == "x" * 80
    assert Holder.of_this_process("x" * 81).test == "x" * 79 + "…"
