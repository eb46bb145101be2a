"""Launch overhead, from reps of the four timers."""

from collections.abc import Callable, Sequence

import pytest

from pytest_gpubench import BadRequest, MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.results.model import Overhead
from pytest_gpubench.timing import overhead
from pytest_gpubench.timing.base import Record, Rep, Timer
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.overhead import take_overhead
from tests.timing.fakes import Clock, FakeTimer

HOST_BOUND = "host-bound"
SETTLING_REPS = 3


def queued(host_us: float, bound: bool = False) -> Rep:
    return Rep(10, (), None, (HOST_BOUND,) if bound else (), host_us=host_us)


def recorded(*kernels: tuple[int, int]) -> Rep:
    records = tuple(Record("a", "kernel", start_ns, end_ns) for start_ns, end_ns in kernels)
    return Rep(sum(record.duration_ns for record in records) / 1e3, records)


RECORDED = [recorded((0, 2000), (5000, 9000))] * 3


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Overhead]:
    """Return the overhead of a call whose reps are these, in events, in the profiler, eager and as a graph."""

    def take(queued: Sequence[Rep], eager: Sequence[Rep], graph: Sequence[Rep] | Exception) -> Overhead:
        found = iter([queued, RECORDED, eager, graph])

        def take_reps(*others: object) -> Sequence[Rep]:
            reps = next(found)
            if isinstance(reps, Exception):
                raise reps
            return reps

        monkeypatch.setattr(overhead, "take_reps", take_reps)
        for timer in ("EventsTimer", "ProfilerTimer", "GraphTimer"):
            monkeypatch.setattr(overhead, timer, lambda *others, **more: None)
        return take_overhead(make_call(lambda: None, label="f"), cpu_device(), "cold")

    return take


Taken = Callable[..., Overhead]


def test_an_overhead_is_made_of_medians(taken: Taken) -> None:
    found = taken([queued(20), queued(30), queued(900)], [Rep(40)] * 3, [Rep(10)] * 3)
    assert (found.host_us, found.busy_us, found.span_us, found.gap_us) == (30, 6, 9, 3)
    assert found.graph_speedup == 4


@pytest.mark.parametrize(("bound", "host_us"), [(0, 20), (1, 20), (2, None), (3, None)])
def test_the_host_is_known_where_most_reps_were_ahead(taken: Taken, bound: int, host_us: float | None) -> None:
    reps = [queued(500, bound=True)] * bound + [queued(20)] * (3 - bound)
    found = taken(reps, [Rep(40)], BadRequest("no graph"))
    assert found.host_us == host_us


def test_a_call_without_a_graph_has_no_speedup(taken: Taken) -> None:
    found = taken([queued(20)], [Rep(40)], MeasurementError("because"))
    assert (found.graph_us, found.graph_speedup, found.no_graph) == (None, None, "because")


@pytest.mark.parametrize("error", [None, MeasurementError("no graph"), BadRequest("no graph")])
def test_every_timer_is_asked(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    made: list[FakeTimer] = []

    def timer(elapsed_us: float, errors: Sequence[Exception | None] = ()) -> Timer:
        made.append(FakeTimer(Clock(), lambda number: Rep(9e9 if number < SETTLING_REPS else elapsed_us), errors))
        return made[-1]

    monkeypatch.setattr(overhead, "EventsTimer", lambda device, cache, ahead=True: timer(10 if ahead else 40))
    monkeypatch.setattr(overhead, "ProfilerTimer", lambda device, cache: timer(6))
    monkeypatch.setattr(overhead, "GraphTimer", lambda device, cache, ahead: timer(8, [error]))
    found = take_overhead(make_call(lambda: None, label="f"), cpu_device(), "cold", reps=2)
    assert [each.taken for each in made] == [SETTLING_REPS + 2] * 4
    assert found.eager_us == 40
    assert found.graph_us == (None if error else 8)
    assert found.no_graph == ("no graph" if error else "")
