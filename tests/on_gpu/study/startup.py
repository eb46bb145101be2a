"""Compare the profiler's start in the background with one that the first measurement waits for: `startup`.

With --empty, time pytest with one empty test instead, with the plugin and without it, which needs no GPU.
"""

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pytest_gpubench import bench
from tests.on_gpu.study.harness import in_fresh_process, parser_of, print_head, print_row

STARTUPS = 2
OWN_WORK_S = 4.0
STEPS = ("begin", "work", "wait", "measure")
EMPTY_PAIRS = 40


def start_up(mode: str) -> dict[str, float]:
    """Return how long each step took until the first measurement, with work of the test's own before it."""
    import torch

    from pytest_gpubench.gpu.device import find_device
    from pytest_gpubench.timing.profiler import start_in_background
    from pytest_gpubench.timing.startup import wait_for_startup
    from tests.on_gpu.study.workloads import softmax

    device = find_device("cuda")
    torch.ones(1, device="cuda")
    marks_s = [time.perf_counter()]
    if mode == "background":
        start_in_background(device)
    marks_s.append(time.perf_counter())
    function = softmax()
    expected = torch.randn(1500, 1500, dtype=torch.float64)
    while time.perf_counter() - marks_s[-1] < OWN_WORK_S:  # a reference on the CPU, and launches
        expected = (expected @ expected).clamp(-1, 1)
        function()
    torch.cuda.synchronize()
    marks_s.append(time.perf_counter())
    wait_for_startup()
    marks_s.append(time.perf_counter())
    bench.measure(function)
    marks_s.append(time.perf_counter())
    took = dict(zip(STEPS, (after - before for before, after in itertools.pairwise(marks_s)), strict=True))
    return {**took, "all": marks_s[-1] - marks_s[0]}


def time_empty(folder: str, *options: str) -> float:
    """Return the seconds that pytest takes for the tests of a folder."""
    command = [sys.executable, "-m", "pytest", "-q", *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began_s = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began_s


def compare_empty() -> None:
    """Time runs with and without the plugin in turn, after one of each that writes bytecode."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_it.py").write_text("def test_it(): pass\n")
        Path(folder, "pytest.ini").write_text("[pytest]\n")
        pairs = [(time_empty(folder), time_empty(folder, "-p", "no:gpu_bench")) for _ in range(EMPTY_PAIRS + 1)][1:]
    with_s, without_s = map(statistics.median, zip(*pairs, strict=True))
    print_head("with the plugin s | without s | median of differences s")
    print_row(f"{with_s:.3f} | {without_s:.3f} | {statistics.median(a - b for a, b in pairs):.3f}")


def main(arguments: Sequence[str]) -> None:
    parser = parser_of("startup", __doc__)
    parser.add_argument("--empty", action="store_true", help="time an empty test")
    if parser.parse_args(arguments).empty:
        return compare_empty()
    print_head("start | begin s | the test's own work s | wait s | first measurement s | all s")
    for mode in ("background", "lazy") * STARTUPS:
        took = in_fresh_process(start_up, mode)
        print_row(" | ".join([mode, *(f"{took[name]:.2f}" for name in (*STEPS, "all"))]))
