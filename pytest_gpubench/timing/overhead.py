"""The cost of launching a call: the host's time, the gaps on the GPU, and the time that a CUDA graph would save."""

import statistics
from collections.abc import Sequence

from pytest_gpubench.errors import BadRequest, MeasurementError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import Overhead
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.attempts import until_complete
from pytest_gpubench.timing.base import Call, Rep, Timer, reps_of
from pytest_gpubench.timing.events import HOST_BOUND, EventsTimer
from pytest_gpubench.timing.graph import GraphTimer
from pytest_gpubench.timing.profiler import ProfilerTimer
from pytest_gpubench.timing.rounds import check_same_kernels
from pytest_gpubench.timing.windows import busy_ns, span_ns

OVERHEAD_REPS = 30
SETTLING_REPS = 3
"""The first reps of each timer, which learn how long the host needs, or capture: they do not count."""


def take_overhead(call: Call, device: Device, cache: Cache, reps: int = OVERHEAD_REPS) -> Overhead:
    """Return the cost of launching a warmed-up call, from four short sessions of so many reps.

    Raises MeasurementError as the timers do, but for a call that cannot be captured.
    """

    def take(timer: Timer) -> Sequence[Rep]:
        def once() -> Sequence[Rep]:
            taken = reps_of(timer.session(), call, SETTLING_REPS + reps)[SETTLING_REPS:]
            check_same_kernels(call, taken)
            return taken

        return until_complete(once)

    queued, recorded = take(EventsTimer(device, cache)), take(ProfilerTimer(device, cache))
    eager = take(EventsTimer(device, cache, ahead=False))
    graph, no_graph = list[Rep](), ""
    try:
        graph += take(GraphTimer(device, cache, ahead=False))
    except (BadRequest, MeasurementError) as error:
        no_graph = str(error)
    hosts_us = [rep.host_us for rep in queued if HOST_BOUND not in rep.flags]
    return Overhead(
        label=call.label,
        host_us=statistics.median(hosts_us) if 2 * len(hosts_us) > len(queued) else None,
        busy_us=statistics.median(busy_ns(rep.records) / 1e3 for rep in recorded),
        span_us=statistics.median(span_ns(rep.records) / 1e3 for rep in recorded),
        eager_us=statistics.median(rep.elapsed_us for rep in eager),
        graph_us=statistics.median(rep.elapsed_us for rep in graph) if graph else None,
        no_graph=no_graph,
    )
