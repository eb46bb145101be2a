"""The README and the pages, and the blocks of code in them."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest_gpubench

PACKAGE = Path(pytest_gpubench.__file__).parent
README = PACKAGE.with_name("README.md")
PAGES = sorted((PACKAGE / "docs").glob("*.md"))
PATHS = {path.stem: path for path in (README, *PAGES)}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PATHS.items()}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    info: str
    """What follows the fence: the language, and where output is of a recorded run, `recorded=NAME`."""
    text: str

    @property
    def recorded(self) -> str:
        return self.info.partition("recorded=")[2]

    @property
    def file(self) -> str:
        """The name of a test file: that of a comment on its first line, or one of the page and the line."""
        named = re.match(r"# (test_\w+\.py)\n", self.text)
        return named[1] if named else f"test_{self.page}_{self.line}.py"


def blocks(language: str) -> list[Block]:
    """Return the blocks of a language, of all pages."""
    return [
        Block(page, text[: found.start()].count("\n") + 1, found["info"], found["text"])
        for page, text in TEXTS.items()
        for found in re.finditer(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if found["info"].partition(" ")[0] == language
    ]
