"""Output of commands: tables of the terminal, and the message of a file that is written."""

import re
from pathlib import Path

import pytest

from pytest_gpubench.cli.show import FORMS
from pytest_gpubench.results.store import write_run
from tests.cli.stored import Command, fill
from tests.results.saved import make_run


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("words", [("list",), ("compare", "old.json", "new.json"), ("history", "softmax")])
def test_tables_fit_the_terminal(
    words: tuple[str, ...], width: int, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tests=7, slower=1.2)
    write_run(make_run(tests=7), Path("old.json"))
    write_run(run, Path("new.json"))
    fill(Path(".gpu_benchmarks"), days=8, slower_from=4)
    monkeypatch.setenv("COLUMNS", str(width))
    out = command(*words)[1]
    tables = re.findall(r"[^\n]+\n─+\n(?:[^\n]+\n)+?(?=\n|[^\n]*\d+ run|$)", out)
    assert tables
    wide = [line for text in tables for line in text.splitlines() if len(line) > width]
    assert [line for line in wide if not line.startswith("tests/perf/test_long.py::test_long[")] == []


# messages of a file; none where a script reads standard output


@pytest.mark.parametrize("form", FORMS)
def test_a_form_in_a_file_says_what_is_in_it_and_on_standard_output_is_nothing_else(
    form: str, command: Command
) -> None:
    write_run(make_run(tests=7), Path("run.json"))
    assert command("show", "run.json", f"--{form}", "out") == (0, "", f"out: 7 tests as {form}\n")
    assert sorted(path.name for path in Path().iterdir()) == ["out", "run.json"]
    for words in ((f"--{form}",), (f"--{form}", "-"), ("--format", form)):
        assert command("show", "run.json", *words) == (0, Path("out").read_text(encoding="utf-8"), "")


def test_a_page_and_a_summary_are_both_told(command: Command) -> None:
    write_run(make_run(tests=7), Path("run.json"))
    found = command("show", "run.json", "--html", "page.html", "--markdown", "page.md")
    assert found == (0, "", "page.html: 7 tests as html\npage.md: 7 tests as markdown\n")
    status, out, err = command("show", "run.json", "--html", "page.html", "--markdown", "-")
    assert (status, out, err) == (0, Path("page.md").read_text(encoding="utf-8"), "page.html: 7 tests as html\n")


def test_a_name_that_a_terminal_would_obey_is_shown(command: Command) -> None:
    """Only the tests that were asked for are counted."""
    write_run(make_run(tests=7), Path("run.json"))
    err = command("show", "run.json", "--test", "softmax", "--csv", "a\x1b[2J")[2]
    assert "\x1b" not in err
    assert err.endswith(": 1 test as csv\n")
