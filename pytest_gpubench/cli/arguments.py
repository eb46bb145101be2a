"""What several commands' options have in common: how they are parsed, and what is said of one that cannot be meant."""

import argparse
from collections.abc import Callable
from typing import Any

from pytest_gpubench.settings import fraction


def checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser of an option whose ValueError is argparse's error."""

    def parse_option(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not valid, {error}") from None

    return parse_option


def chance(text: str) -> float:
    """Parse an alpha, a fraction or a percentage below one half."""
    value = fraction(text)
    if value >= 0.5:
        raise ValueError("it must be below 0.5, or chance decides")
    return value
