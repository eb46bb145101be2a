"""Measure one call: `gpu_bench(function, ...)` and `gpu_bench.measure`."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpubench.bench.integrity import auditing, check_traffic
from pytest_gpubench.bench.plan import plan_of, unmeasured
from pytest_gpubench.bench.request import Request, Say
from pytest_gpubench.bench.work import check_work, with_work, work_of_call
from pytest_gpubench.results.model import Measurement, Timing
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.measurement import measure

__tracebackhide__ = True


@dataclass(frozen=True)
class MeasureRequest(Request[Timing]):
    """What `measure` asks for."""

    call: Call
    bytes: int | None = None
    flops: int | None = None

    def __post_init__(self) -> None:
        check_work(self.bytes, self.flops)

    @property
    def labels(self) -> Sequence[str]:
        """The call's label."""
        return [self.call.label]

    @property
    def traced(self) -> Sequence[Call]:
        """The call."""
        return [self.call]

    def measure(self, say: Say, measured: list[Measurement]) -> Timing:
        """Return the call's timing, unmeasured with the reason where it is not to be timed."""
        if reason := self.untimed_reason([self.call]):
            return self._untimed(reason, measured)
        with auditing(self.settings, self.device):
            timer = make_timer(self.settings.timer, self.device, self.settings.cache)
            work = work_of_call(self.call, self.inspection, self.bytes or None, self.flops)
            judgement = self.inspection.judgement(work)
            timing = measure(self.call, timer, self.device, plan_of(self.settings), judgement.look, say)
            timing = with_work(timing, work)
            measured.append(Measurement(timing=timing, verdicts=judgement.verdicts))
            check_traffic(timing, self.bytes, self.settings, self.device)
            verdicts = self.inspection.conclude(timing, self.call, judgement.verdicts)
        measured[:] = [Measurement(timing=timing, verdicts=verdicts)]
        return timing

    def call_only(self, reason: str, measured: list[Measurement]) -> Timing:
        """Return a timing without numbers."""
        return self._untimed(self.call_once([self.call]) or reason, measured)

    def _untimed(self, reason: str, measured: list[Measurement]) -> Timing:
        timing = unmeasured(self.call.label, self.device, self.settings, reason)
        measured[:] = [Measurement(timing=timing)]
        return timing
