"""Tables, names and foreign text as Markdown, in which no text becomes markup, a link or a mention."""

import re
from collections.abc import Iterable, Sequence

from pytest_gpubench.units import printable, shortened_inside

LONGEST_CELL = 300
BREAK = "\u200b"
"""A space without width, which `printable` leaves in no text: links and mentions are not seen across it."""
LINKS = re.compile(r"(?<=@)(?=\w)|(?<=:)(?=//)|(?<=\bwww)(?=\.)", re.IGNORECASE)
"""Positions at which addresses are recognised, even within <code>."""
REFERENCES = re.compile(r"(?<=[#!~%&$])(?=\w)|(?<=:)(?=[\w+-]+:)|(?<=\bGH-)(?=\d)", re.IGNORECASE)
"""Positions at which GitHub and GitLab recognise issues, labels, emoji and the like, though not within <code>."""
ESCAPES = str.maketrans(
    {each: f"&#{ord(each)};" for each in f'&<>|`\\"#{BREAK}'}
    | {each: f"\\{each}" for each in "*[]~"}
    | {"$": "<span>$</span>"}
)
"""A dollar begins a formula unless it is alone in its element: "Writing mathematical expressions" in GitHub's
documentation. Entities, as nothing else keeps a table's cells apart: "GitHub Flavored Markdown Spec", "Tables"."""
UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
"""One that is not within a word, where it can stand for emphasis."""


def table_head(headers: Sequence[str], right: Sequence[str] = ()) -> str:
    """Return the two lines that a table begins with."""
    return f"{table_row(headers)}\n{table_row('--:' if header in right else '---' for header in headers)}"


def table_row(cells: Iterable[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def text(value: str, most: int = LONGEST_CELL) -> str:
    """Return a text from outside as one that is nothing but text, with its middle left out where it is too long."""
    return _escaped(REFERENCES.sub(BREAK, LINKS.sub(BREAK, printable(shortened_inside(value, most)))))


def one_line(value: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(value.split())


def code(value: str, most: int = LONGEST_CELL) -> str:
    """Return a name from outside in the typeface of code; empty for none."""
    return f"<code>{_escaped(LINKS.sub(BREAK, printable(shortened_inside(value, most))))}</code>" if value else ""


def _escaped(value: str) -> str:
    return UNDERSCORE.sub(r"\\_", value.translate(ESCAPES))
