"""A trace of real kernels: the call's and no others, beside the host's calls that launched them."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from pytest_gpubench.gpu.device import Device, find_device
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import make_arguments, make_call
from pytest_gpubench.timing.measurement import Plan, measure_call
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.traces import take_trace

PLAN = Plan(cache="cold", reps=20, warmup=3, precision=0.02, max_time_s=20)


RUNTIME = ("cuda_runtime", "cuda_driver")
"""Triton launches by the driver's own interface."""


def softmax_call() -> Call:
    x = torch.randn(2048, 2048, device="cuda")
    return make_call(lambda x: torch.softmax(x @ x, -1), make_arguments(setup=lambda: (x.clone(),)), label="f")


def events_in(path: Path | None) -> list[dict[str, Any]]:
    assert path is not None
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert isinstance(events, list)
    return events


def timed(call: Call, device: Device) -> Counter[str]:
    timing = measure_call(call, ProfilerTimer(device, "cold"), device, PLAN, lambda timing: True, lambda text: None)
    return Counter({kernel.name: kernel.launches for kernel in timing.kernels})


def test_a_trace_holds_the_timed_kernels_three_times_and_no_others(tmp_path: Path) -> None:
    device, call = find_device("cuda"), softmax_call()
    launched = timed(call, device)
    said: list[str] = []
    events = events_in(take_trace(call, device, tmp_path / "t.json.gz", warn=said.append))
    assert not said
    on_gpu = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert Counter(event["name"] for event in on_gpu) == Counter({name: 3 * each for name, each in launched.items()})
    assert sum(event.get("cat") == "user_annotation" for event in events) == 3
    assert "aten::softmax" in {event["name"] for event in events}
    launches = {event["args"]["correlation"] for event in events if event.get("cat") in RUNTIME}
    assert {event["args"]["correlation"] for event in on_gpu} <= launches
    assert timed(call, device) == launched, "measuring goes on after it"


def test_kernels_take_as_long_in_a_trace_as_in_a_timed_call(tmp_path: Path) -> None:
    device, call = find_device("cuda"), softmax_call()
    timing = measure_call(call, ProfilerTimer(device, "cold"), device, PLAN, lambda timing: True, lambda text: None)
    events = events_in(take_trace(call, device, tmp_path / "t.json.gz"))
    traced_us = sum(event["dur"] for event in events if event.get("cat") == "kernel") / 3
    assert 0.7 < traced_us / timing.median_us < 1.5


def test_a_replayed_graph_is_traced_kernel_by_kernel(tmp_path: Path) -> None:
    device, x = find_device("cuda"), torch.randn(1024, 1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.softmax(x + 1, -1)
    with torch.cuda.graph(graph):
        torch.softmax(x + 1, -1)
    events = events_in(take_trace(make_call(graph.replay, label="graph"), device, tmp_path / "t.json.gz"))
    assert sum(event.get("cat") == "kernel" for event in events) == 6
