"""`pytest-gpubench bisect`: the commit that made a test slower, by the comparison of `ab` and the search of git."""

import argparse
import re
import subprocess
from collections.abc import Callable, Collection, Sequence
from functools import partial

from pytest_gpubench.cli.ab.checkouts import Workspace, last_line
from pytest_gpubench.cli.ab.command import ROUNDS, add_arguments, comparison_plan, prepared
from pytest_gpubench.cli.ab.comparison import compare_commits, is_open
from pytest_gpubench.cli.ab.replayed import Answer, bisect_runs
from pytest_gpubench.cli.ab.report import report_lines
from pytest_gpubench.cli.arguments import add_storage, add_trust_calls
from pytest_gpubench.cli.output import complain, say, write
from pytest_gpubench.errors import BadRequest, GpuBenchError
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.units import count
from pytest_gpubench.verdict.regression import Change

ABOUT = "find the commit that made a test slower"
TryCommit = Callable[[str], tuple[Answer, Sequence[Change]]]
"""Called with a commit, which it compares with GOOD."""
STATUS: dict[Answer, int] = {"good": 0, "bad": 1, "skip": 125}
"""The exit statuses that `git bisect run` understands."""
FIRST_BAD = re.compile(r"^([0-9a-f]{40,64}) is the first '?bad'? commit$", re.MULTILINE)
BISECT_EPILOG = """\
GOOD is compared with BAD, then with the commits that git bisect asks for, in worktrees: 6 of 64 commits. A commit is
bad where a test is slower than in GOOD by more than --fail-slower, good where all are not; one whose tests do not run,
or cannot be told, is skipped. What counts are the tests that are slower in BAD. --tests PATH runs BAD's tests in all.
Without BAD, the working tree alone is compared with GOOD, for `git bisect run pytest-gpubench bisect GOOD -- ...`.
--replay TEST searches saved runs for the first slow call, without checkouts: `bisect 1 latest --replay softmax`.
Exit status, for the newer of both: 0 good, not slower; 1 bad, slower, and the commit was found; 125 cannot be told,
or bad usage, as `git bisect run` would take 2 for a bad commit.
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage, parser.epilog = "pytest-gpubench bisect [OPTIONS] GOOD [BAD] -- PYTEST_ARGS", BISECT_EPILOG
    parser.add_argument("good", metavar="GOOD", help="a commit in which the tests are fast")
    parser.add_argument("bad", metavar="BAD", nargs="?", help="a later one in which a test is slow")
    add_arguments(parser)
    group = parser.add_argument_group("saved runs in place of commits")
    group.add_argument(
        "--replay",
        metavar="TEST",
        help="GOOD and BAD are saved runs: search those between for the first in which the kept call of a test of this "
        "name is slower; * and ? stand for others",
    )
    add_trust_calls(group)
    add_storage(group)


def run(arguments: argparse.Namespace) -> int:
    """Compare the ends, then search between them; the exit status is that of EPILOG."""
    try:
        return STATUS[_bisect(arguments) if arguments.replay is None else _bisect_runs(arguments)]
    except GpuBenchError as error:
        complain("bisect", [str(error)])
        return STATUS["skip"]


def _bisect_runs(arguments: argparse.Namespace) -> Answer:
    """Search saved runs; raise BadRequest for an option that is about commits."""
    about_commits = {
        "PYTEST_ARGS": arguments.pytest_arguments,
        "--setup": arguments.setup,
        "--tests": arguments.tests,
        "--keep": arguments.keep,
        "--rounds": arguments.rounds != ROUNDS,
        "--metric": arguments.metric not in ("speedup", "median"),
    }
    if given := [name for name, value in about_commits.items() if value]:
        raise BadRequest(f"--replay searches saved runs, and runs no tests: leave out {', '.join(given)}")
    return bisect_runs(arguments)


def _bisect(arguments: argparse.Namespace) -> Answer:
    with prepared(arguments, arguments.good, arguments.bad) as (workspace, checkouts, runner):
        plan = comparison_plan(arguments)
        compared = compare_commits(checkouts, runner, plan)
        # what a commit counts does not drift as its times do, so GOOD is counted once
        counted = [each for each in compared.runs if each.arm == "BASE"] if plan.tolerance.is_on_counter else []
        ends = compared.changes
        answer = answer_of(ends, None)
        watched = {_name(each) for each in ends if each.outcome is Outcome.FAIL and each.label}
        if arguments.bad is None or answer != "bad":
            write("\n".join(report_lines(ends)))
            return answer

        still_open = partial(watched_open_tests, watched=watched)

        def step(commit: str) -> tuple[Answer, Sequence[Change]]:
            checkouts["HEAD"] = workspace.add_worktree("HEAD", commit, commit[:8])
            checkouts["HEAD"].take_tests(arguments.tests, checkouts["BASE"])
            runner.prepare(checkouts["HEAD"], arguments.setup)
            found = compare_commits(checkouts, runner, plan, still_open, {nodeid for nodeid, _ in watched}, counted)
            return answer_of(found.changes, watched), found.changes

        good, bad = (workspace.commit(each) for each in (arguments.good, arguments.bad))
        return _find_first_bad(workspace, good, bad, ends, step)


def answer_of(changes: Sequence[Change], watched: Collection[tuple[str, str]] | None) -> Answer:
    """Return whether a measurement is slower, or all are not; watched: those that count, None for all."""
    judged = [each for each in changes if each.label and each.outcome is not Outcome.NOT_JUDGED]
    counted = [each for each in judged if watched is None or _name(each) in watched]
    if any(each.outcome is Outcome.FAIL for each in counted):
        return "bad"
    is_whole = watched is None or set(map(_name, counted)) == set(watched)
    return "good" if is_whole and {each.outcome for each in counted} == {Outcome.PASS} else "skip"


def watched_open_tests(changes: Sequence[Change], watched: Collection[tuple[str, str]]) -> set[str]:
    """Return the watched tests that more rounds may decide: none where one is slower, which is enough."""
    if answer_of(changes, watched) == "bad":
        return set()
    return {each.nodeid for each in changes if is_open(each) and _name(each) in watched}


def _find_first_bad(workspace: Workspace, good: str, bad: str, ends: Sequence[Change], step: TryCommit) -> Answer:
    """Take the steps that git asks for, and write the first bad commit with its changes; ends: those of BAD.

    Its state is that of BASE's worktree, so a bisection of the user's own goes on. Raises BadRequest where git cannot
    search.
    """
    changes = {bad: ends}
    answer = _git_bisect(workspace, "start", "--no-checkout", bad, good)
    while not (culprit := FIRST_BAD.search(answer.stdout)):
        if "only 'skip'ped commits left" in answer.stdout:
            suspects = re.findall(r"^[0-9a-f]{40,64}$", answer.stdout, re.MULTILINE)
            write("\n".join(["it is one of these, of which the others were skipped:", *_titles(workspace, suspects)]))
            return "skip"
        if answer.returncode:
            raise BadRequest(
                f"git cannot search between {good[:8]} and {bad[:8]}: {last_line(answer.stderr or answer.stdout)}"
            )
        commit = workspace.git("rev-parse", "BISECT_HEAD", folder=workspace.folder / "base").stdout.strip()
        try:
            verdict, changes[commit] = _try(step, commit)
        except KeyboardInterrupt:
            say(_what_is_left(workspace, len(changes)))
            raise
        (title,) = _titles(workspace, [commit])
        say(f"step {len(changes) - 1}: {verdict}: {title}")
        answer = _git_bisect(workspace, verdict, commit)
    (title,) = _titles(workspace, [culprit[1]])
    taken = count(len(changes), "comparison")
    write("\n".join([*report_lines(changes[culprit[1]]), f"slower since {title} ({taken})"]))
    return "bad"


def _try(step: TryCommit, commit: str) -> tuple[Answer, Sequence[Change]]:
    try:
        return step(commit)
    except GpuBenchError as error:
        say(f"skipped: {str(error).splitlines()[0]}")
        return "skip", ()


def _what_is_left(workspace: Workspace, comparisons: int) -> str:
    """Return what the comparisons so far leave to search."""
    left = workspace.git("log", "--bisect", "--format=%h", folder=workspace.folder / "base").stdout.split()
    commits = f"{count(len(left), 'commit')}, {left[-1]} to {left[0]}" if left else "no commit"
    return f"interrupted after {count(comparisons, 'comparison')}: slower since one of {commits}"


def _name(change: Change) -> tuple[str, str]:
    return change.nodeid, change.label


def _titles(workspace: Workspace, commits: Sequence[str]) -> list[str]:
    shown = workspace.git("show", "--no-patch", "--format=%h %an, %as: %s", *commits)
    return shown.stdout.splitlines()


def _git_bisect(workspace: Workspace, *words: str) -> "subprocess.CompletedProcess[str]":
    return workspace.git("bisect", *words, folder=workspace.folder / "base")
