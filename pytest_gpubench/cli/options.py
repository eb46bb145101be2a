"""`pytest-gpubench options`: the table of all options."""

import argparse
from typing import Any


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the parser of all."""
    parser = commands.add_parser("options", help="print the table of all options as Markdown")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    from pytest_gpubench.plugin.options import markdown_table

    print(markdown_table())
    return 0
