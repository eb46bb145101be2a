"""A request: what one public call asks for, measures, is judged by and returns; and the plain one, of `measure`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from pytest_gpubench.bench.integrity import auditing, check_traffic
from pytest_gpubench.bench.plan import is_enforced, is_kept, plan_of, unmeasured_reason
from pytest_gpubench.bench.producer import check_producer
from pytest_gpubench.bench.work import Work, work_of
from pytest_gpubench.errors import ProfilerBusy, annotate
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.resources import with_resources
from pytest_gpubench.results.model import Measurement, Peaks, Timing, Verdict
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.settings import Settings
from pytest_gpubench.structure import is_deterministic, observe
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import refuse_untimeable
from pytest_gpubench.timing.interpreter import watching_launches
from pytest_gpubench.timing.measurement import measure_call
from pytest_gpubench.timing.peaks import measured_peaks
from pytest_gpubench.verdict.limits import Judgement, Limits
from pytest_gpubench.verdict.limits.base import Seen
from pytest_gpubench.verdict.throttling import invalidate_throttled

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
        vars(error)[MEASURED] = measurements
        raise


def measured_before(error: Exception) -> Sequence[Measurement]:
    """Take from an error the measurements that it carries: code may raise the same one again."""
    found: Sequence[Measurement] = vars(error).pop(MEASURED, ())
    return found


def work_of_call(request: "Request[Any]", call: Call, given_bytes: int | None, given_flops: int | None) -> Work:
    """Return the work of a single call; where a limit needs it, an untimed call finds it."""
    wants_bytes = request.limits.need("bytes") and given_bytes is None
    wants_flops = request.limits.need("flops") and given_flops is None
    if not (wants_bytes or wants_flops):
        return Work(given_bytes or None, None, given_flops, None)
    try:
        prepared = call.prepare()
        outputs = prepared()
    except Exception as error:
        annotate(error, f"gpu_bench: raised in the call of {call.label!r} whose work is counted")
        raise
    args = (*prepared.args, *prepared.made)
    return work_of(call, args, prepared.kwargs, outputs, given_bytes, given_flops, wants_flops)


def with_work(timing: Timing, work: Work) -> Timing:
    """Return a timing with the bytes and operations of its call."""
    read = None if work.moved_bytes is None or work.read_share is None else round(work.moved_bytes * work.read_share)
    return msgspec.structs.replace(timing, moved_bytes=work.moved_bytes, read_bytes=read, flops=work.flops)


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

    def keeps_resources(self, *measured: Measurement) -> bool:
        """Tell whether what is kept, or any of these that fails its test, has the resources of its kernels."""
        if self.settings.resources == "limits":
            return False
        is_failed = any(verdict.fails_test for item in measured for verdict in item.verdicts)
        return is_failed or is_kept(self.settings) or self.settings.html is not None

    def peaks(self, work: Work | None) -> Peaks | None:
        """Return this GPU's peaks, measured at the first use; None where no limit needs them.

        work: what is multiplied; None is all that was measured before.
        """
        wants_flops = self.limits.need("flops")
        if self._is_scripted or not (wants_flops or self.limits.need("bytes")):
            return None
        if work is None:
            return measured_peaks(self.device, None)
        return measured_peaks(self.device, [work.dtype] if wants_flops and work.dtype else [])

    def judgement(self, work: Work, single: bool = False) -> Judgement:
        """Return the judgement of a growing timing of such work; if `single`, of a finished one.

        Ask for it before the warm-up: the GPU's peaks are measured now, and must not be between the reps.
        """
        peaks = self.peaks(work)

        def known(timing: Timing) -> Seen:
            found = with_work(timing, work)
            return Seen(found, 0, 0, peaks, work.dtype, work.read_share, self.takes_work)

        single = single or self.settings.reps is not None
        enforced = is_enforced(self.settings, self.device)
        return Judgement(self.limits, self.settings.alpha, enforced, single, self.pass_alpha, known)

    def conclude(self, item: Measurement, call: Call, others: Sequence[Timing] = ()) -> Measurement:
        """Return a measurement, which has its verdicts on time and rates, with those on its structure.

        others: the timings whose throttling makes the verdicts on time doubtful too.
        """
        throttled = invalidate_throttled(item.verdicts, [item.timing, *others], self.settings.throttled)
        item = self.explored(item, call, self.keeps_resources(item))
        differing = is_deterministic(call) if self.limits.need("repeats") and not self._is_scripted else None
        seen = Seen(item.timing, observed=item.observed, differing=differing)
        on_structure = self.limits.judge("structure", seen, is_enforced(self.settings, self.device))
        return msgspec.structs.replace(item, verdicts=throttled + on_structure)

    def explored(self, item: Measurement, call: Call, kept: bool) -> Measurement:
        """Return a measurement with what untimed calls show, where a limit needs it or it is kept to be explained.

        The resources of its kernels; its waits, memory and launches, which are part of a time without kernels.
        """
        if self._is_scripted:
            return item
        observed = self._observed(call, kept and not item.timing.kernels)
        timing = item.timing
        if kept or self.limits.need("resources"):
            timing = with_resources(timing, call, self.device)
        return msgspec.structs.replace(item, timing=timing, observed=observed)

    @property
    def _is_scripted(self) -> bool:
        return self.settings.timer == "scripted"

    def _observed(self, call: Call, kept: bool) -> Observed | None:
        if self.limits.need("observation"):
            return observe(call, self.device)
        with suppress(ProfilerBusy):  # a reason less
            return observe(call, self.device) if kept else None
        return None

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
        with watching_launches() as launches:
            for call in self.calls.values():
                refuse_untimeable(call.prepare()(), call.label)
        return unmeasured_reason(self.settings, self.device, launches.number)

    def without_time(self, reason: str, *verdicts: Verdict) -> list[Measurement]:
        """Return a measurement without numbers for each call; those that are judged have these verdicts."""
        timer = "wall" if self.device.type == "cpu" and not self._is_scripted else self.settings.timer
        cache, device = str(self.settings.cache), self.device.facts.name
        found = []
        for label in self.calls:
            timing = Timing(label=label, timer=timer, cache=cache, device=device, unmeasured=reason)
            if label in self.judged:
                found.append(Measurement(timing=timing, role=self.role, verdicts=verdicts))
            else:
                found.append(Measurement(timing=timing, role="reference"))
        return found


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
            work = work_of_call(self, call, self.bytes or None, self.flops)
            judgement = self.judgement(work)
            timing = measure_call(call, timer, self.device, plan_of(self.settings), judgement.look, say)
            item = Measurement(timing=with_work(timing, work), verdicts=judgement.verdicts)
            with carrying([item]):
                check_traffic(call, item.timing, self.bytes, self.device)
                item = self.conclude(item, call)
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
