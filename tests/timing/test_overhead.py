"""Launch overhead, from reps of the four timers."""

from collections.abc import Callable, Sequence

import pytest

from pytest_gpubench import BadRequest, KernelsDiffer, MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.results.model import Overhead
from pytest_gpubench.timing import overhead
from pytest_gpubench.timing.base import Record, Rep
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.overhead import take_overhead
from tests.timing.fakes import LOST, Clock, FakeTimer

SETTLING_REPS = 3


def queued(host_us: float, bound: bool = False) -> Rep:
    return Rep(10, (), None, ("host-bound",) if bound else (), host_us=host_us)


RECORDED = Rep(6, (Record("a", "kernel", 0, 2000), Record("a", "kernel", 5000, 9000)))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Overhead]:
    """Return the overhead of a call whose reps are these, in events, eager and as a graph; the first do not count."""

    def take(
        queued: Sequence[Rep],
        eager_us: float = 40,
        graph: float | Exception = 10,
        lost: int = 0,
        recorded: Sequence[Rep] = (RECORDED,) * 3,
    ) -> Overhead:
        made: list[FakeTimer] = []

        def timer(reps: Sequence[Rep], *errors: Exception) -> FakeTimer:
            played = [Rep(9e9)] * SETTLING_REPS + list(reps)
            made.append(FakeTimer(Clock(), lambda number: played[number % len(played)], errors))
            return made[-1]

        def graph_timer(*given: object, ahead: bool) -> FakeTimer:
            assert not ahead
            return timer(queued, graph) if isinstance(graph, Exception) else timer([Rep(graph)] * 3)

        def events_timer(*given: object, ahead: bool = True) -> FakeTimer:
            return timer(queued if ahead else [Rep(eager_us)] * 3)

        monkeypatch.setattr(overhead, "EventsTimer", events_timer)
        monkeypatch.setattr(overhead, "ProfilerTimer", lambda *given: timer(recorded, *[LOST] * lost))
        monkeypatch.setattr(overhead, "GraphTimer", graph_timer)
        found = take_overhead(make_call(lambda: None, label="f"), cpu_device(), "cold", reps=3)
        assert [each.sizes for each in made] == [[SETTLING_REPS + 3] * (1 + more) for more in (0, lost, 0, 0)]
        return found

    return take


Taken = Callable[..., Overhead]


@pytest.mark.parametrize("lost", [0, 2])
def test_an_overhead_is_made_of_medians(taken: Taken, lost: int) -> None:
    """Sessions whose records are lost are taken again."""
    found = taken([queued(20), queued(30), queued(900)], lost=lost)
    assert (found.host_us, found.busy_us, found.span_us, found.gap_us) == (30, 6, 9, 3)
    assert (found.eager_us, found.graph_us, found.graph_speedup, found.no_graph) == (40, 10, 4, "")


def test_reps_of_other_kernels_have_no_median(taken: Taken) -> None:
    with pytest.raises(KernelsDiffer, match="measured 3 times"):
        taken([queued(20)] * 3, recorded=[RECORDED, RECORDED, Rep(6, RECORDED.records[:1])])


@pytest.mark.parametrize(("bound", "host_us"), [(0, 20), (1, 20), (2, None), (3, None)])
def test_the_host_is_known_where_most_reps_were_ahead(taken: Taken, bound: int, host_us: float | None) -> None:
    assert taken([queued(500, bound=True)] * bound + [queued(20)] * (3 - bound)).host_us == host_us


@pytest.mark.parametrize("error", [MeasurementError("no graph"), BadRequest("no graph")])
def test_a_call_without_a_graph_has_no_speedup(taken: Taken, error: Exception) -> None:
    found = taken([queued(20)] * 3, graph=error)
    assert (found.graph_us, found.graph_speedup, found.no_graph) == (None, None, "no graph")
