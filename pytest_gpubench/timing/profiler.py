"""GPU time from torch.profiler (CUPTI): one session for many reps, each between two sentinel kernels.

What was measured about measuring, on an H200 with torch 2.11: a session costs about 3 ms to start and stop and a rep
0.2 ms, against 2 to 5 ms for a session per rep; the timestamps tick every 32 ns; the first session of a process takes
4 to 6 s, which `startup` moves to the background.
"""

import os
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache as memoise
from functools import partial
from typing import Any

from pytest_gpubench.errors import IncompleteRecords, KernelsDiffer, NothingRecorded, ProfilerBusy
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache, Producer
from pytest_gpubench.timing.attempts import until_complete
from pytest_gpubench.timing.base import PROBE_REPS, Call, Record, Rep, Session, Timer, call_of, collection_off, reps_of
from pytest_gpubench.timing.events import EventsTimer, key_of, spin
from pytest_gpubench.timing.pacing import rest
from pytest_gpubench.timing.startup import init_kineto, wait_for_startup
from pytest_gpubench.timing.tracing_tax import Known, Taxes, untaxed
from pytest_gpubench.timing.windows import BEGIN, END, FLUSHES, describe_difference, kernel_list
from pytest_gpubench.timing.witness import Witness
from pytest_gpubench.units import count

SYNC_RECORDS = frozenset({"Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event"})
TOOL_VARIABLES = ("NSYS_PROFILING_SESSION_ID", "NV_NSIGHT_INJECTION_PORT_BASE", "CUDA_INJECTION64_PATH")


class ProfilerTimer(Timer):
    """Sum the device's own records of a call."""

    name = "profiler"
    tick_us = 0.032
    sees_kernels = True

    def __init__(self, device: Device, cache: Cache) -> None:
        self.device = device
        self.cache = cache
        self.flush_kernels = FLUSHES.get("cold" if isinstance(cache, Producer) else cache, ())
        self.events = events = EventsTimer(device, cache)
        self.flush, self.sentinels = events.flush, events.sentinels
        self.taxes = Taxes(events.lap, partial(tracing, device), known_taxes(device, str(cache)))
        self.witness = Witness(events.lap, self._reps_again, self._queued_reps, self.sentinels.noop)

    @property
    def producer(self) -> str:
        """The name of the producer; empty where there is none."""
        return str(self.cache) if isinstance(self.cache, Producer) else ""

    def session(self) -> "ProfilerSession":
        """Return a new profiler session; it starts when it is entered."""
        return ProfilerSession(self)

    def calibrate(self, call: Call, reps: Sequence[Rep], idle_s: float, rep_s: float) -> Sequence[Rep]:
        """Learn the tracing tax of a call, which is taken off these reps and all later ones."""
        tax = self.taxes.learn(call, reps, idle_s, rep_s)
        return [untaxed(rep, tax) for rep in reps]

    def cross_check(self, call: Call, reps: Sequence[Rep], idle_s: float) -> None:
        """Raise IncompleteRecords where two events around a call show work that the records of its reps lack."""
        self.witness.check(call, reps, idle_s, self.taxes.outside_us.get(key_of(call), ()))

    def _reps_again(self, call: Call, idle_s: float) -> Sequence[Rep]:
        again = replace(call, prepares_on_device=True)
        return until_complete(lambda: reps_of(self.session(), again, PROBE_REPS, idle_s))

    def _queued_reps(self, call: Call, idle_s: float) -> Sequence[Rep]:
        """Return reps of which all was queued before their first sentinel ran, so no rep waits for the host."""
        again, lead = replace(call, prepares_on_device=True), self.events.lead_of(call)

        def take() -> Sequence[Rep]:
            with collection_off(), self.session() as session:
                for _ in range(PROBE_REPS):
                    session.take_queued(again, idle_s, lead.lead_us)
            return session.reps()

        return until_complete(take)


class ProfilerSession(Session):
    """Record reps in one torch.profiler session."""

    def __init__(self, timer: ProfilerTimer) -> None:
        self.timer = timer
        self.taken: list[Call] = []
        self.records: list[Record] = []
        self.clocks: list[float | None] = []
        self.left_out: set[int] = set()
        """The reps, by number, before which the producer did not run."""

    def __enter__(self) -> "ProfilerSession":
        self._tracing = tracing(self.timer.device)
        self._profile = self._tracing.__enter__()
        return self

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep; the device is idle when its first sentinel starts, and again when its last one does."""
        timer, synchronize, slot = self.timer, self.timer.device.synchronize, 2 * len(self.taken)
        timed = call.prepare()
        if isinstance(timer.cache, Producer) and timer.cache.is_left_out:
            self.left_out.add(len(self.taken))
        if idle_s:
            synchronize()
            rest(idle_s)
        timer.flush()
        timer.sentinels.begin(slot)
        synchronize()
        timed()
        synchronize()
        timer.sentinels.end(slot + 1)
        self.taken.append(replace(call, prepares_on_device=True) if timed.on_device else call)

    def take_queued(self, call: Call, idle_s: float, lead_us: float) -> None:
        """Take one rep, both sentinels included, while the GPU is kept busy for so long."""
        timer, slot = self.timer, 2 * len(self.taken)
        timed = call.prepare()
        timer.device.synchronize()
        rest(idle_s)
        timer.flush()
        spin(timer.device, lead_us)
        timer.sentinels.begin(slot)
        timed()
        timer.sentinels.end(slot + 1)
        timer.device.synchronize()
        self.taken.append(call)

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        if error is not None:  # of the call, an interrupt: it counts, not what stopping may say after it
            with suppress(Exception):
                self._tracing.__exit__(None, None, None)
            return
        try:
            self.timer.device.synchronize()
        finally:
            self._tracing.__exit__(None, None, None)
        self.records = read_records(self._profile)
        self.clocks = self.timer.sentinels.read_clocks(len(self.taken))
        del self._profile

    def reps(self) -> Sequence[Rep]:
        """Return a rep for each call taken; raise MeasurementError unless the records prove complete."""
        if not self.records:
            who = "another tool holds CUPTI (nsys, ncu, compute-sanitizer, DCGM, Proton?)"
            if found := [name for name in TOOL_VARIABLES if os.environ.get(name)]:
                who = f"a tool of NVIDIA's is attached ({', '.join(found)} is set)"
            raise NothingRecorded(
                f"the profiler recorded nothing, not even gpu_bench's own kernels: {who}; run without it"
            )
        timer = self.timer
        windows = split_reps(self.records, self.taken, timer.flush_kernels, timer.producer, self.left_out)
        begin_ns = [record.end_ns for record in self.records if record.name == BEGIN]
        end_ns = [record.start_ns for record in self.records if record.name == END]
        traced = [
            Rep(sum(record.duration_ns for record in window) / 1e3, tuple(window), clock, window_us=(end - begin) / 1e3)
            for window, clock, begin, end in zip(windows, self.clocks, begin_ns, end_ns, strict=True)
        ]
        return [untaxed(rep, timer.taxes.of(call)) for rep, call in zip(traced, self.taken, strict=True)]


@contextmanager
def tracing(device: Device, host: bool = False) -> Iterator[Any]:
    """Record what runs on the GPU, and on the host where that is asked for too; the profile is read when it is left.

    Raises ProfilerBusy where another one is on: a nested one breaks both. torch.profiler.profile would be the same with
    a warning, once a process, that a second session forgets the events of the first: it is meant to.
    """
    import torch

    wait_for_startup()
    init_kineto()
    if torch._C._autograd._profiler_enabled():
        raise ProfilerBusy(
            "a torch profiler is already on: gpu_bench needs one of its own, and a nested session breaks both; "
            "leave the profiler's `with` block before measuring"
        )
    gpu = "cuda" if device.type == "cuda" else None
    profile = torch.autograd.profiler.profile(use_cpu=host, use_device=gpu, use_kineto=True)
    device.synchronize()
    try:
        profile.__enter__()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ProfilerBusy(
            f"the profiler does not start ({error}): another profiler is on in this process, or was on and failed"
        ) from None
    try:
        yield profile
    finally:
        profile.__exit__(None, None, None)  # type: ignore[no-untyped-call]


@memoise
def known_taxes(device: Device, cache: str) -> Known:
    """Return the tracing taxes that this process knows, for more to be added."""
    return []


def read_records(profile: Any) -> list[Record]:
    """Return the kernels, copies and memsets of a stopped session, in the order they started.

    Their kinds are told by name, as torch before 2.12 does not pass the activity's type on.
    """
    from torch._C._autograd import DeviceType

    kinds: dict[str, Any] = {"Memcpy ": "memcpy", "Memset ": "memset"}  # no kernel's name has a space there
    records = []
    for event in profile.kineto_results.events():
        if event.device_type() != DeviceType.CUDA:  # a call of the host, whose name a kernel may have too
            continue
        name = event.name().replace("Memset (Unknown)", "Memset (Device)")  # so it is called in some graphs
        if name not in SYNC_RECORDS and not event.is_user_annotation():
            start_ns = event.start_ns()
            end_ns, launch = start_ns + event.duration_ns(), event.correlation_id()
            records.append(Record(name, kinds.get(name[:7], "kernel"), start_ns, end_ns, launch))
    return sorted(records, key=lambda record: record.start_ns)


def take_reps_of_noop(timer: ProfilerTimer, reps: int = 20) -> Sequence[Rep]:
    """Return reps of a kernel that does nothing; raise MeasurementError where the profiler does not work."""
    return until_complete(lambda: reps_of(timer.session(), call_of("noop", timer.sentinels.noop), reps))


def split_reps(
    records: Sequence[Record],
    calls: Sequence[Call],
    flush: Sequence[str] = (),
    producer: str = "",
    left_out: Container[int] = (),
) -> list[list[Record]]:
    """Return the records of each rep: those between its two sentinels.

    flush: the kernels that each rep needs before it, in turn; none for a hot cache.
    producer: the name of what runs between that and the first sentinel; empty where nothing does.
    left_out: the reps, by number, before which it did not run.

    Raises IncompleteRecords where a sentinel or a flush is missing, a record has no length or lies across a sentinel,
    or work appears outside of every rep though nothing was prepared there; NothingRecorded where every rep of a call,
    or every run of the producer, is empty, KernelsDiffer where the producer launches others than before.
    """
    windows: list[list[Record]] = []
    outside: list[list[Record]] = [[]]
    produced: list[list[Record]] = []
    current: list[Record] | None = None
    done_ns = begun_ns = 0
    for record in records:
        if record.duration_ns <= 0:
            raise IncompleteRecords(f"the profiler gave {record.name} no length: it lost its timestamps")
        if record.name == BEGIN and current is None:
            if done_ns > record.start_ns:
                raise IncompleteRecords("a record from before a rep reaches into it")
            current, begun_ns = [], record.end_ns
            produces = bool(producer) and len(windows) not in left_out
            launched = _take_flush(outside[-1], flush, produces)
            if produces:
                produced.append(launched)
        elif record.name == END and current is not None:
            if any(inner.end_ns > record.start_ns for inner in current):
                raise IncompleteRecords("a record reaches beyond the end of its rep")
            windows.append(current)
            outside.append([])
            current = None
        elif record.name in (BEGIN, END):
            raise IncompleteRecords("a sentinel is missing: the profiler lost records")
        elif current is not None:
            if record.start_ns < begun_ns:
                raise IncompleteRecords("a record reaches back before the beginning of its rep")
            current.append(record)
        else:
            done_ns = max(done_ns, record.end_ns)
            outside[-1].append(record)
    if current is not None or len(windows) != len(calls):
        raise IncompleteRecords(f"{count(len(calls), 'rep')} taken, but {len(windows)} came back")
    _check_outside(outside, calls)
    _check_produced(produced, producer)
    _check_empty(windows, calls)
    return windows


def _take_flush(before: list[Record], flush: Sequence[str], produces: bool) -> list[Record]:
    """Take a rep's flush from the records before it, and return what a producer did after it.

    One flush alone is taken, as kernels of a call's may have the same names.
    """
    if not flush:
        return []
    names, length = [record.name for record in before], len(flush)
    place = next((place for place in range(len(names)) if names[place : place + length] == [*flush]), None)
    if place is None:
        raise IncompleteRecords("the cache was not flushed before a rep, or the profiler lost the record of that")
    produced = before[place + length :] if produces else []
    del before[place : place + length + len(produced)]
    return produced


def _check_produced(produced: Sequence[Sequence[Record]], producer: str) -> None:
    """Raise unless a producer launched something before the reps, and the same before each rep that it ran before."""
    lists = [kernel_list(records) for records in produced]
    if lists and not any(lists):
        raise NothingRecorded(f"{producer} launched nothing on the GPU: are its tensors on the GPU?")
    other = next((each for each in lists if each != lists[0]), None)
    if other is not None:
        raise KernelsDiffer(
            f"{producer} does not launch the same kernels before every rep: {describe_difference(lists[0], other)}"
        )


def _check_outside(outside: Sequence[Sequence[Record]], calls: Sequence[Call]) -> None:
    """Raise where work ran before a rep that prepares nothing, or after the last one: a call left it running."""
    for index, strays in enumerate(outside):
        if strays and not (index < len(calls) and calls[index].prepares_on_device):
            raise IncompleteRecords(
                f"work ran on the GPU outside of every rep ({strays[0].name}): another thread launches it, "
                "or a call goes on after it returned and the device was synchronised"
            )


def _check_empty(windows: Sequence[Sequence[Record]], calls: Sequence[Call]) -> None:
    """Raise where every rep of a call is empty: where only some are, its kernels differ."""
    filled = {call.label for call, window in zip(calls, windows, strict=True) if window}
    for call in calls:
        if call.label not in filled:
            raise NothingRecorded(
                f"{call.label!r} launched nothing on the GPU: "
                "are its tensors on the GPU, and does it compute when it is called?"
            )
