"""What a command says of a file that it wrote."""

import sys
from typing import TYPE_CHECKING

from pytest_gpubench.cli.output import write_to
from pytest_gpubench.units import count, printable

if TYPE_CHECKING:
    from pytest_gpubench.results.model import SavedRun


def write_form(text: str, target: str | None, run: "SavedRun", form: str) -> None:
    """Write a run in one of its forms to a file, and say so on standard error.

    target: None and `-` are standard output, of which nothing is said. Raises BadFile where it cannot be written.
    """
    write_to(text, target)
    if target is not None and target != "-":
        print(printable(f"{target}: {count(len(run.records), 'test')} as {form}"), file=sys.stderr)
