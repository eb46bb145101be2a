"""What the README and the pages show as output is what is printed.

`REWRITE=1 pytest tests/docs/test_outputs.py` writes what is printed now into the pages.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_gpubench.cli import main
from pytest_gpubench.report.terminal import header_line
from pytest_gpubench.results.model import Outcome, SavedRun
from pytest_gpubench.results.store import read_run
from pytest_gpubench.settings import Settings
from tests.docs.console import CPU, Console, commands, renewed, unprinted
from tests.docs.pages import PATHS, Block, blocks
from tests.docs.picture import SWEEP, sweep_picture

CONSOLE = blocks("console")
PLAYED = sorted({block.page for block in CONSOLE if not block.recorded})
RECORDED = [block for block in CONSOLE if block.recorded]
REWRITE = "REWRITE" in os.environ


def check(block: Block, outputs: dict[str, str]) -> None:
    """Compare what a block shows below its commands with what is printed; rewrite it, where that was asked for."""
    shown = dict(commands(block.text))
    for command, printed in outputs.items():
        missing = unprinted(shown[command], printed)
        if missing and not REWRITE:
            pytest.fail(f"{block.page}, line {block.line}: {command} shows\n{missing}\nand prints\n{printed}")
    if REWRITE:
        text = "\n".join(f"$ {command}\n{renewed(shown[command], printed)}" for command, printed in outputs.items())
        path = PATHS[block.page]
        path.write_text(path.read_text(encoding="utf-8").replace(block.text, text, 1), encoding="utf-8")


@pytest.mark.parametrize("page", PLAYED)
def test_commands_print_what_is_shown(
    page: str,
    pytester: pytest.Pytester,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name_cpu: Callable[[str], None],
) -> None:
    """The commands of a page are run in their order, in one folder."""
    name_cpu(CPU)
    console = Console(page, pytester, capsys, monkeypatch)
    for block in CONSOLE:
        if block.page == page and not block.recorded:
            check(block, {command: console.run(command) for command, _ in commands(block.text)})


@pytest.mark.parametrize("block", RECORDED, ids=lambda block: block.recorded)
def test_recorded_runs_are_shown_as_they_are_printed_now(
    block: Block, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs a GPU was recorded on one; it is printed from the saved run."""
    monkeypatch.setenv("COLUMNS", "120")
    path = Path(__file__).parent / "recorded" / f"{block.recorded}.json"
    run = read_run(path)
    command = next(commands(block.text))[0]
    main(["show", str(path)])
    head = header_line(run.records[0].device, Settings())
    check(block, {command: "\n".join([*error_lines(run), head, capsys.readouterr().out.partition("\n\n")[2]])})


def error_lines(run: SavedRun) -> list[str]:
    """Return what pytest prints of each broken limit."""
    lines = []
    for measurement in [each for record in run.records for each in record.measurements]:
        for verdict in measurement.verdicts:
            if verdict.outcome is Outcome.FAIL:
                first, *others = verdict.lines
                lines += [f"LimitBroken: {first}", *others]
                example = f"gpu_bench: to keep this example, paste above the test: @example({measurement.example})"
                lines += [example] if measurement.example else []
    return [f"E       {line}" for line in lines]


def test_the_picture_of_a_sweep_is_what_is_drawn_now() -> None:
    assert SWEEP.read_text(encoding="utf-8") == sweep_picture(), "take it again: python -m tests.docs.picture"
