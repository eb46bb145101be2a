"""Count how surely a search finds a planted defect, how far it shrinks it, and whether it passes sound kernels.

search find [NAME] [--seeds N]      each planted defect, a run of pytest for each seed
search sound [--runs N]             a kernel 3 % better than its limit
"""

import re
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.on_gpu.study import planted_tests
from tests.on_gpu.study.harness import parser_of, print_head, print_row

BOUNDARIES = {
    "slow_widths": "(1, 17)",
    "partial_tiles": "(1, 129)",
    "many_rows": "(65537, 1)",
    "peaked_logits": "(1, 2) or (1, 3), peaked",
}
OPTIONS = ["-q", "--noconftest", "--no-header", "--no-summary", "--gpu-bench-quiet"]
OPTIONS += ["-p", "no:cacheprovider", "-p", "no:benchmark", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
TROUBLE = ("Flaky", "DeadlineExceeded", "FailedHealthCheck", "Unsatisfiable")


class Watcher:
    """Note how a run's only test ended."""

    def __init__(self) -> None:
        self.outcome = "nothing"
        self.text = ""
        self.seconds = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self.outcome, self.seconds = report.outcome, report.duration
            self.text = report.longreprtext


def run(name: str, seed: int) -> Watcher:
    """Run one planted test with this seed."""
    watcher = Watcher()
    planted_tests.called[0] = 0
    path = Path(__file__).with_name("planted_tests.py")
    options = [*OPTIONS, f"--hypothesis-seed={seed}"]
    pytest.main([f"{path}::test_{name}", *options], plugins=[watcher])
    return watcher


def example_in(text: str) -> str:
    """Return the example that hypothesis gives for a failure."""
    found = re.findall(r"\b(?:shape|x)=((?:tensor)?\(.*\)),?$", text, re.MULTILINE)
    return found[-1].rstrip(",") if found else "?"


def find(name: str, seeds: int) -> str:
    """Return a row on how often a planted defect was found."""
    runs, calls = [], []
    for seed in range(seeds):
        runs.append(run(name, seed))
        calls.append(planted_tests.called[0])
        print(f"  {name} seed {seed}: {runs[-1].outcome}, {calls[-1]} calls, {runs[-1].seconds:.1f} s, ", end="")
        print(example_in(runs[-1].text), flush=True)
    found = [each for each in runs if each.outcome == "failed" and not any(word in each.text for word in TROUBLE)]
    examples = Counter(example_in(each.text) for each in found)
    seconds = [each.seconds for each in runs]
    return (
        f"{name} | {len(found)} of {seeds} | {statistics.median(calls):g} ({min(calls)} to {max(calls)}) | "
        f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f}) | {BOUNDARIES[name]} | "
        + "; ".join(f"{example} x {number}" for example, number in examples.most_common())
    )


def sound(runs: int) -> str:
    """Return a line on how the runs of a sound kernel ended."""
    outcomes: Counter[str] = Counter()
    for seed in range(runs):
        watcher = run("sound", seed)
        outcomes[next((word for word in TROUBLE if word in watcher.text), watcher.outcome)] += 1
        if watcher.outcome != "passed":
            print(watcher.text[-3000:], flush=True)
    return f"sound: {dict(outcomes)} in {runs} runs"


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("search", __doc__)
    parser.add_argument("what", choices=["find", "sound"])
    parser.add_argument("names", nargs="*", default=list(BOUNDARIES), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=200)
    chosen = parser.parse_args(arguments)
    if chosen.what == "sound":
        print(sound(chosen.runs))
        return
    rows = [find(name, chosen.seeds) for name in chosen.names]
    print_head("planted | found | calls, median (range) | seconds, median (range) | expected | shrunk to")
    for row in rows:
        print_row(row)
