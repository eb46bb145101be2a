"""The runs of pytest in both versions, by turns."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.cli.ab.junit import read_ended
from pytest_gpubench.cli.ab.printed import say
from pytest_gpubench.cli.ab.process import run_logged, tail
from pytest_gpubench.cli.ab.tree import Tree
from pytest_gpubench.cli.ab.workshop import Workshop
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import read_run
from pytest_gpubench.units import count
from pytest_gpubench.verdict.rounds import Arm, ArmRun, order_of

TESTS_RAN = {0: "all passed", 1: "some failed", 5: "no test was collected"}
"""The exit statuses of pytest after which there is something to compare, or known to be nothing."""


@dataclass
class PytestRuns:
    """Run pytest in a tree, results and output going to the workshop."""

    workshop: Workshop
    arguments: tuple[str, ...]
    gpu: dict[str, str]
    """The variables that pin CUDA to one GPU; empty where they need not."""
    taken: int = 0

    def run(self, tree: Tree, round: int) -> ArmRun:
        """Run pytest once; raise BadRequest where it could not run its tests."""
        self.taken += 1
        place = self.workshop.folder / f"{self.taken:02}-{tree.arm}"
        results, junit, log = (place.with_suffix(suffix) for suffix in (".json", ".xml", ".log"))
        status = run_logged(self.command(tree, results, junit), tree.folder, tree.environment() | self.gpu, log)
        if status not in TESTS_RAN:
            raise BadRequest(
                f"pytest could not run the tests in {tree.arm} (exit status {status}); it ended with:\n{tail(log)}"
            )
        if not results.exists() and status != 5:
            raise BadRequest(f"the tests in {tree.arm} left no results; pytest ended with:\n{tail(log)}")
        saved = read_run(results) if results.exists() else SavedRun(records=(), datetime="")
        return ArmRun(tree.arm, round, saved, read_ended(junit, saved))

    def command(self, tree: Tree, results: Path, junit: Path) -> list[str]:
        """Return the command: the arguments that were given, then what makes two trees alike and keeps the results."""
        given = [tree.rebased(word) for word in self.arguments]
        seeded = any(word.startswith("--hypothesis-seed") for word in given)
        return [
            *(sys.executable, "-m", "pytest", *given),
            *([] if seeded else ["--hypothesis-seed=0"]),
            *("-o", f"cache_dir={tree.state / 'pytest_cache'}"),
            f"--junitxml={junit}",
            f"--gpu-bench-json={results}",
        ]


def take_runs(arms: Mapping[Arm, Tree], rounds: int, setup: str | None, pytest_runs: PytestRuns) -> list[ArmRun]:
    """Prepare the trees and run pytest in them by turns; raise BadRequest where one of them cannot run its tests."""
    for tree in arms.values():
        prepare(tree, setup, pytest_runs.workshop.folder / f"setup-{tree.arm}.log")
    runs: list[ArmRun] = []
    turns = [(round, arm) for round in range(rounds) for arm in order_of(round)]
    for number, (round, arm) in enumerate(turns, 1):
        began_s = time.monotonic()
        taken = pytest_runs.run(arms[arm], round)
        runs.append(taken)
        measured = sum(len(record.measurements) for record in taken.run.records)
        say(
            f"run {number} of {len(turns)}: {arm}, {count(len(taken.ended), 'test')}, "
            f"{count(measured, 'measurement')}, {time.monotonic() - began_s:.0f} s"
        )
        if {each.arm for each in runs} == {"BASE", "HEAD"} and not any(each.run.records for each in runs):
            break  # neither version measures anything: no further run will
    return runs


def prepare(tree: Tree, setup: str | None, log: Path) -> None:
    """Set a worktree up, and warn of what any tree imports from elsewhere."""
    if setup is not None and tree.is_worktree:
        say(f"setting {tree.arm} up: {setup}")
        run_setup(setup, tree, log)
    for name, origin in tree.foreign_modules().items():
        say(f"warning: {tree.arm} imports {name} from {origin}, not from its own tree: what is measured is not it")


def run_setup(command: str, tree: Tree, log: Path) -> None:
    """Run the user's command in a worktree; raise BadRequest with the end of what it printed if it fails."""
    status = run_logged(["sh", "-c", command], tree.root, tree.environment(), log)
    if status:
        raise BadRequest(f"--setup failed in {tree.arm} (exit status {status}); it ended with:\n{tail(log)}")
