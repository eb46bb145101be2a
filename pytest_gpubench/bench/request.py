"""A request: what one public call asks for, measures and returns; and that of `measure`, the plain one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, TypeVar

from pytest_gpubench.bench.integrity import auditing, check_traffic
from pytest_gpubench.bench.plan import plan_of, unmeasured, unmeasured_reason
from pytest_gpubench.bench.producer import check_producer
from pytest_gpubench.bench.work import Inspection, with_work, work_of_call
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import Measurement, Timing
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import refuse_untimeable
from pytest_gpubench.timing.interpreter import counting_launches
from pytest_gpubench.timing.measurement import measure_call
from pytest_gpubench.verdict.limits import Limits

Say = Callable[[str], None]
"""Called with the current step, for a progress line."""
T = TypeVar("T")
"""The type that the public call returns."""
MEASURED = "_gpu_bench_measured"
"""The attribute of an error that holds what was measured before it."""


@dataclass(frozen=True)
class CallResult(Generic[T]):
    """The result of a public call, and its measurements."""

    result: T
    measurements: Sequence[Measurement]


@contextmanager
def carrying(measurements: Sequence[Measurement]) -> Iterator[None]:
    """Have an error that is raised within carry measurements."""
    try:
        yield
    except Exception as error:
        setattr(error, MEASURED, measurements)
        raise


def measured_before(error: Exception) -> Sequence[Measurement]:
    """Take from an error the measurements that it carries: code may raise the same one again."""
    found: Sequence[Measurement] = vars(error).pop(MEASURED, ())
    return found


@dataclass(frozen=True)
class Request(ABC, Generic[T]):
    """One public call: its functions, settings and limits."""

    settings: Settings
    device: Device
    limits: Limits
    given: object
    """The arguments of the functions, which tell it from other requests for the same ones."""
    calls: Mapping[str, Call]
    """The calls by label."""
    remake: "Callable[[Sequence[object], Mapping[str, object] | None], Request[T]] | None" = field(
        default=None, kw_only=True
    )
    """Returns the request for other arguments; None where `setup` makes them, or they are none."""
    pass_alpha: float | None = field(default=None, kw_only=True)
    """The chance, at most, that a broken limit passes; None is the alpha of its settings, as for a false FAIL."""
    role: ClassVar[Literal["", "candidate"]] = ""
    """The role of the functions that limits are judged for."""
    has_baseline: ClassVar[bool] = True
    """True if its measurements are compared with a saved run."""
    is_repeatable: ClassVar[bool] = False
    """True if its calls can be made again in this process: with memory at other addresses, or for a trace."""
    takes_work: ClassVar[bool] = True
    """True if bytes= and flops= can be given."""

    @property
    def title(self) -> str:
        """Its name in messages."""
        return " and ".join(self.calls)

    @property
    def remarks(self) -> Sequence[str]:
        """Remarks on the functions, for the end of the run."""
        return ()

    @property
    def judged(self) -> Sequence[str]:
        """The labels of the functions that limits are judged for."""
        return list(self.calls)

    @property
    def inspection(self) -> Inspection:
        """The inspection of its calls."""
        return Inspection(self.settings, self.device, self.limits, self.takes_work, self.pass_alpha)

    @property
    def has_margins(self) -> bool:
        """True if `name_what_breaks` may find something."""
        return False

    def name_what_breaks(self, note: Callable[[str], object]) -> None:
        """Do nothing: requests without margins have nothing to note."""

    @abstractmethod
    def measure(self, say: Say) -> CallResult[T]:
        """Measure; an error after there are samples carries them."""

    @abstractmethod
    def call_only(self, reason: str) -> CallResult[T]:
        """Call every function and time none; the reason says why."""

    def with_measurements(self, result: T, measurements: Sequence[Measurement]) -> T:
        """Return the result with measurements that were compared with a saved run."""
        return result

    def untimed_reason(self) -> str:
        """Return why calls are not timed, empty where they are; make each once where only that can tell."""
        if self.settings.disable or (self.device.type == "cpu" and self.settings.timer != "scripted"):
            return self.call_once()
        return ""

    def call_once(self) -> str:
        """Make each call once, untimed; return why such calls are never timed, empty where they could be."""
        with counting_launches() as launches:
            for call in self.calls.values():
                refuse_untimeable(call.prepare()(), call.label)
        return unmeasured_reason(self.settings, self.device, launches.number)

    def without_time(self, reason: str) -> list[Measurement]:
        """Return a measurement without numbers for each call."""
        timings = [unmeasured(label, self.device, self.settings, reason) for label in self.calls]
        return [Measurement(timing=timing) for timing in timings]


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
