"""Output of commands: text and tables on standard output or in a file, messages on standard error."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from pytest_gpubench.errors import BadFile
from pytest_gpubench.report.layout import Column, Screen, lay_out
from pytest_gpubench.units import safe_line, safe_lines


def say(sentence: str) -> None:
    """Report progress on standard error: standard output is for results."""
    print(safe_line(f"gpu_bench: {sentence}"), file=sys.stderr, flush=True)


def complain(command: str, sentences: Sequence[str]) -> None:
    """Write errors to standard error, if it has a reader."""
    with suppress(OSError):
        for sentence in sentences:
            print(safe_lines(f"pytest-gpubench {command}: {sentence}"), file=sys.stderr)


def write(text: str) -> None:
    """Write lines to standard output; if its reader has ended (`| head`), drop the rest and keep the exit status."""
    write_raw(safe_lines(text, has_colour()))


def write_raw(text: str) -> None:
    """Write text that other programs read, as it is; raise BadFile where the disk is full."""
    try:
        sys.stdout.write(f"{text}\n" if text else "")
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        if not isinstance(error, BrokenPipeError):
            raise BadFile(f"standard output cannot be written: {error.strerror}") from None


def table(columns: Sequence[Column]) -> list[str]:
    """Return the lines of a table on standard output."""
    return lay_out("", columns, Screen.current(has_colour())).split("\n")


def has_colour() -> bool:
    """Tell whether standard output is a terminal that colours may be written to."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
