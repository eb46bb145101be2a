"""What launching a call costs: the host's time, the gaps it leaves on the GPU, and what a CUDA graph would save."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpubench.errors import BadRequest, MeasurementError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Call, Rep, Timer
from pytest_gpubench.timing.events import HOST_BOUND, EventsRep, EventsTimer
from pytest_gpubench.timing.graph import GraphTimer
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.sampling import collection_off
from pytest_gpubench.timing.windows import busy_ns, span_ns

__tracebackhide__ = True

OVERHEAD_REPS = 30
SETTLING_REPS = 3
"""The first reps of each timer, which learn how long the host needs, or capture: they do not count."""


@dataclass(frozen=True)
class Overhead:
    """What the launching of one call costs; medians in microseconds."""

    label: str
    host_us: float | None
    """The host's time for a call whose launches are only queued; None for one that waits for the GPU."""
    busy_us: float
    """For how long at least one of its kernels ran, by the profiler."""
    span_us: float
    """From its first kernel's start to its last one's end, by the profiler, launched on an idle GPU."""
    eager_us: float
    """What a caller waits for who finds the GPU idle, by events."""
    graph_us: float | None
    """The same for the replay of a graph of it; None where it cannot be captured."""
    no_graph: str = ""
    """Why it cannot be captured; empty where it can."""

    @property
    def gap_us(self) -> float:
        """For how long the GPU waited inside the call, for the next launch or between its kernels."""
        return max(0.0, self.span_us - self.busy_us)

    @property
    def gap_share(self) -> float:
        """The gaps over the call's span; 0 for an empty span."""
        return self.gap_us / self.span_us if self.span_us else 0.0

    @property
    def graph_speedup(self) -> float | None:
        """How many times as fast the replay is, both by events on an idle GPU; None where it cannot be captured."""
        return self.eager_us / self.graph_us if self.graph_us else None

    @property
    def is_host_bound(self) -> bool:
        """Whether calls in a row take as long as the host needs to launch them, or the call waits for the GPU."""
        return self.host_us is None or self.host_us > self.busy_us


def take_overhead(call: Call, device: Device, cache: str, reps: int = OVERHEAD_REPS) -> Overhead:
    """Return what the launching of a warmed-up call costs, from four short sessions of so many reps.

    Raises MeasurementError as the timers do, but for a call that cannot be captured.
    """
    queued = take_reps(EventsTimer(device, cache), call, reps)
    recorded = take_reps(ProfilerTimer(device, cache), call, reps)
    eager = take_reps(EventsTimer(device, cache, ahead=False), call, reps)
    graph: Sequence[Rep] = ()
    no_graph = ""
    try:
        graph = take_reps(GraphTimer(device, cache, ahead=False), call, reps)
    except (BadRequest, MeasurementError) as error:
        no_graph = str(error)
    return overhead_of(call.label, queued, recorded, eager, graph, no_graph)


def take_reps(timer: Timer, call: Call, reps: int) -> Sequence[Rep]:
    """Return so many reps of a session, after a few that do not count."""
    with collection_off(), timer.session() as session:
        for _ in range(SETTLING_REPS + reps):
            session.take(call, 0.0)
    return session.reps()[SETTLING_REPS:]


def overhead_of(
    label: str,
    queued: Sequence[Rep],
    recorded: Sequence[Rep],
    eager: Sequence[Rep],
    graph: Sequence[Rep],
    no_graph: str = "",
) -> Overhead:
    """Return the overhead that reps of the four kinds show."""
    hosts_us = [rep.host_us for rep in queued if isinstance(rep, EventsRep) and HOST_BOUND not in rep.flags]
    return Overhead(
        label=label,
        host_us=statistics.median(hosts_us) if 2 * len(hosts_us) > len(queued) else None,
        busy_us=statistics.median(busy_ns(rep.records) / 1e3 for rep in recorded),
        span_us=statistics.median(span_ns(rep.records) / 1e3 for rep in recorded),
        eager_us=statistics.median(rep.elapsed_us for rep in eager),
        graph_us=statistics.median(rep.elapsed_us for rep in graph) if graph else None,
        no_graph=no_graph,
    )
