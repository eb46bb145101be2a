"""Regions and phases on the real thing: each kernel in the region that launched it, and the timed reps as without."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_gpubench import Region, bench, region
from pytest_gpubench.bench.phases import PhasesRequest, phase_calls
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.base import Rep
from pytest_gpubench.timing.calls import Backward, make_arguments, make_call
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.regions import forget_regions, take_regions
from pytest_gpubench.timing.rounds import Sample
from pytest_gpubench.verdict.limits import Limits
from tests.on_gpu.study.harness import take_reps
from tests.on_gpu.test_complete import sleep

MARK = "gpu_bench_noop"
OUTSIDE = "(outside)"

Function = Callable[[], object]
ELEMENTS = 2**24


def regions_of(function: Function, backward: Backward = "forward") -> tuple[list[Rep], dict[str, Region]]:
    """Return the timed reps of a function, and its regions by path."""
    call, timer = make_call(function, backward=backward, label="step"), ProfilerTimer(find_device("cuda"), "cold")
    call.prepare()()
    forget_regions()
    list(take_reps(timer, call, 20))  # an idle GPU is slow at first
    reps = list(take_reps(timer, call, 20))
    return reps, {each.path: each for each in take_regions(timer, timer.device, call, 0.0, Sample(reps))}


def check_sums(reps: list[Rep], found: dict[str, Region], within: float = 0.05) -> None:
    """Parts add up to the whole of their own reps exactly, and to about the time of those without marks."""
    wholes_ns = [sum(each.own_ns[rep] for each in found.values()) for rep in range(len(found[OUTSIDE].own_ns))]
    tops = [each for each in found.values() if not each.depth]
    assert wholes_ns == [sum(each.total_ns[rep] for each in tops) for rep in range(len(wholes_ns))]
    timed_us = sorted(rep.elapsed_us for rep in reps)[len(reps) // 2]
    marked_us = sorted(wholes_ns)[len(wholes_ns) // 2] / 1e3
    assert marked_us == pytest.approx(timed_us, rel=within, abs=1.0)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(ELEMENTS, device="cuda")


def test_kernels_and_copies_are_where_they_were_launched(x: torch.Tensor) -> None:
    out = torch.empty_like(x)

    def step() -> None:
        out.fill_(1)
        with region("compute"):
            torch.neg(x, out=out)
            with region("copies"):
                out.copy_(x)
            for _ in range(3):
                with region("sin"):
                    torch.sin(x, out=out)
        torch.cos(x, out=out)

    reps, found = regions_of(step)
    check_sums(reps, found)
    assert {path: each.calls for path, each in found.items()} == {
        "compute": 1,
        "compute/copies": 1,
        "compute/sin": 3,
        OUTSIDE: 0,
    }
    records = {record.name: record.duration_ns for record in reps[-1].records}
    copied_ns = sum(length for name, length in records.items() if name.startswith("Mem"))
    assert found["compute/copies"].median_us == pytest.approx(copied_ns / 1e3, rel=0.2)
    assert found["compute/sin"].median_us == pytest.approx(3 * found["compute"].own_median_us, rel=0.2)
    assert all(each.own_median_us > 0 for each in found.values())
    assert not any(record.name == MARK for rep in reps for record in rep.records)


def test_many_short_kernels_are_told_apart(x: torch.Tensor) -> None:
    """What runs is far behind what is launched: clocks of the host would not tell whose kernel it is."""
    small = torch.ones(64, device="cuda")

    def step() -> None:
        sleep(2_000_000)
        for _ in range(100):
            with region("one"):
                small.add_(1)
            with region("two"):
                small.mul_(1)
                small.mul_(1)

    _, found = regions_of(step)
    assert (found["one"].calls, found["two"].calls) == (100, 100)
    assert found["two"].median_us == pytest.approx(2 * found["one"].median_us, rel=0.25)
    assert found[OUTSIDE].share > 0.5


def test_on_several_streams(x: torch.Tensor, side_stream: torch.cuda.Stream) -> None:
    def step() -> None:
        main = torch.cuda.current_stream()
        with region("side"), torch.cuda.stream(side_stream):
            side_stream.wait_stream(main)
            sleep(1_000_000)
        with region("main"):
            sleep(500_000)
        main.wait_stream(side_stream)

    _, found = regions_of(step)
    assert found["side"].median_us == pytest.approx(2 * found["main"].median_us, rel=0.1)
    assert found[OUTSIDE].median_us < 0.05 * found["main"].median_us


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        with region("squared"):
            return grad.mul(x).mul_(2)


def test_in_a_backward_on_the_thread_of_autograd(x: torch.Tensor) -> None:
    x.requires_grad_()

    def step() -> None:
        x.grad = None
        with region("forward"):
            loss = torch.sin(Squared.apply(x)).sum()  # type: ignore[no-untyped-call]
        with region("backward"):
            torch.autograd.backward(loss)

    reps, found = regions_of(step)
    check_sums(reps, found)
    assert list(found) == ["forward", "backward", "backward/squared", OUTSIDE]
    assert found["backward/squared"].own_median_us > 0
    assert found["backward"].own_median_us > 0
    assert found[OUTSIDE].total_ns == (0,) * len(found[OUTSIDE].total_ns)


def test_a_call_with_regions_may_overwrite_its_arguments(x: torch.Tensor) -> None:
    """The copies that put them back run before each rep, in no region."""

    def step(values: torch.Tensor) -> None:
        with region("double"):
            values.mul_(2)

    timing = bench.measure(step, x, reps=12)
    assert {each.path: each.share for each in timing.regions} == {"double": 1.0, OUTSIDE: 0.0}
    assert "overwrites" in timing.flags


def test_a_graph_belongs_to_the_region_that_replays_it(x: torch.Tensor) -> None:
    out = torch.empty_like(x)

    def captured() -> None:
        with region("left out"):
            torch.sin(x, out=out)
            torch.cos(x, out=out)

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        captured()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured()

    def step() -> None:
        with region("replay"):
            graph.replay()
        with region("eager"):
            torch.neg(x, out=out)

    reps, found = regions_of(step)
    check_sums(reps, found)
    assert list(found) == ["replay", "eager", OUTSIDE]
    assert found["replay"].median_us == pytest.approx(2 * found["eager"].median_us, rel=0.3)


# phases


def measured(phases: dict[str, Function], whole: Function | None = None) -> Any:
    settings = Settings(device="cuda")
    calls, label = phase_calls(phases, whole, make_arguments())
    request = PhasesRequest(settings, find_device("cuda"), Limits(), (), calls, label)
    return request.measure(lambda text: None).result


def test_phases_that_hand_over_in_the_cache_take_longer_alone(cached: torch.Tensor) -> None:
    a, b = torch.empty_like(cached), torch.empty_like(cached)

    def first() -> None:
        torch.neg(cached, out=a)

    def second() -> None:
        torch.neg(a, out=b)

    def both() -> None:
        first()
        second()

    found = measured({"first": first, "second": second}, both)
    assert found.ratio > 1.05
    assert "starts with a cold cache" in found.sentence
