import re
from pathlib import Path

import pytest

from pytest_gpubench.cli.output import table
from pytest_gpubench.report.layout import Column
from pytest_gpubench.results.store import write_run
from tests.cli.stored import Command, fill
from tests.results.saved import make_run


def test_a_table_has_columns() -> None:
    assert table([Column("a", ["x", "yyy"]), Column("bb", ["1", "22"], right=True)]) == [
        *("a    bb", "───────", "x     1", "yyy  22")
    ]


def test_control_characters_are_escaped() -> None:
    assert table([Column("a", ["\x1b[31mred\n"])])[2] == "\\x1b[31mred\\n"


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
    assert [line for text in tables for line in text.splitlines() if len(line) > width] == []
