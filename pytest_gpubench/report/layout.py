"""Lay out a table on a screen: the most important columns that fit, and long names without their middle."""

import io
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

from pytest_gpubench.units import printable

WIDTH = 120
"""Letters in a line where standard output is no terminal, as in a file."""
GAP = 2
WORST_OF = re.compile(r" \((worst|slowest) of \d+\)$")
NOT_UNICODE = str.maketrans({"…": "~", "─": "-", "█": "#"} | dict.fromkeys("▏▎▍▌▋▊▉", "#"))


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
        """Return a sentence in lines that fit, broken between words."""
        return textwrap.wrap(
            printable(sentence), self.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )


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
    cut_at_end: bool = False
    """Long cells lose their end, not their middle."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "header", printable(self.header))
        object.__setattr__(self, "cells", tuple(map(printable, self.cells)))

    @cached_property
    def width(self) -> int:
        """The width of the widest cell."""
        from rich.cells import cell_len

        return max(map(cell_len, (self.header, *self.cells)))


def lay_out(title: str, columns: Sequence[Column], screen: Screen) -> str:
    """Return a table as text; its lines are wider than the screen only where columns that must stay do not fit."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    chosen, widths = fit(columns, screen.width)
    table = Table(box=box.SIMPLE_HEAD, header_style="", show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    texts = []
    for column, width in zip(chosen, widths, strict=True):
        header = Text.assemble((shorten(column.header, width), "bold"))
        table.add_column(header, justify="right" if column.right else "left", width=width, no_wrap=True)
        styled = zip(column.cells, column.styles or repeat(""), strict=False)
        texts.append([Text.assemble((shorten(cell, width, column.cut_at_end), style)) for cell, style in styled])
    for row in zip(*texts, strict=True):
        table.add_row(*row)
    file = io.StringIO()
    console = Console(
        file=file,
        width=_total(widths),
        color_system="standard" if screen.color else None,
        force_terminal=screen.color,
        force_jupyter=False,
        no_color=not screen.color,
        highlight=False,
    )
    if title:
        console.print(Text.assemble((printable(title), "bold")), soft_wrap=True)
    console.print(table)
    return screen.encoded("\n".join(line.rstrip() for line in file.getvalue().rstrip().split("\n")))


def fit(columns: Sequence[Column], width: int) -> tuple[list[Column], list[int]]:
    """Return the columns that fit into a width, and the width of each.

    Columns are left out by their rank until names can be shortened to what is left; then the widest are shortened.
    """
    chosen = list(columns)
    while _total([min(each.width, each.least or each.width) for each in chosen]) > width:
        last = max(chosen, key=lambda each: each.rank)
        if not last.rank:
            break
        at = chosen.index(last)
        chosen[at : at + 1] = [last.short] if last.short else []
    widths = [each.width for each in chosen]
    while _total(widths) > width:
        long = [at for at, each in enumerate(chosen) if widths[at] > (each.least or each.width)]
        if not long:
            break
        widths[max(long, key=lambda at: widths[at])] -= 1
    return chosen, widths


def shorten(text: str, width: int, cut_at_end: bool = False) -> str:
    """Return a text without its middle where it is wider than that: parameters tell tests apart at the end.

    The whole of `(worst of 40)` stays. cut_at_end: leave out the end instead.
    """
    from rich.cells import cell_len

    kept = width - 1
    counted = WORST_OF.search(text)
    short = text
    while cell_len(short) > width:
        end = 0 if cut_at_end else kept // 2
        if counted and len(counted[0]) < kept:
            end = len(counted[0])
        short = f"{text[: kept - end]}…{text[len(text) - end :]}"
        kept -= 1
    return short


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
