"""The command: its arguments, the order of its steps, and its report."""

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pytest_gpubench.cli.ab.checkouts import Workspace
from pytest_gpubench.cli.ab.process import INTERRUPTS, raise_interrupt, signals_handled
from pytest_gpubench.cli.ab.runs import Runner, take_runs
from pytest_gpubench.cli.arguments import Commands, chance, checked
from pytest_gpubench.cli.output import say, write
from pytest_gpubench.errors import BadRequest, DeviceUnavailable
from pytest_gpubench.limits import positive_number
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import whole_number
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, printable
from pytest_gpubench.verdict.rounds import judge_rounds
from pytest_gpubench.verdict.saved_runs import Finding

ROUNDS = 3
MARGIN = 0.03
ALPHA = 0.01
WORST_FIRST = (Outcome.FAIL, Outcome.INVALID, Outcome.INCONCLUSIVE, Outcome.NOT_JUDGED, Outcome.PASS)
HELD: list[object] = []
"""Claims of GPUs, which last as long as they are referred to."""
EPILOG = """\
A round is four runs of pytest, BASE HEAD HEAD BASE and every other time the other way round, so drift cancels.
Each run imports its own tree, which comes first on PYTHONPATH. A worktree holds what git tracks: neither submodules
nor build outputs nor data that git ignores; make them with --setup, in place (`python setup.py build_ext --inplace`,
`git submodule update --init`): a `pip install` would change the environment of both commits.
Exit status: 0 no regression, 1 a regression or an INVALID measurement, 2 nothing was compared.
"""


def add(commands: Commands) -> None:
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
        help=f"how often to take four runs (default: {ROUNDS})",
    )
    parser.add_argument(
        "--fail-slower",
        type=checked(slower),
        default=MARGIN,
        metavar="FRACTION",
        help="fail where HEAD is slower by more than this (default: 3%%)",
    )
    parser.add_argument(
        "--alpha",
        type=checked(chance),
        default=ALPHA,
        metavar="FRACTION",
        help=f"the highest chance that a test that keeps this fails (default: {ALPHA})",
    )
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
    parser.add_argument("--keep", action="store_true", help="keep the worktrees, the results and what pytest printed")
    parser.set_defaults(run=run, pytest_arguments=[])
    _split_off_pytest(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure both commits and print the verdict on each test; the exit status is that of EPILOG.

    Raises GpuBenchError, in a sentence, where nothing can be compared.
    """
    with signals_handled(raise_interrupt, *INTERRUPTS), Workspace.open(arguments.keep) as workspace:
        checkouts = workspace.check_out(arguments.base, arguments.head)
        runner = Runner(workspace.folder, tuple(arguments.pytest_arguments), one_gpu())
        for checkout in checkouts.values():
            runner.prepare(checkout, arguments.setup)
        runs = list(take_runs(checkouts, arguments.rounds, runner))
    tolerance = RegressionTolerance(arguments.metric, margin=arguments.fail_slower)
    findings = judge_rounds(runs, tolerance, arguments.alpha)
    write("\n".join(report_lines(findings)))
    return exit_status(findings)


def one_gpu() -> dict[str, str]:
    """Return the variables that pin all runs to one GPU; nothing where NVML sees none to choose from.

    The GPU is claimed until this process ends, so that other runs take another one.
    """
    from pytest_gpubench.gpu.claim import claim_gpu
    from pytest_gpubench.gpu.lock_file import lock_folder
    from pytest_gpubench.gpu.visible import find_visible

    visible = find_visible()
    if len(visible) < 2:
        return {}
    try:
        claim = claim_gpu(visible, lock_folder())
    except (BadRequest, DeviceUnavailable) as error:
        say(f"warning: no GPU is held for these runs, the first one is used: {error}")
        return {"CUDA_VISIBLE_DEVICES": visible[0].uuid}
    say(f"both are measured on {claim.gpu.name} {claim.gpu.uuid}, one of {len(visible)} GPUs")
    HELD.append(claim)
    return {"CUDA_VISIBLE_DEVICES": claim.gpu.uuid}


def report_lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding, the worst first, and a line of how many there are of each."""
    width = max(len(outcome.value) for outcome in WORST_FIRST)
    lines = []
    for each in sorted(findings, key=lambda each: WORST_FIRST.index(each.outcome)):
        label = f" [{each.label}]" if each.label else ""
        lines.append(printable(f"{each.outcome.value.upper():{width}}  {each.nodeid}{label}: {each.sentence}"))
    compared = sum(each.change is not None for each in findings)
    if not compared:
        return [*lines, "gpu_bench: nothing was compared: no measurement is in both versions"]
    numbers = Counter(each.outcome for each in findings)
    words = ", ".join(f"{numbers[outcome]} {outcome.value}" for outcome in WORST_FIRST if numbers[outcome])
    return [*lines, f"gpu_bench: {count(compared, 'measurement')} compared: {words}"]


def exit_status(findings: Sequence[Finding]) -> int:
    """Return 1 where something failed, 2 where nothing was compared, 1 where something is INVALID, else 0."""
    outcomes = {each.outcome for each in findings}
    if Outcome.FAIL in outcomes:
        return 1
    return int(Outcome.INVALID in outcomes) if any(each.change is not None for each in findings) else 2


def slower(text: str) -> float:
    """Parse how much slower something may be: 3% or 0.03; 0 and more than 100 % are allowed."""
    try:
        value = float(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError("it must be a number, or a percentage") from None
    return 0.0 if value == 0 else positive_number(value)


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
