"""The lines of one of rich's tables, in a tenth of the time that rich takes for thousands of rows."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

GAP = "   "


def lay_out(table: "Table", console: "Console") -> str:
    """Return what the console would print of a table with the box SIMPLE_HEAD that is not wider than the console.

    Cells and headers are `Text`, and the title is at the left. Only what has to be broken into lines, or coloured, is
    left to rich.
    """
    from rich.cells import cell_len
    from rich.text import Text

    colour = painter(console)
    heads = [Text(str(column.header), style="bold") for column in table.columns]
    texts = [[cell for cell in column.cells if isinstance(cell, Text)] for column in table.columns]
    columns = [
        [lines_of(cell, column, console) for cell in cells] for column, cells in zip(table.columns, texts, strict=True)
    ]
    widths = [
        column.max_width
        if column.max_width and any(is_broken(cell, column) for cell in own)
        else max(cell_len(text.plain) for lines in ([head], *cells) for text in lines)
        for column, head, own, cells in zip(table.columns, heads, texts, columns, strict=True)
    ]
    total = sum(widths) + len(GAP) * (len(widths) - 1) + 4
    rights = [column.justify == "right" for column in table.columns]
    title = table.title if isinstance(table.title, Text) else Text(str(table.title or ""))

    def row(cells: "Sequence[Sequence[Text]]") -> Iterator[str]:
        for at in range(max(map(len, cells))):
            pieces = [lines[at] if at < len(lines) else Text() for lines in cells]
            placed = (place(*each, colour) for each in zip(pieces, widths, rights, strict=True))
            yield f"  {GAP.join(placed)}  "

    lines = [colour(line) + " " * (total - cell_len(line.plain)) for line in title.wrap(console, total)]
    lines += [" " * total, *row([[head] for head in heads]), f" {'─' * (total - 2)} "]
    for cells in zip(*columns, strict=True):
        lines += row(cells)
    return "\n".join([*lines, " " * total])


def lines_of(cell: "Text", column: "Column", console: "Console") -> "Sequence[Text]":
    """Return the lines that a cell is broken into: one, unless it has several or is too wide for its column."""
    if "\n" not in cell.plain and not is_broken(cell, column):
        return (cell,)
    return tuple(cell.wrap(console, column.max_width or console.width, overflow=column.overflow))


def is_broken(cell: "Text", column: "Column") -> bool:
    """Tell whether a cell has to be broken: a line of it is too wide for its column."""
    from rich.cells import cell_len

    widest = column.max_width
    return widest is not None and cell_len(cell.plain) > widest and max(map(cell_len, cell.plain.split("\n"))) > widest


def place(text: "Text", width: int, right: bool, colour: "Callable[[Text], str]") -> str:
    """Return a text as wide as its column."""
    from rich.cells import cell_len

    blank = " " * (width - cell_len(text.plain))
    return blank + colour(text) if right else colour(text) + blank


def painter(console: "Console") -> "Callable[[Text], str]":
    """Return a function that writes a text in its colours, those of each text of a few found out once."""
    known: dict[tuple[str, str], str] = {}

    def colour(text: "Text") -> str:
        if console.color_system is None or not (text.style or text.spans):
            return text.plain
        key = (text.plain, f"{text.style} {text.spans}")
        if key not in known:
            with console.capture() as captured:
                console.print(text, end="", soft_wrap=True)
            known[key] = captured.get()
        return known[key]

    return colour
