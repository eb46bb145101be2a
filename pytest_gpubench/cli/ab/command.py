"""`pytest-gpubench ab`: its arguments, the order of its steps, and what it writes."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pytest_gpubench.child_process import INTERRUPTS, raise_interrupt, signals_handled
from pytest_gpubench.cli.ab.arguments import add_arguments, comparison_plan
from pytest_gpubench.cli.ab.checkouts import Checkout, Workspace
from pytest_gpubench.cli.ab.comparison import CommitComparison, ComparisonInterrupted, compare_commits
from pytest_gpubench.cli.ab.report import (
    TITLE,
    exit_status,
    json_text,
    markdown_text,
    page_text,
    report_lines,
)
from pytest_gpubench.cli.ab.runs import PytestRunner
from pytest_gpubench.cli.arguments import add_output
from pytest_gpubench.cli.output import say, write
from pytest_gpubench.errors import BadRequest, DeviceUnavailable, GpuBenchError
from pytest_gpubench.report.markdown import CROSS
from pytest_gpubench.results.files import write_text
from pytest_gpubench.units import printable
from pytest_gpubench.verdict.rounds import CommitArm

ABOUT = "compare two commits by alternating runs of their tests"
HELD: list[object] = []
"""Claims of GPUs, which last as long as they are referred to."""
EPILOG = """\
A round is four runs of pytest, BASE HEAD HEAD BASE and every other time the other way round, so drift cancels.
Each run imports its own tree, which comes first on PYTHONPATH. A worktree holds what git tracks: neither submodules
nor build outputs nor data that git ignores; make them with --setup, in place (`python setup.py build_ext --inplace`,
`git submodule update --init`): a `pip install` would change the environment of both commits.
A test whose own source or parameters HEAD changes is not compared; --tests PATH runs HEAD's tests on both commits.
Exit status: 0 no regression, 1 a regression or an INVALID measurement, 2 nothing was compared, 130 interrupted.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage, parser.epilog = "pytest-gpubench ab [OPTIONS] BASE [HEAD] -- PYTEST_ARGS", EPILOG
    parser.add_argument("base", metavar="BASE", help="the commit to compare with; `main...` is where HEAD left main")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="the commit to judge; without one, the working tree")
    add_arguments(parser)
    add_output(parser, "--markdown", help="write the table as Markdown, for a comment or a summary")
    add_output(parser, "--json", help="write the findings as JSON")
    add_output(parser, "--html", help="write a page to look at in a browser")


def run(arguments: argparse.Namespace) -> int:
    """Measure both commits and print the verdict on each test; the exit status is that of EPILOG.

    Raises GpuBenchError, in a sentence, where nothing can be compared.
    """
    try:
        with prepared(arguments, arguments.base, arguments.head) as (_, checkouts, runner):
            found = compare_commits(checkouts, runner, comparison_plan(arguments))
    except GpuBenchError as error:
        _write_stopped(str(error), arguments.markdown)
        raise
    except ComparisonInterrupted as interrupt:
        found = interrupt.found
        if found.changes:
            _write_report(found, checkouts, arguments)
        else:
            _write_stopped(found.interrupted_words, arguments.markdown)
        raise
    _write_report(found, checkouts, arguments)
    return exit_status(found.changes)


def _write_report(
    found: CommitComparison, checkouts: Mapping[CommitArm, Checkout], arguments: argparse.Namespace
) -> None:
    write("\n".join(report_lines(found.changes)))
    for path, form in ((arguments.markdown, markdown_text), (arguments.json, json_text), (arguments.html, page_text)):
        if path:
            write_text(form(found, checkouts), Path(path))


def _write_stopped(why: str, markdown: str | None) -> None:
    if markdown:  # a comment that is updated in place would keep an older verdict
        lines = "\n".join(f"    {printable(line)}" for line in why.splitlines())
        write_text(f"{TITLE}: {CROSS}nothing was compared\n\n{lines}\n", Path(markdown))


@contextmanager
def prepared(
    arguments: argparse.Namespace, base: str, head: str | None
) -> Iterator[tuple[Workspace, dict[CommitArm, Checkout], PytestRunner]]:
    """Check both commits out and set them up; remove everything in the end, at an interrupt too."""
    with signals_handled(raise_interrupt, *INTERRUPTS), Workspace.open(arguments.keep) as workspace:
        checkouts = workspace.check_out(base, head)
        checkouts["BASE"].take_tests(arguments.tests, checkouts["HEAD"])
        runner = PytestRunner(workspace.folder, tuple(arguments.pytest_arguments), one_gpu())
        for checkout in checkouts.values():
            runner.prepare(checkout, arguments.setup)
        yield workspace, checkouts, runner


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
