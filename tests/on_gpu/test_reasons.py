"""Reasons on the real thing: of a slower call the first names what was planted, of the same call none."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from typing import Literal

import msgspec
import pytest
import torch

from pytest_gpubench import GpuBench, LimitBroken, Measurement
from pytest_gpubench.gpu.foreign import find_foreign, read_gpu
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.gpu.visible import find_visible
from pytest_gpubench.results.baseline import Baseline
from pytest_gpubench.results.model import SavedRun, TestRecord
from pytest_gpubench.results.provenance import machine_info
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.saved_runs import BaselineLimit
from tests.on_gpu.slowdowns import COUNT, PLANTED, Planted, doubled, row_softmax, vector
from tests.on_gpu.study.harness import bench_of, study_test_with

UNKEPT_US = 1e-3
"""A limit that no call keeps."""
REPS = 30
"""Enough to fail it; so few count as independent, whatever the clock does meanwhile."""
SLOWER = 1.3
BUSY_S = 2.0
"""NVML's utilisation is a mean over up to a second."""
NEIGHBOUR = """
import torch
x = torch.randn(4096, 4096, device="cuda")
y = torch.empty_like(x)
print("ready", flush=True)
while True:
    for _ in range(100):
        torch.mm(x, x, out=y)
    torch.cuda.synchronize()
"""
OneCall = Callable[[torch.Tensor], torch.Tensor]
BESIDE: dict[str, tuple[OneCall, OneCall, str]] = {
    "num_warps that spill": (
        lambda x: row_softmax(x, 8),
        lambda x: row_softmax(x, 1),
        "softmax_kernel: num_warps 8 -> 1, local memory of a thread 0 B -> ",
    ),
    "a copy": (doubled, lambda x: doubled(x.clone()), "one more kernel: Memcpy"),
    "fewer blocks": (doubled, lambda x: doubled(x, blocks=16), f"doubling_kernel: blocks {COUNT // 1024} -> 16, on "),
}
"""A reference, a candidate, and the beginning of the first reason why it is slower."""


@contextmanager
def neighbour() -> Iterator[tuple[str, ...]]:
    """Keep the GPU busy from another process; yields what is said of it."""
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(BUSY_S)
            nvml = Nvml.open(find_visible()[0].uuid)
            found = find_foreign(read_gpu(nvml), [os.getpid()], uses_gpu=True)
            assert found is not None
            yield (found.sentence,)
        finally:
            process.kill()


def case_of(timer: Literal["profiler", "wall"], limits: Limits) -> CurrentTest:
    test = study_test_with(limits, seed=1)
    return replace(test, settings=replace(test.settings, timer=timer, json="run.json", reps=REPS))


def saved(function: Callable[[], object], timer: Literal["profiler", "wall"]) -> TestRecord:
    test = case_of(timer, Limits())
    bench_of(test).measure(function, label="call")
    return test.record("master", None, [])


def at_a_faster_clock(record: TestRecord) -> TestRecord:
    def faster(item: Measurement) -> Measurement:
        timing = item.timing
        kernels = (msgspec.structs.replace(each, median_us=each.median_us / SLOWER) for each in timing.kernels)
        timing = msgspec.structs.replace(
            timing,
            samples_us=tuple(us / SLOWER for us in timing.samples_us),
            sm_clock_mhz=tuple(mhz * SLOWER for mhz in timing.sm_clock_mhz),
            kernels=tuple(kernels),
        )
        return msgspec.structs.replace(item, timing=timing)

    return msgspec.structs.replace(record, measurements=tuple(map(faster, record.measurements)))


def first_reason(planted: Planted) -> str:
    """Return the first reason why a call fails beside a saved one, after a cause was planted."""
    before, after = planted.make()
    record = saved(before, planted.timer)
    record = at_a_faster_clock(record) if planted.beside == "faster clock before" else record
    run = SavedRun(records=(record,), datetime=datetime.now(timezone.utc).isoformat(), machine_info=machine_info())
    past = Baseline([("before", run)]).find(record.nodeid, record.source, record.device, record.params)
    test = case_of(planted.timer, Limits(max_time_us=UNKEPT_US))
    test.past = lambda facts: BaselineLimit(past, None)
    with neighbour() if planted.beside == "neighbour" else nullcontext(()) as found:
        test.neighbours = found
        with pytest.raises(LimitBroken) as raised:
            bench_of(test).measure(after, label="call")
    return str(raised.value).splitlines()[1]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_first_reason_names_the_cause_beside_an_older_run(planted: Planted) -> None:
    assert planted.words in first_reason(planted)


@pytest.mark.perf(min_speedup=1.0)
@pytest.mark.parametrize("planted", BESIDE)
def test_the_first_reason_names_the_cause_beside_a_reference(planted: str, gpu_bench: GpuBench) -> None:
    reference, candidate, words = BESIDE[planted]
    with pytest.raises(LimitBroken) as raised:
        gpu_bench.compare({"planted": candidate}, reference, args=(vector(),))
    assert str(raised.value).splitlines()[1].startswith(f"with it: {words}")


@pytest.mark.perf(min_speedup=1.5)
@pytest.mark.parametrize("number", range(20))
def test_the_same_call_has_no_reason(number: int, gpu_bench: GpuBench) -> None:
    functions: list[OneCall] = [doubled, lambda x: torch.softmax(x.view(1024, -1), -1), torch.nn.functional.gelu]
    function = functions[number % len(functions)]
    with pytest.raises(LimitBroken) as raised:
        gpu_bench.compare({"same": lambda x: function(x)}, function, args=(vector(),))
    assert len(str(raised.value).splitlines()) == 1
