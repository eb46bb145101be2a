"""What a command writes: text on standard output or in a file, and tables of any length."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from unicodedata import combining, east_asian_width

from pytest_gpubench.units import printable

GAP = "  "
COLOURS = {"red": "\x1b[1;31m", "yellow": "\x1b[33m", "green": "\x1b[32m"}
PLAIN = "\x1b[0m"


def write(text: str) -> None:
    """Write text to standard output; where nobody reads on (`| head`), the rest is dropped and the status stays."""
    try:
        sys.stdout.write(f"{text}\n" if text else "")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_to(text: str, target: str | None) -> None:
    """Write text to a file, whole or not at all, or to standard output for None and `-`; raise BadFile.

    Folders on the way are made.
    """
    if target is None or target == "-":
        write(text.rstrip("\n"))
        return
    from pytest_gpubench.results.files import write_text

    write_text(text, Path(target))


def has_colour() -> bool:
    """Tell whether standard output is a terminal that colours may be written to."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: str) -> str:
    """Return text in a colour: red, yellow or green."""
    return f"{COLOURS[colour]}{text}{PLAIN}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return the lines of a table, each cell of one line; `right` are the columns that are set to the right.

    A table of thousands of rows takes milliseconds, where one of rich's takes seconds.
    """
    cells = [list(map(printable, row)) for row in rows]
    widths = [max(map(width_of, column)) for column in zip(header, *cells, strict=True)]
    return [line(header, widths, right), *(line(row, widths, right) for row in cells)]


def line(cells: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    """Return a row of a table."""
    padding = [" " * (width - width_of(cell)) for cell, width in zip(cells, widths, strict=True)]
    both = zip(padding, cells, strict=True)
    return GAP.join(blank + cell if at in right else cell + blank for at, (blank, cell) in enumerate(both)).rstrip()


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for a letter of Chinese, none for a combining accent."""
    if text.isascii():
        return len(text)
    return sum((not combining(each)) * (1 + (east_asian_width(each) in "WF")) for each in text)


def shortened(text: str, width: int) -> str:
    """Return a text without its middle where it is too long for a table."""
    return text if len(text) <= width else f"{text[: width // 2]}…{text[width // 2 + 1 - width :]}"
