"""A trace of real kernels: the call's and no others, beside the host's calls that launched them."""

from collections import Counter
from pathlib import Path

import torch

from pytest_gpubench import Timing
from pytest_gpubench.gpu.device import Device, find_device
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import make_arguments, make_call
from pytest_gpubench.timing.measurement import Plan, measure_call
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.traces import take_trace
from tests.timing.test_traces import events_in

PLAN = Plan(cache="cold", reps=20, warmup=3, precision=0.02, max_time_s=20)

RUNTIME = ("cuda_runtime", "cuda_driver")
"""Triton launches by the driver's own interface."""


def softmax_call() -> Call:
    x = torch.randn(2048, 2048, device="cuda")
    return make_call(lambda x: torch.softmax(x @ x, -1), make_arguments(setup=lambda: (x.clone(),)), label="f")


def timed(call: Call, device: Device) -> Timing:
    return measure_call(call, ProfilerTimer(device, "cold"), device, PLAN, lambda timing: True, lambda text: None)


def launches_of(timing: Timing, times: int = 1) -> Counter[str]:
    return Counter({kernel.name: times * kernel.launches for kernel in timing.kernels})


def test_a_trace_holds_the_timed_kernels_three_times_and_no_others(tmp_path: Path) -> None:
    """They take as long as in a timed call, and measuring goes on after it."""
    device, call = find_device("cuda"), softmax_call()
    timing, said = timed(call, device), list[str]()
    events = events_in(take_trace(call, device, tmp_path / "t.json.gz", warn=said.append))
    assert not said
    on_gpu = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert Counter(event["name"] for event in on_gpu) == launches_of(timing, times=3)
    assert sum(event.get("cat") == "user_annotation" for event in events) == 3
    assert "aten::softmax" in {event["name"] for event in events}
    launches = {event["args"]["correlation"] for event in events if event.get("cat") in RUNTIME}
    assert {event["args"]["correlation"] for event in on_gpu} <= launches
    assert 0.7 < sum(event["dur"] for event in on_gpu) / 3 / timing.median_us < 1.5
    assert launches_of(timed(call, device)) == launches_of(timing)


def test_a_replayed_graph_is_traced_kernel_by_kernel(tmp_path: Path) -> None:
    device, x = find_device("cuda"), torch.randn(1024, 1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.softmax(x + 1, -1)
    with torch.cuda.graph(graph):
        torch.softmax(x + 1, -1)
    events = events_in(take_trace(make_call(graph.replay, label="graph"), device, tmp_path / "t.json.gz"))
    assert sum(event.get("cat") == "kernel" for event in events) == 6
