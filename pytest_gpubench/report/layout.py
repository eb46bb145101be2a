"""Lay out a table on a screen: the columns that fit, and lines of their own for what must be read whole."""

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pytest_gpubench.units import printable

WIDTH = 120
"""Letters in a line where standard output is no terminal, as in a file."""
GAP = 2
WIDE = 24
"""Letters from which on names of functions cost more room than intervals are worth."""
TEST_ID = re.compile(r"::[^\s\[]+\[.*?\](?![^\s,;:)])")
SPACE = "\0"
"""Stands for the spaces of an id while a sentence is broken into lines."""
NOT_UNICODE = str.maketrans(
    {"…": "~", "─": "-", "█": "#", "│": "|", "└": "+", "·": "."} | dict.fromkeys("▏▎▍▌▋▊▉", "#")
)


@dataclass(frozen=True)
class Screen:
    """The terminal or file that tables are printed on."""

    width: int = WIDTH
    color: bool = False
    encoding: str = "utf-8"

    @classmethod
    def current(cls, color: bool) -> "Screen":
        """Return the terminal or file behind standard output; the environment variable COLUMNS overrules its width."""
        width = shutil.get_terminal_size((WIDTH, 24)).columns
        return cls(width, color, getattr(sys.stdout, "encoding", None) or "utf-8")

    def encoded(self, text: str) -> str:
        """Return a text without the letters that the screen cannot show."""
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            return text.translate(NOT_UNICODE).encode(self.encoding, "replace").decode(self.encoding)
        return text

    def wrapped(self, sentence: str) -> list[str]:
        """Return a sentence in lines that fit, broken between words, but not inside of a test's id."""
        text = TEST_ID.sub(lambda found: found[0].replace(" ", SPACE), printable(sentence))
        width = max(1, self.width)
        lines = textwrap.wrap(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        return [line.replace(SPACE, " ") for line in lines]


@dataclass(frozen=True)
class Column:
    """A column of a table; each cell is one line."""

    header: str
    cells: Sequence[str]
    styles: Sequence[str] = ()
    """rich's style of each cell; none where this is empty."""
    right: bool = False
    least: int = 0
    """The width to which long cells may be shortened; 0: they may not."""
    rank: int = 0
    """Columns of a higher rank are left out first; those of rank 0 never are."""
    short: "Column | None" = None
    """The column that takes its place when it is left out."""
    lines: Sequence[str] = ()
    """Texts on lines of their own above a row, one for each cell, empty for none."""
    may_wrap: bool = True
    """True if such a line may be broken between words; an id that is to be copied may not."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", printable(self.header))
        object.__setattr__(self, "cells", tuple(map(printable, self.cells)))
        object.__setattr__(self, "lines", tuple(map(printable, self.lines)))

    @property
    def is_shown(self) -> bool:
        """False if all of it stands on lines of their own."""
        return any(self.cells) or not self.lines

    @cached_property
    def width(self) -> int:
        """The width of the widest cell."""
        from rich.cells import cell_len

        return max(map(cell_len, (self.header, *self.cells)))

    def moved(self, most: int = 0, rank: int = 0, **others: Any) -> "Column":
        """Return it with the cells that are wider than this on lines of their own."""
        from rich.cells import cell_len

        wide = [cell_len(cell) > most and cell != "-" for cell in self.cells]
        kept = ["" if is_wide or not most else cell for is_wide, cell in zip(wide, self.cells, strict=True)]
        lines = [cell if is_wide else "" for is_wide, cell in zip(wide, self.cells, strict=True)]
        return replace(self, cells=kept, lines=lines, rank=rank, **others)


def lay_out(title: str, columns: Sequence[Column], screen: Screen) -> str:
    """Return a table as text; its lines are wider than the screen only where columns that must stay do not fit."""
    chosen, widths = _fit_columns(columns, screen.width)
    shown, indent = [each for each in chosen if each.is_shown], " " * _indent(chosen)
    texts = [_padded(column, width, screen) for column, width in zip(shown, widths, strict=True)]
    head, *rows = map((" " * GAP).join, zip(*texts, strict=True))
    lines = [_styled(title, "bold", screen)] if title else []
    lines += [indent + head, "─" * (len(indent) + _total(widths))]
    for at, row in enumerate(rows):
        lines += [line for each in chosen if each.lines for line in _own_lines(each, at, screen)]
        lines.append(indent + row)
    return screen.encoded("\n".join(line.rstrip() for line in lines))


def _own_lines(column: Column, at: int, screen: Screen) -> list[str]:
    """Return the text of a column that stands above a row."""
    style, text = column.styles[at] if column.styles else "", column.lines[at]
    if not column.may_wrap:  # the id of a test, once for rows in a row
        return [_styled(text, style, screen)] if text and text not in column.lines[at - 1 : at] else []
    return [f"  {_styled(line, style, screen)}" for line in Screen(screen.width - 2).wrapped(text)]


def _padded(column: Column, width: int, screen: Screen) -> list[str]:
    """Return the header and the cells of a column in their styles, each of this width."""
    from rich.cells import cell_len

    texts, styles = [column.header, *column.cells], ["bold", *(column.styles or [""] * len(column.cells))]
    found = []
    for text, style in zip(texts, styles, strict=True):
        short = shorten(text, width)
        room, shown = " " * (width - cell_len(short)), _styled(short, style, screen)
        found.append(room + shown if column.right else shown + room)
    return found


def _styled(text: str, style: str, screen: Screen) -> str:
    """Return a line in a style, as far as the screen has colours."""
    from rich.color import ColorSystem
    from rich.style import Style

    return Style.parse(style).render(printable(text), color_system=ColorSystem.STANDARD if screen.color else None)


def _fit_columns(columns: Sequence[Column], width: int) -> tuple[list[Column], list[int]]:
    """Return the columns that fit into a width, and the width of each of them that is shown.

    Columns are given up by their rank until the rest fits; where one gets lines of its own, those that were left out
    before have another chance. At last names that may be shortened are.
    """
    chosen = _chosen(list(columns), width)
    shown = [each for each in chosen if each.is_shown]
    widths = [each.width for each in shown]
    while _total(widths) > width - _indent(chosen):
        long = [at for at, each in enumerate(shown) if widths[at] > (each.least or each.width)]
        if not long:
            break
        widths[max(long, key=lambda at: widths[at])] -= 1
    return chosen, widths


def _chosen(columns: list[Column], width: int) -> list[Column]:
    chosen = dict(enumerate(columns))
    while True:
        shown = [each for each in chosen.values() if each.is_shown]
        least = _total([min(each.width, each.least or each.width) for each in shown]) + _indent([*chosen.values()])
        if least <= width:
            break
        at = max(chosen, key=lambda place: chosen[place].rank)
        if not chosen[at].rank:
            break
        short = chosen[at].short
        if short is None:
            del chosen[at]
        elif short.lines:
            return _chosen([*columns[:at], short, *columns[at + 1 :]], width)
        else:
            chosen[at] = short
    return [*chosen.values()]


def _indent(columns: Sequence[Column]) -> int:
    return 2 if any(each.lines for each in columns) else 0


def shorten(text: str, width: int) -> str:
    """Return a text without its middle where it is wider than that."""
    from rich.cells import cell_len

    kept = width - 1
    short = text
    while cell_len(short) > width:
        end = kept // 2
        short = f"{text[: kept - end]}…{text[len(text) - end :]}"
        kept -= 1
    return short


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
