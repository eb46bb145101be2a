"""The command: what it is asked, and the order in which it does it."""

import argparse
from typing import Any

from pytest_gpubench.cli.ab.gpu import one_gpu
from pytest_gpubench.cli.ab.interrupts import ending_by_signal
from pytest_gpubench.cli.ab.printed import exit_status, report_lines
from pytest_gpubench.cli.ab.runs import PytestRuns, take_runs
from pytest_gpubench.cli.ab.workshop import Workshop
from pytest_gpubench.cli.arguments import chance, checked
from pytest_gpubench.limits import positive_number
from pytest_gpubench.settings import whole_number
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.verdict.rounds import judge_rounds

ROUNDS = 3
MARGIN = 0.03
ALPHA = 0.01
EPILOG = """\
A round is four runs of pytest, BASE HEAD HEAD BASE and every other time the other way round, so drift cancels.
Each run imports its own tree, which comes first on PYTHONPATH. A worktree holds what git tracks: neither submodules
nor build outputs nor data that git ignores; make them with --setup, in place (`python setup.py build_ext --inplace`,
`git submodule update --init`): a `pip install` would change the environment of both commits.
Exit status: 0 no regression, 1 a regression or an INVALID measurement, 2 nothing was compared.
"""


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the parser of all."""
    parser = commands.add_parser(
        "ab",
        help="compare two commits by alternating runs of their tests",
        usage="pytest-gpubench ab [OPTIONS] BASE [HEAD] -- PYTEST_ARGS",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("base", metavar="BASE", help="the commit to compare with")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="the commit to judge; without one, the working tree")
    parser.add_argument(
        "--rounds",
        type=checked(whole_number),
        default=ROUNDS,
        metavar="N",
        help=f"how often to take four runs; {_default(ROUNDS)}",
    )
    parser.add_argument(
        "--fail-slower",
        type=checked(slower),
        default=MARGIN,
        metavar="FRACTION",
        help=f"fail where HEAD is slower by more than this; {_default('3%%')}",
    )
    parser.add_argument(
        "--alpha",
        type=checked(chance),
        default=ALPHA,
        metavar="FRACTION",
        help=f"the chance, at most, that a test that keeps this fails; {_default(ALPHA)}",
    )
    parser.add_argument(
        "--metric",
        choices=("speedup", "median", "mean"),
        default="speedup",
        help="what is compared: the speedup over a test's reference where it has one, else its median; "
        + _default("speedup"),
    )
    parser.add_argument(
        "--setup",
        metavar="COMMAND",
        help="run this once in each worktree, before the first run; never in the working tree",
    )
    parser.add_argument("--keep", action="store_true", help="keep the worktrees, the results and what pytest printed")
    parser.set_defaults(run=run, pytest_arguments=[])
    _split_off_pytest(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure both commits and print what became of each test; see EPILOG for the exit status.

    Raises GpuBenchError where nothing can be compared, in a sentence.
    """
    tolerance = RegressionTolerance(arguments.metric, margin=arguments.fail_slower)
    with ending_by_signal(), Workshop.opened(arguments.keep) as workshop:
        arms = workshop.make_arms(arguments.base, arguments.head)
        pytest_runs = PytestRuns(workshop, tuple(arguments.pytest_arguments), one_gpu())
        runs = take_runs(arms, arguments.rounds, arguments.setup, pytest_runs)
    findings = judge_rounds(runs, tolerance, arguments.alpha)
    print("\n".join(report_lines(findings)))
    return exit_status(findings)


def _default(value: object) -> str:
    return f"default {value}"


def _split_off_pytest(parser: argparse.ArgumentParser) -> None:
    """Keep what follows `--` from the parser, which forgets where it was: HEAD would be the first of pytest's."""
    parse = parser.parse_known_args

    def parse_first(args: Any = None, namespace: Any = None) -> Any:
        words = list(args)
        place = words.index("--") if "--" in words else len(words)
        found, unknown = parse(words[:place], namespace)
        found.pytest_arguments = words[place + 1 :]
        return found, unknown

    parser.parse_known_args = parse_first  # type: ignore[method-assign]


def slower(text: str) -> float:
    """Parse how much slower something may be: 3% or 0.03; 0 and more than 100 % can be meant, too."""
    try:
        value = float(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError("it must be a number, or a percentage") from None
    return 0.0 if value == 0 else positive_number(value)
