"""Arguments that several commands have."""

import argparse
import os
from collections.abc import Callable
from typing import Any

from pytest_gpubench.settings import Settings, environment_name
from pytest_gpubench.settings.parsers import file_path, fraction

RUN_HELP = "a file, the name or the number of a saved run, or latest"
Options = argparse.ArgumentParser | argparse._ArgumentGroup
"""A parser, or a group of its options."""


def add_trust_calls(parser: Options) -> None:
    """Add the option to replay calls from elsewhere."""
    parser.add_argument(
        "--trust-calls",
        action="store_true",
        help="replay what another user or machine has saved too: a saved call is code",
    )


def add_storage(parser: Options) -> None:
    """Add the folder of saved runs, and the device whose runs are meant."""
    default = os.environ.get(environment_name("storage")) or Settings.storage
    help = f"where runs are saved (default: $GPU_BENCH_STORAGE, or {Settings.storage})"
    parser.add_argument("--storage", metavar="FOLDER", default=default, help=help)
    parser.add_argument("--device", metavar="NAME", help="only runs on devices with this in their name: h200")


def add_value(
    parser: Options, *names: str, parse: Callable[[str], Any], metavar: str, help: str, default: Any = None, **more: Any
) -> None:
    """Add an option with a value; parse: its ValueError is argparse's error, `'0' is not valid, ...`."""

    def parse_option(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not valid, {error}") from None

    parser.add_argument(*names, type=parse_option, metavar=metavar, help=help, default=default, **more)


def add_output(parser: Options, *names: str, help: str, may_be_standard: bool = False, **more: Any) -> None:
    """Add an option that names a file to write; one in a folder that is not there is refused.

    may_be_standard: True where - means standard output.
    """

    def parse(text: str) -> str:
        return text if may_be_standard and text == "-" else file_path(text)

    add_value(parser, *names, parse=parse, metavar="PATH", help=help, **more)


def add_alpha(parser: Options, default: float, meaning: str) -> None:
    """Add the option of an error probability; meaning: of what."""
    add_value(
        parser, "--alpha", parse=chance, metavar="FRACTION", help=f"{meaning} (default: {default:g})", default=default
    )


def chance(text: str) -> float:
    """Parse an alpha, a fraction or a percentage below one half."""
    value = fraction(text)
    if value >= 0.5:
        raise ValueError("it must be below 0.5, or chance decides")
    return value
