"""Gates on times beside a process that keeps the GPU busy: a regression, and speedups of at least 0.98 and 0.9."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_gpubench import Measurement
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.results.store import read_run
from tests.on_gpu.study.counted_runs import ROOT, run
from tests.on_gpu.study.harness import print_head, print_row
from tests.on_gpu.study.neighbour import NEIGHBOURS, neighbour

TESTS = Path(__file__).with_name("timed_tests.py")
TOLERANCE = "median:5%"


def gate(beside: Sequence[str]) -> None:
    """Save a run, then judge the same code beside each of these neighbours."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common = ["pytest", str(TESTS), "--noconftest", "-q", "-p", "no:cacheprovider"]
        common += [f"--gpu-bench-storage={folder / 'storage'}", "--gpu-bench-sessions=1"]
        run("saved", 0, [*common, "--gpu-bench-save=main", "-k", "test_time"], ROOT)
        for title in beside:
            path = folder / f"{title}.json"
            past = ("--gpu-bench-compare=main", f"--gpu-bench-compare-fail={TOLERANCE}", f"--gpu-bench-json={path}")
            with neighbour(NEIGHBOURS[title]):
                run(f"beside {title}", 1, [*common, *past], ROOT)
            print_verdicts(title, [item for each in read_run(path).records for item in each.measurements])


def print_verdicts(title: str, measured: list[Measurement]) -> None:
    print_head(f"beside {title} | PASS | FAIL | INCONCLUSIVE | INVALID")
    judged = [(verdict.limit, verdict.outcome) for item in measured for verdict in item.verdicts]
    for limit in dict(judged):
        found = Counter(outcome for named, outcome in judged if named == limit)
        print_row(f"{limit} | {' | '.join(str(found[each]) for each in _columns())}")
    for item in measured:
        for verdict in item.verdicts:
            print(f"  {verdict.outcome.value}: {'; '.join(verdict.lines)}", flush=True)


def _columns() -> Iterator[Outcome]:
    yield from (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.INVALID)
