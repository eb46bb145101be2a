"""The work of a timed call: bytes and operations before its reps, kernels and waits after them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from pytest_gpubench.bench.plan import is_enforced, is_kept
from pytest_gpubench.correctness import flatten, moved_bytes
from pytest_gpubench.correctness.flops import Counted, counted
from pytest_gpubench.correctness.leaves import inputs_of, tensors_of
from pytest_gpubench.errors import ProfilerBusy, annotate
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.resources import with_resources
from pytest_gpubench.results.model import Measurement, Peaks, Timing
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.settings import Settings
from pytest_gpubench.structure import is_deterministic, observe
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.peaks import measured_peaks
from pytest_gpubench.verdict.limits import Judgement, Limits
from pytest_gpubench.verdict.limits.base import Seen
from pytest_gpubench.verdict.throttling import invalidate_throttled


@dataclass(frozen=True)
class Work:
    """The least work of a call; None stands for unknown."""

    moved_bytes: int | None = None
    """0 where all its tensors are empty."""
    read_share: float | None = None
    """The share of those bytes that is read."""
    flops: int | None = None
    dtype: str | None = None
    """The dtype that most operations multiply."""


def work_of(
    call: Call,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    outputs: object,
    given_bytes: int | None,
    given_flops: int | None,
    wants_flops: bool,
) -> Work:
    """Return the work of a call: as given, else the bytes of its inputs and outputs, and the operations it makes."""
    moved = moved_bytes(args, kwargs, outputs) if given_bytes is None else given_bytes
    written = moved_bytes((), {}, outputs)
    found = _counted(call, args, kwargs) if wants_flops else Counted(None, None)
    flops = found.flops if given_flops is None else given_flops
    if not moved:
        return Work(0 if _all_empty(args, kwargs, outputs) else None, None, flops, found.dtype)
    return Work(moved, max(0.0, 1 - written / moved), flops, found.dtype)


def _counted(call: Call, args: Sequence[object], kwargs: Mapping[str, object]) -> Counted:
    if call.prepares_on_device:  # a backward run, or setup
        return counted(call.prepare())
    return counted(call.function, args, kwargs)


def _all_empty(args: Sequence[object], kwargs: Mapping[str, object], outputs: object) -> bool:
    """Tell whether a call has tensors, and none of them an element."""
    sizes = [tensor.numel() for _, tensor in tensors_of([*inputs_of(args, kwargs), *flatten(outputs)])]
    return bool(sizes) and not any(sizes)


def work_of_call(call: Call, inspection: "Inspection", given_bytes: int | None, given_flops: int | None) -> Work:
    """Return the work of a single call; where a limit needs it, an untimed call finds it."""
    wants_bytes = inspection.wants_bytes and given_bytes is None
    wants_flops = inspection.wants_flops and given_flops is None
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


@dataclass(frozen=True)
class Inspection:
    """The settings and limits that a call is inspected for."""

    settings: Settings
    device: Device
    limits: Limits
    takes_work: bool = True
    pass_alpha: float | None = None
    """This and the one before as in `Request`."""

    @property
    def wants_bytes(self) -> bool:
        """True if a limit is on a call's bytes a second."""
        return self.limits.need("bytes")

    @property
    def wants_flops(self) -> bool:
        """True if a limit is on a call's operations."""
        return self.limits.need("flops")

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
        if self.settings.timer == "scripted" or not (self.wants_bytes or self.wants_flops):
            return None
        if work is None:
            return measured_peaks(self.device, None)
        return measured_peaks(self.device, [work.dtype] if self.wants_flops and work.dtype else [])

    def judgement(self, work: Work, single: bool = False) -> Judgement:
        """Return the judgement of a growing timing of such work; if `single`, of a finished one.

        Ask for it before the warm-up: the GPU's peaks are measured now, and must not be between the reps.
        """
        return self.judgements([""], work, single)[""]

    def judgements(self, names: Iterable[str], work: Work, single: bool = False) -> dict[str, Judgement]:
        """Return judgements of timings of the same work, by name; see `judgement`."""
        alpha, enforced = self.settings.alpha, is_enforced(self.settings, self.device)
        peaks = self.peaks(work)

        def known(timing: Timing) -> Seen:
            found = with_work(timing, work)
            return Seen(found, 0, 0, peaks, work.dtype, work.read_share, self.takes_work)

        single = single or self.settings.reps is not None
        return {name: Judgement(self.limits, alpha, enforced, single, self.pass_alpha, known) for name in names}

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
            timing = with_resources(timing, call, self.device, self.limits.need("resources"))
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


def with_work(timing: Timing, work: Work) -> Timing:
    """Return a timing with the bytes and operations of its call."""
    read = None if work.moved_bytes is None or work.read_share is None else round(work.moved_bytes * work.read_share)
    return msgspec.structs.replace(timing, moved_bytes=work.moved_bytes, read_bytes=read, flops=work.flops)
