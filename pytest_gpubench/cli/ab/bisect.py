"""`pytest-gpubench bisect`: the commit that made a test slower, by the comparison of `ab` and the search of git."""

import argparse
import re
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import replace

from pytest_gpubench.cli.ab.checkouts import Checkout, Workspace, last_line
from pytest_gpubench.cli.ab.command import ROUNDS, add_arguments, comparison_plan, prepared
from pytest_gpubench.cli.ab.comparison import CommitComparison, ComparisonPlan, is_open
from pytest_gpubench.cli.ab.replayed import Answer, bisect_runs
from pytest_gpubench.cli.ab.report import report_lines
from pytest_gpubench.cli.ab.runs import PytestRunner, compare_commits
from pytest_gpubench.cli.arguments import add_storage, add_trust_calls
from pytest_gpubench.cli.output import say, write
from pytest_gpubench.errors import BadRequest, GpuBenchError, first_line
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.units import count
from pytest_gpubench.verdict.counters import CONFIRMED
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.rounds import ArmRun, CommitArm

ABOUT = "find the commit that made a test slower"
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
    help = (
        "GOOD and BAD are saved runs: search those between for the first in which the kept call of a test of this name "
        "is slower; * and ? stand for others"
    )
    group.add_argument("--replay", metavar="TEST", help=help)
    add_trust_calls(group)
    add_storage(group)


def run(arguments: argparse.Namespace) -> int:
    """Compare the ends, then search between them; the exit status is that of EPILOG."""
    if arguments.replay is None:
        return STATUS[_bisect(arguments)]
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
    return STATUS[bisect_runs(arguments)]


def _bisect(arguments: argparse.Namespace) -> Answer:
    with prepared(arguments, arguments.good, arguments.bad) as (workspace, checkouts, runner):
        if arguments.bad is None:
            changes = compare_commits(checkouts, runner, comparison_plan(arguments)).changes
            write("\n".join(report_lines(changes)))
            return answer_of(changes, None)
        good, bad = (workspace.commit(each) for each in (arguments.good, arguments.bad))
        search = CommitSearch(arguments, workspace, checkouts, runner)
        ends = search.compare(bad)
        if (answer := answer_of(ends, None)) != "bad":
            write("\n".join(report_lines(ends)))
            return answer
        search.watched = {name_of(each) for each in ends if each.outcome is Outcome.FAIL and each.label}
        return _find_first_bad(workspace, good, bad, search)


class CommitSearch:
    """Compares commits with GOOD.

    A counter differs little from one process to the next, so GOOD and each commit are counted by one process; in the
    end GOOD and the first bad commit are counted by a second one.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        workspace: Workspace,
        checkouts: dict[CommitArm, Checkout],
        runner: PytestRunner,
    ) -> None:
        self.watched: set[tuple[str, str]] | None = None
        """The measurements that count, each by its test and its label; None for all."""
        self.found: dict[str, CommitComparison] = {}
        """The comparison of each commit so far."""
        self._arguments, self._workspace, self._checkouts, self._runner = arguments, workspace, checkouts, runner
        plan = comparison_plan(arguments)
        self._is_exact = plan.tolerance.is_on_counter
        self._plan = replace(plan, rounds=1, processes=1) if self._is_exact else plan

    def compare(self, commit: str) -> Sequence[Change]:
        """Return the changes from GOOD to a commit; BAD, which is checked out already, comes first."""
        counted = [each for found in self.found.values() for each in found.runs if each.arm == "BASE"]
        if self.found:
            self._check_out(commit)
        self.found[commit] = self._compare(self._plan, counted[:1] if self._is_exact else ())
        return self.found[commit].changes

    def confirm(self, commit: str) -> Sequence[Change]:
        """Return the changes from GOOD to the first bad commit, by two processes of each where they were counted."""
        found = self.found[commit]
        if not self._is_exact:
            return found.changes
        self._check_out(commit)
        return self._compare(replace(self._plan, rounds=CONFIRMED, processes=CONFIRMED), found.runs).changes

    def _check_out(self, commit: str) -> None:
        checkout = self._workspace.add_worktree("HEAD", commit, commit[:8])
        checkout.take_tests(self._arguments.tests, self._checkouts["BASE"])
        self._runner.prepare(checkout, self._arguments.setup)
        self._checkouts["HEAD"] = checkout

    def _compare(self, plan: ComparisonPlan, taken: Sequence[ArmRun]) -> CommitComparison:
        if self.watched is None:
            return compare_commits(self._checkouts, self._runner, plan)
        tests = {nodeid for nodeid, _ in self.watched}
        return compare_commits(self._checkouts, self._runner, plan, self._still_open, tests, taken)

    def _still_open(self, changes: Sequence[Change]) -> set[str]:
        """Return the watched tests that more rounds may decide: none where one is slower, which is enough."""
        if answer_of(changes, self.watched) == "bad":
            return set()
        return {each.nodeid for each in changes if is_open(each) and name_of(each) in (self.watched or ())}


def answer_of(changes: Sequence[Change], watched: Collection[tuple[str, str]] | None) -> Answer:
    """Return whether a measurement is slower, or all are not; watched: those that count, None for all.

    A test that fails is not slower, nor known not to be.
    """
    judged = [each for each in changes if each.outcome is not Outcome.NOT_JUDGED]
    counted = [each for each in judged if watched is None or name_of(each) in watched]
    if any(each.label and each.outcome is Outcome.FAIL for each in counted):
        return "bad"
    is_whole = watched is None or set(map(name_of, counted)) == set(watched)
    return "good" if is_whole and {each.outcome for each in counted} == {Outcome.PASS} else "skip"


def _find_first_bad(workspace: Workspace, good: str, bad: str, search: CommitSearch) -> Answer:
    """Take the steps that git asks for, and write the first bad commit with its changes.

    Its state is that of BASE's worktree, so a bisection of the user's own goes on. Raises BadRequest where git cannot
    search.
    """
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
            verdict = answer_of(search.compare(commit), search.watched)
        except GpuBenchError as error:
            say(f"skipped: {first_line(error)}")
            verdict = "skip"
        except KeyboardInterrupt:
            left = workspace.git("log", "--bisect", "--format=%h", folder=workspace.folder / "base").stdout.split()
            commits = f"{count(len(left), 'commit')}, {left[-1]} to {left[0]}" if left else "no commit"
            say(f"interrupted after {count(len(search.found), 'comparison')}: slower since one of {commits}")
            raise
        say(f"step {len(search.found) - 1}: {verdict}: {_titles(workspace, [commit])[0]}")
        answer = _git_bisect(workspace, verdict, commit)
    (title,) = _titles(workspace, [culprit[1]])
    taken = count(len(search.found), "comparison")
    try:
        changes = search.confirm(culprit[1])
    except (GpuBenchError, KeyboardInterrupt):
        say(f"slower in one process: {title} ({taken})")
        raise
    is_bad = answer_of(changes, search.watched) == "bad"
    last = f"slower {'since' if is_bad else 'in one process alone:'} {title} ({taken})"
    write("\n".join([*report_lines(changes), last]))
    return "bad" if is_bad else "skip"


def name_of(change: Change) -> tuple[str, str]:
    return change.nodeid, change.label


def _titles(workspace: Workspace, commits: Sequence[str]) -> list[str]:
    shown = workspace.git("show", "--no-patch", "--format=%h %an, %as: %s", *commits)
    return shown.stdout.rstrip("\n").split("\n")  # a subject may have other ends of lines


def _git_bisect(workspace: Workspace, *words: str) -> "subprocess.CompletedProcess[str]":
    return workspace.git("bisect", *words, folder=workspace.folder / "base")
