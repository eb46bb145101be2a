import sys
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis.internal.scrutineer import Tracer

from pytest_gpubench import BadRequest, DeviceFacts
from pytest_gpubench.bench.plan import call_settings
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.calls import Backward

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
    assert call_settings(Settings(timer=timer), device, "forward")[1] == said


@pytest.mark.parametrize("backward", ["forward", "both", "backward"])
def test_a_graph_of_backward_alone_is_refused(backward: Backward) -> None:
    with pytest.raises(BadRequest, match="use backward='both'") if backward == "backward" else nullcontext():
        call_settings(Settings(timer="graph"), GPU, backward)


def test_a_seed_is_drawn_for_each_call_unless_it_is_given() -> None:
    """One that is drawn is hardly twice the same in a row of three; that of scripted times always is."""
    drawn = {call_settings(Settings(), CPU, "forward")[0].seed for _ in range(3)}
    assert len(drawn) > 1
    assert call_settings(Settings(seed=7), CPU, "forward")[0].seed == 7
    assert call_settings(Settings(timer="scripted"), CPU, "forward")[0].seed == 0
