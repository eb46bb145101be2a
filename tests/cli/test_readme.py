"""The README's table of commands has all of them, and its prose fits a terminal."""

import re
from pathlib import Path

from pytest_gpubench.cli import MODULES

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
WIDTH = 120


def test_every_command_is_in_the_table() -> None:
    table = README.split("| command | what it does |\n")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) == sorted(MODULES)


def test_prose_is_wrapped() -> None:
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > WIDTH and not line.startswith("|")] == []
