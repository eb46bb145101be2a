import io

import pytest
from rich.console import Console
from rich.text import Text

from pytest_gpubench.report import comparison, table
from pytest_gpubench.report.layout import lay_out
from pytest_gpubench.report.rows import choose_comparisons, choose_measurements
from pytest_gpubench.settings import Settings
from tests.results.saved import make_run


def make_console(color: bool) -> Console:
    system = "standard" if color else None
    return Console(file=io.StringIO(), width=1000, force_terminal=color, color_system=system, highlight=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("slower", [1.0, 1.26])
@pytest.mark.parametrize("tests", [1, 5, 14])
def test_the_letters_are_those_that_rich_prints(tests: int, slower: float, color: bool) -> None:
    records, columns = make_run(tests=tests, slower=slower).records, ("median", "interval", "limit", "speedup", "flags")
    for made in (
        table.build("title [x]", choose_measurements(records, False), Settings()),
        table.build("", choose_measurements(records, True), Settings(columns=columns)),
        comparison.build("", choose_comparisons(records, False), "auto", 60),
        comparison.build("", choose_comparisons(records, True), "auto", 20),
    ):
        console = make_console(color)
        console.print(made)
        assert isinstance(console.file, io.StringIO)
        printed, laid_out = console.file.getvalue(), lay_out(made, make_console(color)) + "\n"
        assert Text.from_ansi(laid_out).plain == Text.from_ansi(printed).plain
        assert color or laid_out == printed
        assert ("\x1b[" in laid_out) is color
