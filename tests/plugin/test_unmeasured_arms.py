"""Functions without a number: the timer that their record names."""

import pytest
import torch

from pytest_gpubench.bench.plan import unmeasured
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.results.model import DeviceFacts
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing import make_timer
from tests.plugin.conftest import BenchRun, RecordRun

GPU = Device(torch.device("cpu"), DeviceFacts(type="cuda", name="NVIDIA H200", host="here"))
TIMERS = ("profiler", "events", "graph", "wall", "scripted")
WRONG = """
import torch

def test_it(gpu_bench):
    x = torch.ones(8, device=gpu_bench.device)
    gpu_bench.compare(lambda x: x + 1, lambda x: x, (x,), names=("mine", "theirs"))
"""


@pytest.mark.parametrize("timer", TIMERS)
def test_on_the_cpu_it_is_the_timer_that_stands_in(timer: str) -> None:
    device = cpu_device()
    found = unmeasured("a", device, Settings(timer=timer), "why")
    assert found.timer == make_timer(timer, device, "cold").name
    assert found.timer in ("wall", "scripted")


@pytest.mark.parametrize("timer", TIMERS)
def test_on_a_gpu_it_is_the_timer_that_was_asked_for(timer: str) -> None:
    assert unmeasured("a", GPU, Settings(timer=timer), "why").timer == timer


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_a_failed_comparison_on_the_cpu_names_no_profiler(bench_run: BenchRun, record_run: RecordRun) -> None:
    result = bench_run(WRONG, timer="profiler")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["mine against its reference: not measured"])
    result.stdout.no_fnmatch_line("*, profiler*")
    (record,) = record_run(WRONG, "--gpu-bench-timer=profiler").records
    assert {item.timing.timer for item in record.measurements} == {"wall"}
