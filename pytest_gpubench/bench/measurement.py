"""Measure one call: `gpu_bench(function, ...)` and `gpu_bench.measure`."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpubench.bench.integrity import auditing, check_traffic
from pytest_gpubench.bench.plan import plan_of
from pytest_gpubench.bench.producer import check_producer
from pytest_gpubench.bench.request import CallResult, Request, Say, carrying
from pytest_gpubench.bench.work import with_work, work_of_call
from pytest_gpubench.results.model import Measurement, Timing
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.measurement import measure_call


@dataclass(frozen=True)
class MeasureRequest(Request[Timing]):
    """A request of `measure`: one call."""

    bytes: int | None = None
    flops: int | None = None
    is_repeatable = True

    def measure(self, say: Say) -> CallResult[Timing]:
        """Return the call's timing; without numbers, and with the reason, where it is not to be timed."""
        if reason := self.untimed_reason():
            return self._untimed(reason)
        (call,) = self.calls.values()
        with auditing(self.settings, self.device):
            check_producer(self)
            timer = make_timer(self.settings.timer, self.device, self.settings.cache)
            work = work_of_call(call, self.inspection, self.bytes or None, self.flops)
            judgement = self.inspection.judgement(work)
            timing = measure_call(call, timer, self.device, plan_of(self.settings), judgement.look, say)
            item = Measurement(timing=with_work(timing, work), verdicts=judgement.verdicts)
            with carrying([item]):
                check_traffic(call, item.timing, self.bytes, self.device)
                item = self.inspection.conclude(item, call)
        return CallResult(item.timing, [item])

    def call_only(self, reason: str) -> CallResult[Timing]:
        """Return a timing without numbers."""
        return self._untimed(self.call_once() or reason)

    def with_measurements(self, result: Timing, measurements: Sequence[Measurement]) -> Timing:
        """Return the timing of the only measurement."""
        return measurements[0].timing

    def _untimed(self, reason: str) -> CallResult[Timing]:
        (item,) = self.without_time(reason)
        return CallResult(item.timing, [item])
