"""`pytest-gpubench options`: the table of all options."""

import argparse

from pytest_gpubench.cli.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = commands.add_parser("options", help="print the table of all options as Markdown")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    from pytest_gpubench.plugin.options import markdown_table  # imports pytest

    print(markdown_table())
    return 0
