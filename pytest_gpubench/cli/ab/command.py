"""`pytest-gpubench ab`: its arguments, the order of its steps, and what it writes."""

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_gpubench.bounds import positive_number
from pytest_gpubench.child_process import interrupts_raised
from pytest_gpubench.cli.ab.checkouts import Checkout, Workspace, last_line
from pytest_gpubench.cli.ab.comparison import ComparisonInterrupted, ComparisonPlan
from pytest_gpubench.cli.ab.report import TITLE, exit_status, write_report
from pytest_gpubench.cli.ab.runs import PytestRunner, compare_commits
from pytest_gpubench.cli.arguments import add_alpha, add_output, add_value
from pytest_gpubench.cli.output import say
from pytest_gpubench.counters import COUNTER_BY_NAME, is_counter
from pytest_gpubench.errors import BadRequest, DeviceUnavailable
from pytest_gpubench.report.markdown import CROSS
from pytest_gpubench.results.files import write_text
from pytest_gpubench.settings.parsers import positive_count
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.units import count, printable
from pytest_gpubench.verdict.rounds import COMMIT_ARMS, CommitArm

ABOUT = "compare two commits by alternating runs of their tests"
ROUNDS = 4
DEFAULT_MARGIN = 0.03
DEFAULT_ALPHA = 0.01
HELD: list[object] = []
"""Claims of GPUs, which last as long as they are referred to."""
EPILOG = """\
A round is four runs of pytest, BASE HEAD HEAD BASE and every other time the other way round, so drift cancels.
Each run imports its own tree, which comes first on PYTHONPATH. A worktree holds what git tracks: neither submodules
nor build outputs nor data that git ignores; make them with --setup, in place (`python setup.py build_ext --inplace`,
`git submodule update --init`): a `pip install` would change the environment of both commits.
One commit in two environments: `ab HEAD HEAD --base-python old/bin/python --head-python new/bin/python`.
A test whose own source or parameters HEAD changes is not compared; --tests PATH runs HEAD's tests on both commits.
Exit status: 0 no regression, 1 a regression or an INVALID measurement, 2 nothing was compared, 130 interrupted.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage, parser.epilog = "pytest-gpubench ab [OPTIONS] BASE [HEAD] -- PYTEST_ARGS", EPILOG
    parser.add_argument("base", metavar="BASE", help="the commit to compare with; `main...` is where HEAD left main")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="the commit to judge; without one, the working tree")
    add_arguments(parser)
    for arm in COMMIT_ARMS:
        help = f"the Python that runs {arm}, as in venv/bin/python (default: this one)"
        parser.add_argument(f"--{arm.lower()}-python", metavar="PROGRAM", help=help)
    add_output(parser, "--markdown", help="write the table as Markdown, for a comment or a summary")
    add_output(parser, "--json", help="write the findings as JSON")
    add_output(parser, "--html", help="write a page to look at in a browser")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `bisect` has too."""
    help = f"how often to take four runs, at most: ends when everything is decided (default: {ROUNDS})"
    add_value(parser, "--rounds", parse=positive_count, metavar="N", help=help, default=ROUNDS)
    help = "fail where the newer commit is slower by more than this (default: 3%%)"
    add_value(parser, "--fail-slower", parse=slower, metavar="FRACTION", help=help, default=DEFAULT_MARGIN)
    add_alpha(parser, DEFAULT_ALPHA, "the highest chance that a test that keeps this fails")
    parser.add_argument(
        "--metric",
        choices=("speedup", "median", "mean", *COUNTER_BY_NAME),
        default="speedup",
        metavar="METRIC",
        help="what is compared: the speedup over a test's reference where it has one, else its median; median, mean; "
        f"or a counter, by ncu: {', '.join(COUNTER_BY_NAME)} (default: speedup)",
    )
    help = "run this once in each worktree, before the first run; never in the working tree"
    parser.add_argument("--setup", metavar="COMMAND", help=help)
    help = "take this file or folder from the newer commit for both, so tests that it adds or changes count"
    parser.add_argument("--tests", metavar="PATH", action="append", default=[], help=help)
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


def run(arguments: argparse.Namespace) -> int:
    """Measure both commits and print the verdict on each test; the exit status is that of EPILOG.

    Raises GpuBenchError, in a sentence, where nothing can be compared.
    """
    try:
        pythons = arguments.base_python, arguments.head_python
        with prepared(arguments, arguments.base, arguments.head, pythons) as (_, checkouts, runner):
            found = compare_commits(checkouts, runner, comparison_plan(arguments))
    except ComparisonInterrupted as interrupt:
        found = interrupt.found
        if found.changes:
            write_report(found, checkouts, arguments)
        else:
            _write_stopped(found.interrupted_words, arguments.markdown)
        raise
    except (Exception, KeyboardInterrupt) as error:
        is_interrupt = isinstance(error, KeyboardInterrupt)
        why = "interrupted before the first run" if is_interrupt else str(error) or type(error).__name__
        _write_stopped(why, arguments.markdown)
        raise
    write_report(found, checkouts, arguments)
    return exit_status(found.changes)


def _write_stopped(why: str, markdown: str | None) -> None:
    if markdown:  # a comment that is updated in place would keep an older verdict
        lines = "\n".join(f"    {printable(line)}" for line in why.splitlines())
        write_text(f"{TITLE}: {CROSS}nothing was compared\n\n{lines}\n", Path(markdown))


@contextmanager
def prepared(
    arguments: argparse.Namespace,
    base: str,
    head: str | None,
    pythons: tuple[str | None, str | None] = (None, None),
) -> Iterator[tuple[Workspace, dict[CommitArm, Checkout], PytestRunner]]:
    """Check both commits out and set them up; remove everything in the end, at an interrupt too.

    pythons: the interpreters of both; None is this one's.
    """
    opened = Workspace.open(arguments.keep, base, head, not any(pythons))
    with interrupts_raised(), opened as (workspace, checked_out):
        checkouts = with_environments(checked_out, *pythons)
        checkouts["BASE"].take_tests(arguments.tests, checkouts["HEAD"])
        counters = (f"--gpu-bench-counters={arguments.metric}",) if is_counter(arguments.metric) else ()
        runner = PytestRunner(workspace.folder, (*arguments.pytest_arguments, *counters), one_gpu())
        for checkout in checkouts.values():
            runner.prepare(checkout, arguments.setup)
        yield workspace, checkouts, runner


def one_gpu() -> dict[str, str]:
    """Return the variables that pin all runs to one GPU; nothing where NVML sees none to choose from.

    The GPU is claimed until this process ends, so that other runs take another one.
    """
    from pytest_gpubench.gpu.lock import claim_gpu
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


MISSING = "not installed"
OTHER_FILES = "with other files"
LIST_PACKAGES = """
import hashlib, importlib.metadata, importlib.util, json, platform, re, sys

def digest(record):
    lines = [line for line in (record or "").splitlines() if not line.startswith("..") and ",sha256=" in line]
    own = [line for line in lines if not line.rpartition("/")[2].startswith(("INSTALLER,", "REQUESTED,"))]
    return hashlib.sha256("\\n".join(sorted(own)).encode()).hexdigest()

found = {}
for each in importlib.metadata.distributions():
    name = each.metadata["Name"]
    if name:
        found.setdefault(re.sub("[-_.]+", "-", name).lower(), [each.version, digest(each.read_text("RECORD"))])
found["Python"] = [platform.python_version(), ""]
print(json.dumps([found, importlib.util.find_spec("pytest_gpubench") is not None, sys.path]))
"""
"""Prints the version of each package with a digest of its files, whether this plugin is there, and the path."""
Package = tuple[str, str]
"""The version of a package, and the digest of its files with their hashes: the same where none are known."""


def with_environments(
    checkouts: Mapping[CommitArm, Checkout], base_python: str | None, head_python: str | None
) -> dict[CommitArm, Checkout]:
    """Return checkouts that run in these environments, with the packages that differ; None is this one's.

    Raises BadRequest for an interpreter that cannot be run or has no pytest-gpubench.
    """
    if base_python is None and head_python is None:
        return dict(checkouts)
    chosen = dict(checkouts)
    for arm, given in zip(COMMIT_ARMS, (base_python, head_python), strict=True):
        if given is not None:
            found = shutil.which(given)
            if found is None:
                words = f"--{arm.lower()}-python {given}: there is no such program"
                raise BadRequest(f"{words}; give the interpreter of an environment, as in venv/bin/python")
            # not resolved: what a link in an environment leads to is the interpreter without the environment
            title = f"{chosen[arm].title}, with {given}"
            chosen[arm] = replace(chosen[arm], python=os.path.abspath(found), title=title)
    (base, base_path), (head, head_path) = (_environment_of(chosen[arm]) for arm in COMMIT_ARMS)
    was, now = dict[str, str](), dict[str, str]()
    for name in sorted({*base, *head}, key=str.lower):
        (old, old_digest), (new, new_digest) = base.get(name, (MISSING, "")), head.get(name, (MISSING, ""))
        if (old, old_digest) != (new, new_digest):
            was[name], now[name] = old, new if new != old else f"{new} {OTHER_FILES}"
    say(f"{count(len(was), 'package')} {'differs' if len(was) == 1 else 'differ'} between the environments")
    return {
        "BASE": replace(chosen["BASE"], packages=was, path=base_path),
        "HEAD": replace(chosen["HEAD"], packages=now, path=head_path),
    }


def _environment_of(checkout: Checkout) -> tuple[dict[str, Package], list[str]]:
    """Return the packages that a checkout's interpreter finds, Python itself among them, and its path.

    Raises BadRequest.
    """
    command, environment = [checkout.python, "-c", LIST_PACKAGES], checkout.environment()
    done = subprocess.run(
        command, cwd=checkout.folder, env=environment, capture_output=True, text=True, errors="replace"
    )
    option = f"--{checkout.arm.lower()}-python {checkout.python}"
    try:
        found, has_plugin, path = json.loads(last_line(done.stdout))  # a sitecustomize may print before it
    except ValueError:
        raise BadRequest(
            f"{option}: it does not list its packages ({last_line(done.stderr)}); give a Python of 3.10 on"
        ) from None
    if not has_plugin:
        raise BadRequest(f"{option}: pytest-gpubench is not installed there; install it with the tests' own packages")
    return {name: (version, digest) for name, (version, digest) in found.items()}, path
