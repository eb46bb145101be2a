"""What a command writes: text on standard output or in a file, and tables."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_gpubench.report.layout import Column


def say(sentence: str) -> None:
    """Write what goes on to standard error: standard output is for results."""
    print(f"gpu_bench: {sentence}", file=sys.stderr, flush=True)


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


def table(columns: "Sequence[Column]") -> list[str]:
    """Return the lines of a table on standard output."""
    from pytest_gpubench.report.layout import Screen, lay_out

    return lay_out("", columns, Screen.current(has_colour())).split("\n")
