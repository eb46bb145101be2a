"""The arguments of comparing commits, which `ab` and `bisect` share."""

import argparse

from pytest_gpubench.bounds import positive_number
from pytest_gpubench.cli.ab.comparison import ComparisonPlan
from pytest_gpubench.cli.arguments import add_alpha, checked
from pytest_gpubench.settings.parsers import whole_number
from pytest_gpubench.stats.tolerance import RegressionTolerance

ROUNDS = 4
DEFAULT_MARGIN = 0.03
DEFAULT_ALPHA = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--rounds",
        type=checked(whole_number),
        default=ROUNDS,
        metavar="N",
        help=f"how often to take four runs, at most: ends when everything is decided (default: {ROUNDS})",
    )
    parser.add_argument(
        "--fail-slower",
        type=checked(slower),
        default=DEFAULT_MARGIN,
        metavar="FRACTION",
        help="fail where the newer commit is slower by more than this (default: 3%%)",
    )
    add_alpha(parser, DEFAULT_ALPHA, "the highest chance that a test that keeps this fails")
    parser.add_argument(
        "--metric",
        choices=("speedup", "median", "mean"),
        default="speedup",
        help="what is compared: the speedup over a test's reference where it has one, else its median "
        "(default: speedup)",
    )
    parser.add_argument(
        "--setup",
        metavar="COMMAND",
        help="run this once in each worktree, before the first run; never in the working tree",
    )
    parser.add_argument(
        "--tests",
        metavar="PATH",
        action="append",
        default=[],
        help="take this file or folder from the newer commit for both, so tests that it adds or changes count",
    )
    parser.add_argument("--keep", action="store_true", help="keep the worktrees, the results and what pytest printed")


def comparison_plan(arguments: argparse.Namespace) -> ComparisonPlan:
    """Return how to compare."""
    tolerance = RegressionTolerance(arguments.metric, margin=arguments.fail_slower)
    return ComparisonPlan(tolerance, arguments.alpha, arguments.rounds)


def slower(text: str) -> float:
    """Parse how much slower something may be: 3% or 0.03; 0 and more than 100 % are allowed."""
    try:
        value = float(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError("it must be a number, or a percentage") from None
    return 0.0 if value == 0 else positive_number(value)
