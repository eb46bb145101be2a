"""Compare the profiler's start in the background with one that the first measurement waits for: `startup`."""

import itertools
import time
from collections.abc import Sequence

from pytest_gpubench import bench
from tests.on_gpu.study.harness import in_fresh_process, parser_of, print_head, print_row

STARTUPS = 2
OWN_WORK_S = 4.0
STEPS = ("begin", "work", "wait", "measure")


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


def main(arguments: Sequence[str]) -> None:
    parser_of("startup", __doc__).parse_args(arguments)
    print_head("start | begin s | the test's own work s | wait s | first measurement s | all s")
    for mode in ("background", "lazy") * STARTUPS:
        took = in_fresh_process(start_up, mode)
        print_row(" | ".join([mode, *(f"{took[name]:.2f}" for name in (*STEPS, "all"))]))
