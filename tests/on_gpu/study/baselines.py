"""Count how often unchanged code fails against a saved run, and how surely a planted slowdown is found.

baselines runs FOLDER SECONDS      save a baseline, then run processes in turn, unchanged and planted
baselines judge FOLDER ...         print what the plugin said, and what compare_runs says of five runs in a row

The baseline has five sessions. Where the plugin measures a slower test again, five processes have to agree.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pytest_gpubench.cli.compare import compare_runs
from pytest_gpubench.results.model import Outcome, SavedRun
from pytest_gpubench.results.store import read_run
from pytest_gpubench.stats.tolerance import parse_tolerance
from tests.on_gpu.study.harness import parser_of

SAVED_SESSIONS = 5
PLANTED = 1.05
ALPHA = 0.001
OPTIONS = ["-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:benchmark", "--gpu-bench-quiet"]


def run_tests(folder: Path, name: str, tolerance: str | None, planted: float) -> None:
    """Run the tests in a process of their own."""
    options = [f"--gpu-bench-json={folder / name}.json", f"--junitxml={folder / name}.xml"]
    if tolerance is None:
        options += ["--gpu-bench-save=baseline", f"--gpu-bench-storage={folder / 'storage'}"]
    else:
        options += [f"--gpu-bench-compare={folder / 'baseline.json'}", f"--gpu-bench-compare-fail={tolerance}"]
    command = [sys.executable, "-m", "pytest", str(Path(__file__).with_name("baseline_tests.py")), *OPTIONS, *options]
    subprocess.run(command, env={**os.environ, "PLANTED": str(planted)}, stdout=subprocess.DEVNULL, check=False)


def take_runs(folder: Path, seconds: float) -> None:
    """Save a baseline, then compare with it until the time is up: unchanged, unchanged, planted by turns."""
    folder.mkdir(parents=True, exist_ok=True)
    ends_s = time.monotonic() + seconds
    run_tests(folder, "baseline", None, 1)
    number = 0
    while time.monotonic() < ends_s:
        tolerance = ("median:3%", "speedup:3%")[number % 2]
        run_tests(folder, f"same-{number}", tolerance, 1)
        run_tests(folder, f"planted-{number}", tolerance, PLANTED)
        number += 1


def verdicts(run: SavedRun) -> Counter[tuple[str, Outcome]]:
    """Return how the plugin's verdicts about the past came out, by what the test does."""
    return Counter(
        (record.nodeid.partition("::")[2].partition("[")[0], verdict.outcome)
        for record in run.records
        for item in record.measurements
        for verdict in item.verdicts
    )


def joined(runs: Sequence[SavedRun]) -> SavedRun:
    """Return the runs, each of a process of its own, as the sessions of one."""
    *earlier, last = runs
    before = [record for each in earlier for record in (*each.earlier, *each.records)]
    return msgspec.structs.replace(last, earlier=(*before, *last.earlier))


def judge(folders: list[Path]) -> None:
    """Print what the plugin said, then what the baseline says of every five runs in a row."""
    for kind in ("same", "planted"):
        for which, tolerance in ((0, "median:3%"), (1, "speedup:3%")):
            said: Counter[tuple[str, Outcome]] = Counter()
            paths = [path for folder in folders for path in folder.glob(f"{kind}-*.json")]
            chosen = [path for path in paths if int(path.stem.rpartition("-")[2]) % 2 == which]
            for path in chosen:
                said += verdicts(read_run(path))
            told = ", ".join(f"{name} {outcome.name} {number}" for (name, outcome), number in sorted(said.items()))
            print(f"plugin, {kind}, {tolerance}, {len(chosen)} runs: {told}")
    for text in ("median:3%", "median:2%", "median:1%", "speedup:3%", "speedup:1%"):
        for kind in ("same", "planted"):
            found, furthest = Counter[Outcome](), 1.0
            for folder in folders:
                runs = [read_run(path) for path in sorted(folder.glob(f"{kind}-*.json"))]
                for first in range(len(runs) - SAVED_SESSIONS + 1):
                    new = joined(runs[first : first + SAVED_SESSIONS])
                    for change in compare_runs(read_run(folder / "baseline.json"), new, parse_tolerance(text), ALPHA):
                        if change.outcome is not Outcome.NOT_JUDGED and change.estimate is not None:
                            found[change.outcome] += 1
                            furthest = max(furthest, change.estimate.ratio, 1 / change.estimate.ratio)
            told = ", ".join(f"{outcome.name} {number}" for outcome, number in found.items())
            print(f"five runs, {kind}, {text}: {told}; the furthest from the baseline {furthest:.4f}x")


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("baselines", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs, judging = commands.add_parser("runs"), commands.add_parser("judge")
    runs.add_argument("folder", type=Path)
    runs.add_argument("seconds", type=float)
    judging.add_argument("folders", type=Path, nargs="+")
    chosen = parser.parse_args(arguments)
    if chosen.command == "runs":
        take_runs(chosen.folder, chosen.seconds)
    else:
        judge(chosen.folders)
