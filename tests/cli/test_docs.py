from pathlib import Path

import pytest

import pytest_gpubench
from tests.cli.stored import Command

PAGES = {path.stem: path for path in sorted((Path(pytest_gpubench.__file__).parent / "docs").glob("*.md"))}


def test_without_a_topic_each_page_has_a_line(command: Command) -> None:
    status, out, _ = command("docs")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == list(PAGES)


@pytest.mark.parametrize("topic", PAGES)
def test_a_page_that_is_piped_is_markdown(topic: str, command: Command) -> None:
    assert command("docs", topic) == (0, PAGES[topic].read_text(encoding="utf-8"), "")


def test_a_page_on_a_terminal_is_laid_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, out, _ = command("docs", "limits")
    assert "max_kernels=1" in out
    assert "| ---" not in out
    assert "](" not in out


def test_an_unknown_topic_is_answered_with_the_legal_ones(command: Command) -> None:
    said = f"pytest-gpubench docs: there is no page 'limit'; the pages are {', '.join(PAGES)}\n"
    assert command("docs", "limit") == (2, "", said)
