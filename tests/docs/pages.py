"""The README and the pages, and the blocks of code in them."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest_gpubench

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((Path(pytest_gpubench.__file__).parent / "docs").glob("*.md"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in (README, *PAGES)}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    info: str
    """What stands behind the fence: the language, and what the tests are told of it."""
    text: str

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]


def blocks(language: str) -> list[Block]:
    """Return the blocks of a language, of all pages."""
    return [
        Block(page, text[: found.start()].count("\n") + 1, found["info"], found["text"])
        for page, text in TEXTS.items()
        for found in re.finditer(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if found["info"].partition(" ")[0] == language
    ]
