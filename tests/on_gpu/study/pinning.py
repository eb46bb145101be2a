"""Compare medians alone, on several GPUs at once, and by two processes on one GPU with and without turns.

pinning [ways|faster]      without a name, both

`ways` prints for each kernel its median alone, and how far from that it is with one process on each GPU at the same
time, with two runs that take turns on one GPU, and, as a rival, with two that do not (they use other lock folders).
`faster` prints how much faster a suite is with one worker for each GPU than with one worker.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pytest_gpubench.gpu.visible import find_visible
from pytest_gpubench.results.model import TestRecord, decode
from tests.on_gpu.study.harness import parser_of
from tests.plugin.hosts import KEEP, overlaps

SUITE = """
import pytest, torch

@pytest.mark.parametrize("again", range({repeats}))
@pytest.mark.parametrize("kernel", {kernels})
@pytest.mark.parametrize("size", {sizes})
def test_kernel(gpu_bench, size, kernel, again):
    side = int(size ** 0.5) // 64 * 64
    x = torch.randn(side, side, device=gpu_bench.device)
    function = {{"neg": x.neg, "softmax": lambda: x.softmax(-1), "matmul": lambda: x @ x}}[kernel]
    gpu_bench.measure(function, reps={reps}, label=f"{{kernel}} {{side}}")
"""


def start(folder: Path, locks: str, gpus: Sequence[str], *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a run of the suite on these GPUs."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "-p", "no:cacheprovider"]
    options = ["--gpu-bench-quiet", f"--gpu-bench-lock-folder={folder / locks}", *arguments]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    return subprocess.Popen([*command, *options], cwd=folder, env=environment, stdout=subprocess.DEVNULL)


MANY = {"sizes": [2**20, 2**24, 2**26], "kernels": ["neg", "softmax", "matmul"], "reps": 100}
FASTER_REPEATS = 30
SHORT = {"sizes": [2**20, 2**22, 2**24], "kernels": ["neg", "softmax"], "reps": 1000}


def take(
    repeats: int, runs: Sequence[tuple[str, Sequence[str], Sequence[str]]], what: dict[str, object] = MANY
) -> tuple[list[TestRecord], float]:
    """Run (lock folder, GPUs, arguments) at once; return what they measured, and the seconds that took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(KEEP)
        (folder / "test_suite.py").write_text(SUITE.format(repeats=repeats, **what))
        began_s = time.monotonic()
        processes = [start(folder, locks, gpus, *arguments) for locks, gpus, arguments in runs]
        status = [process.wait() for process in processes]
        took_s = time.monotonic() - began_s
        if any(status):
            print(f"a run ended with {status}")
        lines = (folder / "records.jsonl").read_text().splitlines()
    return [decode(line) for line in lines], took_s


def medians(records: Sequence[TestRecord]) -> dict[str, list[float]]:
    """Return the medians of each kernel in microseconds."""
    found: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for measurement in record.measurements:
            if measurement.timing.measured:
                found[measurement.timing.label].append(measurement.timing.median_us)
    return found


def report(ways: dict[str, list[TestRecord]]) -> None:
    """Print each kernel's median alone, and the median and worst deviation from it in each other way."""
    alone = {label: statistics.median(values) for label, values in medians(ways["alone"]).items()}
    print(f"{'kernel':<16}{'alone (us)':>12}" + "".join(f"{way:>28}" for way in ways))
    for label, base in alone.items():
        cells = []
        for records in ways.values():
            deviations = [value / base - 1 for value in medians(records).get(label, [])]
            middle, worst = statistics.median(deviations), max(deviations, key=abs)
            cells.append(f"{middle:+.2%}, worst {worst:+.2%}".rjust(28))
        print(f"{label:<16}{base:>12.2f}{''.join(cells)}")
    for way, records in ways.items():
        print(f"{way}: {len(records)} tests, {len(overlaps(records))} turns overlapped on one GPU")


def study_ways(gpus: Sequence[str]) -> None:
    """Compare medians alone, on all GPUs at once, and by two runs on one GPU with and without turns."""
    one = gpus[:1]
    take(1, [("locks", one, [])])  # what is compiled and cached is so for all
    ways = {
        "alone": take(3, [("locks", one, [])])[0],
        f"{len(gpus)} GPUs at once": take(3, [("locks", [gpu], []) for gpu in gpus])[0],
        "two by turns": take(3, [("locks", one, []), ("locks", one, [])])[0],
        "two without turns": take(3, [("locks", one, []), ("other", one, [])])[0],
    }
    report(ways)


def study_faster(gpus: Sequence[str]) -> None:
    """Compare a suite with one worker and with one for each GPU."""
    take(1, [("locks", gpus[:1], [])], SHORT)
    single, single_s = take(FASTER_REPEATS, [("locks", gpus, ["-n1"])], SHORT)
    many, many_s = take(FASTER_REPEATS, [("locks", gpus, ["-n", "auto"])], SHORT)
    ratios = [
        statistics.median(values) / statistics.median(medians(single)[label]) for label, values in medians(many).items()
    ]
    found = {
        "tests": (len(single), len(many)),
        "one worker (s)": round(single_s, 1),
        f"{len(gpus)} workers (s)": round(many_s, 1),
        "faster": round(single_s / many_s, 2),
        "from the first turn on, faster": round(testing_s(single) / testing_s(many), 2),
        "tests a second, after each worker's first, faster": round(tests_per_s(many) / tests_per_s(single), 2),
        "medians differ by at most": f"{max(abs(ratio - 1) for ratio in ratios):.2%}",
        "overlaps": len(overlaps(many)),
    }
    print(json.dumps(found))


def tests_per_s(records: Sequence[TestRecord]) -> float:
    """Return how many tests end in a second once every worker has started its profiler, with its first test."""
    ends: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.turn is not None:
            ends[record.worker].append(record.turn.ended_s)
    started_s = max(min(of_worker) for of_worker in ends.values())
    later = [ended_s for of_worker in ends.values() for ended_s in of_worker if ended_s > started_s]
    return len(later) / (max(later) - started_s)


def testing_s(records: Sequence[TestRecord]) -> float:
    """Return the seconds from the first turn's beginning to the last one's end."""
    turns = [record.turn for record in records if record.turn is not None]
    return max(turn.ended_s for turn in turns) - min(turn.began_s for turn in turns)


def main(arguments: Sequence[str]) -> None:
    studies = {"ways": study_ways, "faster": study_faster}
    parser = parser_of("pinning", __doc__)
    parser.add_argument("name", nargs="?", choices=studies)
    chosen = parser.parse_args(arguments)
    gpus = [gpu.uuid for gpu in find_visible()]
    for name in [chosen.name] if chosen.name else studies:
        studies[name](gpus)
