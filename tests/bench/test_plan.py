import sys
from typing import Any

import pytest
from hypothesis.internal.scrutineer import Tracer

from pytest_gpubench import DeviceFacts
from pytest_gpubench.bench.plan import clock_warnings
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.settings import Settings

CPU = cpu_device()
GPU = Device(CPU.torch_device, DeviceFacts(type="cuda", name="NVIDIA H200", host="here"))
TRACED = ["coverage or a debugger traces Python, which slows what the host's clock times: use --no-cov"]
ELSEWHERE = ["timer='graph' needs a GPU: on the CPU the host's clock measures, timer='wall'"]


@pytest.mark.parametrize(
    ("device", "timer", "tracer", "said"),
    [
        (CPU, "profiler", None, []),
        (CPU, "profiler", print, TRACED),
        (CPU, "profiler", Tracer(should_trace=False).trace, []),
        (CPU, "graph", None, ELSEWHERE),
        (CPU, "graph", print, ELSEWHERE + TRACED),
        (CPU, "scripted", print, []),
        (GPU, "wall", None, []),
        (GPU, "wall", object(), TRACED),
        (GPU, "graph", print, []),
    ],
)
def test_what_to_mind_about_the_hosts_clock(
    monkeypatch: pytest.MonkeyPatch, device: Device, timer: Any, tracer: Any, said: list[str]
) -> None:
    """Whether or not this test is traced itself."""
    monkeypatch.setattr(sys, "gettrace", lambda: tracer)
    if hasattr(sys, "monitoring"):
        monkeypatch.setattr(sys.monitoring, "get_tool", lambda tool: None)
    assert clock_warnings(Settings(timer=timer), device) == said
