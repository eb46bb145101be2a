"""Regions: boundaries, the time of each, errors, and no effect where nothing is measured."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pytest_gpubench import BadRequest, IncompleteRecords, KernelsDiffer, Region, region
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.timing import make_timer, profiler, regions
from pytest_gpubench.timing.base import Record, Rep
from pytest_gpubench.timing.calls import make_arguments, make_call
from pytest_gpubench.timing.compilations import counting_compilations
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.regions import forget_regions, take_regions
from pytest_gpubench.timing.rounds import Sample
from pytest_gpubench.timing.tracing_tax import Taxes
from tests.timing.fakes import ProfilerEvent

END = "gpu_bench_end"
BEGIN = "gpu_bench_begin"
OUTSIDE = "(outside)"
MARK = "gpu_bench_noop"
REGION_REPS = 10

Function = Callable[[], object]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    forget_regions()
    yield
    assert regions._trace is None


# a GPU that is told what its kernels take


@dataclass
class FakeGpu:
    """Runs what it is given one after the other; stands for the sentinels and for the profile too."""

    recorded: list[ProfilerEvent] = field(default_factory=list)
    number: int = 0
    now_ns: int = 1000
    free_ns: int = 1000
    losing: set[str] = field(default_factory=set)
    """Kernels of which no record comes back, once each."""

    def launch(self, name: str, length_ns: int, late_ns: int = 0) -> None:
        """Launch a kernel; a late one starts when others that are launched after it may have run already."""
        self.number += 1
        if name in self.losing:
            self.losing.remove(name)
            return
        self.recorded.append(ProfilerEvent("cudaLaunchKernel", 0, 5, self.number))
        self.recorded.append(ProfilerEvent(name, self.now_ns + late_ns, length_ns, self.number))
        self.free_ns = max(self.free_ns, self.now_ns + late_ns + length_ns)
        if not late_ns:
            self.now_ns += length_ns

    def wait(self) -> None:
        self.now_ns = self.free_ns

    def begin(self, slot: int) -> None:
        self.wait()
        self.launch(BEGIN, 2)

    def end(self, slot: int) -> None:
        self.wait()
        self.launch(END, 2)

    def noop(self) -> None:
        self.launch(MARK, 1)

    def read_clocks(self, reps: int) -> list[float | None]:
        return [None] * reps

    @property
    def kineto_results(self) -> "FakeGpu":
        return self

    def events(self) -> list[ProfilerEvent]:
        return self.recorded


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu()

    @contextmanager
    def tracing(device: Device) -> Iterator[FakeGpu]:
        gpu.recorded = []
        yield gpu

    monkeypatch.setattr(profiler, "tracing", tracing)
    return gpu


def timer_of(gpu: FakeGpu) -> ProfilerTimer:
    timer = object.__new__(ProfilerTimer)
    timer.device, timer.flush, timer.sentinels = cpu_device(), lambda: None, cast(Any, gpu)
    timer.cache, timer.flush_kernels = "hot", ()
    timer.taxes = Taxes(cast(Any, None), cast(Any, None), [])
    return timer


def regions_on(gpu: FakeGpu, function: Function, kernels: str = "", reps: int = 3, **given: Any) -> tuple[Region, ...]:
    """Return the regions of a function whose timed reps launched these kernels; by default those it does launch."""
    call, timer = make_call(function, replace(make_arguments(), **given), label="step"), timer_of(gpu)
    with profiler.ProfilerSession(timer) as session:
        session.take(call, 0)
    (rep,) = session.reps()
    if kernels:
        rep = Rep(1.0, tuple(Record(name, "kernel", 0, 1, 1) for name in kernels))
    return take_regions(timer, cpu_device(), call, 0.0, Sample([rep] * reps))


def own_ns(found: tuple[Region, ...]) -> dict[str, list[int]]:
    return {each.path: list(each.own_ns) for each in found}


@pytest.mark.parametrize(
    ("paths", "ordered"),
    [
        (["b", "a"], ["b", "a"]),
        (["a", "a/x", "b", "a/x/z", "b/x", "a/y"], ["a", "a/x", "a/x/z", "a/y", "b", "b/x"]),
        (["aa", "a", "aa/x", "a/x"], ["aa", "aa/x", "a", "a/x"]),
    ],
)
def test_what_is_nested_follows_what_is_around_it(gpu: FakeGpu, paths: list[str], ordered: list[str]) -> None:
    def step() -> None:
        for path in paths:
            with ExitStack() as entered:
                for name in path.split("/"):
                    entered.enter_context(region(name))
                gpu.launch("kernel", 1_000)

    assert [each.path for each in regions_on(gpu, step)] == [*ordered, OUTSIDE]


def one_region(gpu: FakeGpu) -> Function:
    def step() -> None:
        with region("all"):
            gpu.launch("any", 7)

    return step


def test_kernels_belong_to_the_region_they_were_launched_in(gpu: FakeGpu) -> None:
    def step() -> None:
        gpu.launch("cast", 5)
        with region("forward"):
            gpu.launch("norm", 10)
            for _ in range(2):
                with region("attention"):
                    gpu.launch("matmul", 30)
            gpu.launch("norm", 10)
        with region("backward"):
            gpu.launch("matmul", 60)
        gpu.launch("adam", 15)

    found = regions_on(gpu, step, reps=4)
    assert [(each.path, each.calls, each.total_ns[0], each.own_ns[0]) for each in found] == [
        ("forward", 1, 80, 20),
        ("forward/attention", 2, 60, 60),
        ("backward", 1, 60, 60),
        (OUTSIDE, 0, 20, 20),
    ]
    assert all(len(each.own_ns) == 4 for each in found)
    assert [each.share for each in found] == [0.5, 0.375, 0.375, 0.125]
    assert (found[1].name, found[1].depth, found[1].median_us, found[0].own_median_us) == ("attention", 1, 0.06, 0.02)


def test_what_a_call_overwrote_is_put_back_outside_of_its_regions(gpu: FakeGpu) -> None:
    memory = SimpleNamespace(leaves=list, launched=True, names=["args[0]"], restore=lambda: gpu.launch("copy", 9))
    assert own_ns(regions_on(gpu, one_region(gpu), memory=memory)) == {"all": [7] * 3, OUTSIDE: [0] * 3}


def test_other_streams_and_threads_are_no_exceptions(gpu: FakeGpu) -> None:
    """A late kernel belongs where it was launched, one that another thread launches to the region that waits for it."""

    def node() -> None:
        gpu.launch("reduce", 10)
        with region("attention"):
            gpu.launch("matmul", 20)

    def step() -> None:
        with region("first"):
            gpu.launch("side", 40, late_ns=50)
        with region("backward"):
            thread = threading.Thread(target=node)
            thread.start()
            thread.join()

    parts = {"first": [40] * 3, "backward": [10] * 3, "backward/attention": [20] * 3, OUTSIDE: [0] * 3}
    assert own_ns(regions_on(gpu, step)) == parts


def test_no_session_where_no_region_is_entered(gpu: FakeGpu) -> None:
    """Those of what is prepared do not count."""
    calls = []

    def setup() -> None:
        with region("setup"):
            pass

    def step() -> None:
        calls.append(1)
        gpu.launch("any", 1)

    assert (regions_on(gpu, step), len(calls)) == ((), 1)
    assert regions_on(gpu, step, setup=setup) == ()


@pytest.mark.parametrize(("timed", "taken"), [(1, 1), (REGION_REPS, REGION_REPS), (REGION_REPS + 1, REGION_REPS)])
def test_no_more_reps_than_were_timed(gpu: FakeGpu, timed: int, taken: int) -> None:
    assert len(regions_on(gpu, one_region(gpu), reps=timed)[0].own_ns) == taken


def test_lost_marks_are_measured_again_and_always_lost_ones_are_no_number(gpu: FakeGpu) -> None:
    def step() -> None:
        gpu.losing = {MARK}
        one_region(gpu)()

    gpu.losing = {MARK}
    assert own_ns(regions_on(gpu, one_region(gpu)))["all"] == [7, 7, 7]
    with pytest.raises(IncompleteRecords, match=r"2 boundary marks, but 1 came back \(regions, measured 3 times\)"):
        regions_on(gpu, step)


def test_launches_that_are_not_numbered_are_no_number(gpu: FakeGpu) -> None:
    def step() -> None:
        one_region(gpu)()
        gpu.recorded[-3].number = 0  # the kernel, before the mark of the region's end

    with pytest.raises(IncompleteRecords, match="does not say when any was launched"):
        regions_on(gpu, step)


def test_other_kernels_than_in_the_timed_reps_are_no_number(gpu: FakeGpu) -> None:
    with pytest.raises(KernelsDiffer, match="1 x b only in one"):
        regions_on(gpu, one_region(gpu), kernels="b")


def test_regions_that_differ_between_calls_are_no_number(gpu: FakeGpu) -> None:
    calls = []

    def step() -> None:
        calls.append(1)
        gpu.launch("any", 7)
        for name in "abcde":
            for _ in calls:
                with region(name):
                    pass

    told = "8 x a, 8 x b, 8 x c, 8 x d and 1 more in rep 1, 9 x a, 9 x b, "
    with pytest.raises(KernelsDiffer, match=f"same regions in every call: {told}"):
        regions_on(gpu, step)


def test_the_own_error_of_a_call_goes_through(gpu: FakeGpu) -> None:
    calls = []

    def step() -> None:
        calls.append(1)
        with region("outer"), region("inner"):
            gpu.launch("any", 7)
            if len(calls) == 3:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        regions_on(gpu, step)


# invalid names


@pytest.mark.parametrize("name", ["", "a/b", "/", OUTSIDE, 3, None, b"a", ["a"]])
def test_invalid_names(name: Any) -> None:
    with pytest.raises(BadRequest, match="must be a text, not empty, without a slash"):
        region(name)


def noted(function: Function, timer: str = "wall", reps: int = 1) -> tuple[Region, ...]:
    """Return the regions of a call, by the host's clock."""
    with region("entered"):  # or nobody looks out for others
        pass
    call = make_call(function, label="step")
    return take_regions(make_timer(timer, cpu_device(), "hot"), cpu_device(), call, 0.0, Sample([Rep(1.0)] * reps))


def left_open() -> None:
    region("forward").__enter__()
    region("loss").__enter__()


def overlapping(error: Exception | None = None) -> None:
    with region("first"):
        region("second").__enter__()
        if error is not None:
            raise error


@pytest.mark.parametrize(
    ("step", "error", "sentence"),
    [
        (left_open, BadRequest, r"'forward/loss' was still open when 'step' returned: enter it in a `with`"),
        (overlapping, BadRequest, "region 'first' of 'step' ends while the innermost open region is 'second'"),
        (lambda: overlapping(ZeroDivisionError()), ZeroDivisionError, "^$"),
    ],
)
def test_regions_that_are_not_nested(step: Function, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        noted(step)


def test_a_region_that_outlives_its_rep_or_was_entered_before_means_nothing() -> None:
    early, late = region("early"), region("late")
    early.__enter__()
    assert noted(lambda: early.__exit__(None, None, None)) == ()
    with pytest.raises(BadRequest):
        noted(late.__enter__)
    late.__exit__(None, None, None)
    with region("after"):
        pass


def test_a_region_that_is_captured_into_a_graph_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object may be used again, and within itself."""
    again, capturing = region("again"), iter([False, False, False, True, True])
    monkeypatch.setattr(regions, "is_capturing", lambda device: next(capturing))

    def step() -> None:
        with again, again:
            pass
        with again, region("captured"), region("captured too"):
            pass

    assert [(each.path, each.calls) for each in noted(step)] == [("again", 2), ("again/again", 1), (OUTSIDE, 0)]


# where nothing is measured


def test_a_compiled_function_is_compiled_without_its_regions() -> None:
    """In one graph for each shape, which are counted."""

    def double(x: torch.Tensor) -> torch.Tensor:
        with region("double"):
            return 2 * x

    compiled = torch.compile(double, backend="eager", dynamic=False, fullgraph=True)
    try:
        with counting_compilations() as found:
            for size in (2, 3, 3, 2):
                compiled(torch.ones(size))
        assert (found.graphs, found.number, found.elapsed_s > 0, regions._entered) == (2, 2, True, False)
        assert noted(lambda: compiled(torch.ones(3))) == ()
        compiled(torch.ones(5))
        assert found.graphs == 2
    finally:
        torch.compiler.reset()


# by the host's clock


def test_by_the_clock_parts_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10, 10_000, 10))

    def step() -> None:
        with region("forward"), region("attention"):
            pass
        with region("backward"):
            pass

    monkeypatch.setattr(regions, "time", SimpleNamespace(perf_counter_ns=lambda: next(ticks)))
    found = noted(step, reps=2)
    # one reading at the call's begin, one at each of six boundaries, one at its end
    assert {each.path: (each.calls, each.total_ns, each.own_ns) for each in found} == {
        "forward": (1, (30, 30), (20, 20)),
        "forward/attention": (1, (10, 10), (10, 10)),
        "backward": (1, (10, 10), (10, 10)),
        OUTSIDE: (0, (30, 30), (30, 30)),
    }


def test_timers_that_see_no_parts_of_a_call() -> None:
    assert noted(print, "scripted") == ()
