"""A call over several GPUs of one host: a process for each, in lockstep, and in each rep the slowest of them counts.

A kernel of a collective spins until its peers arrive, so that whoever begins first seems to take longest. What the
hosts do must not be in that: before each rep they wait for each other, keep their GPUs busy until all of the call is
queued, and have the GPUs wait for each other last (an all-reduce of one number, on the GPU), right before the call. A
rep in which a host was not ahead is flagged `host-bound`. What is left, a few microseconds in which the GPUs leave that
last meeting, is in the time of those that left it first; waiting within the call, for a peer that has more to do, is
the call's own. `Ranks.skew_us` is how much longer the slowest takes than the fastest.

NCCL is kept from using NVLink multicast (NCCL_NVLS_ENABLE=0). Without GPUs ranks are timed by the host's clock, and
talk over gloo.
"""

import faulthandler
import os
import pickle
import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from pytest_gpubench.errors import BadRequest, GpuBenchError, MeasurementError, NotMeasured, WrongResult, annotate
from pytest_gpubench.gpu.device import Device, cpu_device, cuda_device
from pytest_gpubench.results.model import Timing
from pytest_gpubench.stats.stopping import Budget, next_batch
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.calls import make_arguments, make_call, name_of, refuse_lazy
from pytest_gpubench.timing.events import ASSUMED_CLOCK_MHZ, HEADROOM, HOST_BOUND, LEAST_LEAD_US, REMEMBERED, new_event
from pytest_gpubench.timing.measurement import Plan, summarise
from pytest_gpubench.timing.pacing import Pacing, rest
from pytest_gpubench.timing.profiler import ProfilerSession, ProfilerTimer
from pytest_gpubench.timing.sampling import ATTEMPTS, MAX_PAUSE_S, PAUSE_S, PROBE_REPS, Sample, check_same_kernels
from pytest_gpubench.timing.sampling import collection_off as without_collecting
from pytest_gpubench.timing.wall import WallTimer
from pytest_gpubench.timing.warmup import Warmth
from pytest_gpubench.units import count

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

TIMEOUT_S = 120.0
"""Ranks that make no progress for so long are ended: NCCL and the profiler may take half of that to start."""
START_TIMEOUT_S = 300.0
"""Until all processes have begun: they import what the test's module imports, from a cold disk it may be."""
STARTING = "starting"
WARMUP_CALLS = 8
MOST_LEAD_US = 5_000.0
GRACE_S = 1.0
"""For how long news of others is awaited once one rank has failed: its peers may notice before it is told why."""
TRACEBACK_S = 0.5
LONGEST = 150
"""Of what a rank says of another's failure: what it noticed of that, in the words of a library below."""
OURS = f"{Path(__file__).parents[1]}{os.sep}"
"""What the name of a file of ours begins with."""

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce"]

BUS_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "reduce": lambda ranks: 1.0,
}
"""What of a message each rank's link has to carry, from nccl-tests' doc/PERFORMANCE.md, section "Summary"."""


@dataclass(frozen=True)
class Rank:
    """One of the processes that take part in a call, as its `setup` and `check` are told."""

    index: int
    world_size: int
    device: "torch.device"


@dataclass(frozen=True)
class Ranks:
    """What a call over several ranks took."""

    timing: Timing
    """In each rep that of the slowest rank; its `gbps` is the bus bandwidth where the collective is known."""
    ranks: tuple[Timing, ...] = ()
    """That of each rank; empty where nothing was measured."""
    message_bytes: int | None = None

    @property
    def medians_us(self) -> tuple[float, ...]:
        """The median of each rank."""
        return tuple(timing.median_us for timing in self.ranks)

    @property
    def skew_us(self) -> float:
        """The median, over the reps, of how much longer the slowest rank takes than the fastest."""
        if not self.ranks:
            raise NotMeasured(f"{self.timing.label!r} has no numbers: {self.timing.unmeasured}")
        columns = zip(*(timing.samples_us for timing in self.ranks), strict=True)
        gaps: list[float] = [max(column) - min(column) for column in columns]
        return statistics.median(gaps)

    @property
    def bus_gbps(self) -> float | None:
        """What each rank's link has to carry over the median time, in 10^9 bytes a second; None where not known."""
        return self.timing.gbps

    @property
    def algorithm_gbps(self) -> float | None:
        """The message's bytes over the median time, in 10^9 bytes a second; None where not known."""
        return None if self.message_bytes is None else self.message_bytes / self.timing.median_us / 1e3

    def __str__(self) -> str:
        if not self.ranks:
            return str(self.timing)
        medians = ", ".join(f"{median_us:.2f}" for median_us in self.medians_us)
        bus = f", {self.bus_gbps:.1f} GB/s on the bus" if self.bus_gbps is not None else ""
        return f"{self.timing}; by rank {medians} us, skew {self.skew_us:.2f} us{bus}"


@dataclass(frozen=True)
class Job:
    """What every rank does.

    setup: called with the rank before each call, untimed; returns its arguments as in `gpu_bench.measure`. check:
    called with the rank and what the function returned, before and after the timed reps.
    """

    function: Callable[..., object]
    plan: Plan
    setup: Callable[[Rank], object] | None = None
    check: Callable[[Rank, Any], object] | None = None
    label: str | None = None
    collective: Collective | None = None
    message_bytes: int | None = None
    timed: bool = True
    """Whether to time it; else it is called, and checked, once."""
    timeout_s: float = TIMEOUT_S

    @property
    def name(self) -> str:
        """What the call is known by."""
        return self.label if self.label is not None else name_of(self.function)


# pure


def bus_bytes(collective: str, message_bytes: int, world_size: int) -> int:
    """Return how many bytes each rank's link has to carry for a message; raise BadRequest for what is not known.

    The message is the whole array of an all_gather or reduce_scatter, not the part of one rank.
    """
    if collective not in BUS_FACTORS:
        raise BadRequest(f"collective={collective!r} is not known: it must be one of {', '.join(BUS_FACTORS)}")
    return round(BUS_FACTORS[collective](world_size) * message_bytes)


def combine(timings: Sequence[Timing], collective: str | None = None, message_bytes: int | None = None) -> Ranks:
    """Return what ranks took together: in each rep the slowest counts; raise MeasurementError unless all took each rep.

    Kernels, and what else is not told by rep, are those of the rank with the longest median.
    """
    reps = {timing.reps for timing in timings}
    if len(reps) != 1 or reps == {0}:
        found = ", ".join(str(timing.reps) for timing in timings)
        raise MeasurementError(f"the ranks of {timings[0].label!r} did not all take the same reps: they took {found}")
    samples = list(zip(*(timing.samples_us for timing in timings), strict=True))
    slowest = [max(range(len(timings)), key=column.__getitem__) for column in samples]

    def of_slowest(values: Sequence[Sequence[float]]) -> tuple[float, ...]:
        return tuple(values[rank][rep] for rep, rank in enumerate(slowest)) if all(values) else ()

    moved = None
    if collective is not None and message_bytes is not None:
        moved = bus_bytes(collective, message_bytes, len(timings))
    timing = msgspec.structs.replace(
        max(timings, key=lambda timing: timing.median_us),
        samples_us=tuple(map(max, samples)),
        busy_us=of_slowest([timing.busy_us for timing in timings]),
        span_us=of_slowest([timing.span_us for timing in timings]),
        sm_clock_mhz=of_slowest([timing.sm_clock_mhz for timing in timings]),
        throttle_reasons=tuple(sorted({reason for timing in timings for reason in timing.throttle_reasons})),
        flags=tuple(dict.fromkeys(flag for timing in timings for flag in timing.flags)),
        discarded=timings[0].discarded,  # a rep is thrown away by all of them
        remeasured=timings[0].remeasured,
        elapsed_s=max(timing.elapsed_s for timing in timings),
        moved_bytes=moved,
    )
    return Ranks(timing, tuple(timings), message_bytes)


def checked(job: Job, world_size: int) -> bytes:
    """Return a job as another process can read it; raise BadRequest for what cannot be meant."""
    if isinstance(world_size, bool) or not isinstance(world_size, int) or world_size < 2:
        raise BadRequest(f"ranks(world_size={world_size!r}) is not valid: it must be a whole number of at least 2")
    if (job.collective is None) != (job.message_bytes is None):
        raise BadRequest("ranks() needs collective= and message_bytes= together, or neither: found only one of them")
    if job.collective is not None and job.message_bytes is not None:
        bus_bytes(job.collective, job.message_bytes, world_size)
    try:
        return pickle.dumps(job)
    except Exception as error:
        raise BadRequest(
            f"ranks({job.name}) cannot be run by other processes ({error}): its function, setup= and check= must be "
            "defined at the top of a module that can be imported, not in a test, and not be lambdas"
        ) from None


# the process of the test


def measure_ranks(job: Job, devices: Sequence[Device]) -> Ranks | None:
    """Return what a job takes on these devices, a process to each; None for one that is not to be timed.

    On the CPU every rank's device is the CPU. Raises BadRequest for what cannot be meant, WrongResult where a check
    fails, MeasurementError where a rank raises, dies, or makes no progress, with notes of where that was and of what
    the others did: no process is left.
    """
    pickled = checked(job, len(devices))
    timings = Crew(job, pickled, devices).run()
    if not job.timed:
        return None
    return combine([timing for timing in timings if timing is not None], job.collective, job.message_bytes)


def devices_of(device: Device, world_size: int) -> list[Device]:
    """Return the devices of the ranks: this one first and those after it, as turns are taken at them."""
    if device.type == "cpu":
        return [device] * world_size
    import torch

    first, there = device.torch_device.index, torch.cuda.device_count()
    indices = [first, *(index for index in range(there) if index != first)]
    if there < world_size:
        raise BadRequest(f"ranks(world_size={world_size}) needs {world_size} GPUs, and this process sees {there}")
    return [device, *(cuda_device(index) for index in indices[1:world_size])]


@dataclass(frozen=True)
class Failure:
    """What a rank says of itself when it cannot go on."""

    kind: type[Exception]
    """What the test is to raise."""
    sentence: str
    traceback: str = ""
    """Of the user's own lines."""
    died: bool = False
    """Whether it ended without a word."""
    at_s: float = field(default_factory=time.monotonic)
    """By a clock that all processes share."""


@dataclass
class Member:
    """A rank, as the process of the test knows it."""

    process: Any
    pipe: Connection
    dump: Path
    """Where it writes, when asked, what it is doing."""
    doing: str = STARTING
    timing: Timing | None = None
    done: bool = False
    failure: Failure | None = None


class Crew:
    """Start the ranks, listen to them, and leave none behind."""

    def __init__(self, job: Job, pickled: bytes, devices: Sequence[Device]) -> None:
        self.job = job
        self.pickled = pickled
        self.devices = devices
        self.members: list[Member] = []

    def run(self) -> list[Timing | None]:
        """Return each rank's timing; raise for the first that fails."""
        import torch.distributed as dist

        # the server is here from the start and its port its own: no other process can take it between two steps
        store = dist.TCPStore(  # type: ignore[attr-defined] # public, though its home is C++
            "127.0.0.1", 0, is_master=True, wait_for_workers=False
        )
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._start(store.port, Path(folder))
                self._listen()
                return [member.timing for member in self.members]
            finally:
                self._end()

    def _start(self, port: int, folder: Path) -> None:
        from torch import multiprocessing

        context = multiprocessing.get_context("spawn")
        for index, device in enumerate(self.devices):
            here, there = context.Pipe(duplex=False)
            place = Place(index, len(self.devices), port, device.torch_device.index, str(folder / f"{index}.txt"))
            process = context.Process(
                target=run_rank, args=(place, self.pickled, there), name=f"gpu_bench rank {index}"
            )
            self.members.append(Member(process, here, Path(place.dump)))
            process.start()
            there.close()  # or the end of the rank would not be the end of the pipe

    def _listen(self) -> None:
        """Hear the ranks until all are done; raise for the first that fails, or where none has news for too long."""
        while waiting := [member for member in self.members if not member.done]:
            pipes = [member.pipe for member in waiting]
            started = all(member.doing != STARTING for member in self.members)
            ready = wait(pipes, self.job.timeout_s if started else START_TIMEOUT_S)
            if not ready:
                self._raise_hung(waiting)
            for member in waiting:
                if member.pipe in ready:
                    self._hear(member)
            if any(member.failure for member in self.members):
                self._raise_failed()

    def _hear(self, member: Member) -> None:
        try:
            news, value = member.pipe.recv()
        except (EOFError, OSError):
            member.process.join(GRACE_S)
            sentence = died(member.process.exitcode, member.doing)
            member.done, member.failure = True, Failure(MeasurementError, sentence, died=True)
            return
        if news == "doing":
            member.doing = value
        elif news == "failed":
            member.done, member.failure = True, value
        else:
            member.done, member.timing = True, value

    def _raise_failed(self) -> NoReturn:
        """Raise for the rank that is the cause: one that died, if any, as its peers may have told of it first."""
        until_s = time.monotonic() + GRACE_S
        while waiting := [member for member in self.members if not member.done]:
            ready = wait([member.pipe for member in waiting], max(0.0, until_s - time.monotonic()))
            if not ready:
                break
            for member in waiting:
                if member.pipe in ready:
                    self._hear(member)
        failed = {index: each.failure for index, each in enumerate(self.members) if each.failure is not None}
        first = min(failed.values(), key=lambda each: (not each.died, each.at_s))
        alike = [index for index, each in failed.items() if (each.kind, each.sentence) == (first.kind, first.sentence)]
        error = first.kind(f"{ranks_text(alike)} of {len(self.members)} of {self.job.name!r} {first.sentence}")
        others = [f"rank {index} {said_of(each)}" for index, each in enumerate(self.members) if index not in alike]
        if first.traceback:
            annotate(error, first.traceback)
        if others:
            annotate(error, f"gpu_bench: meanwhile {'; '.join(others)}")
        raise error

    def _raise_hung(self, waiting: Sequence[Member]) -> NoReturn:
        for member in waiting:
            with suppress(ProcessLookupError, TypeError):
                os.kill(member.process.pid, signal.SIGUSR1)
        time.sleep(TRACEBACK_S)
        error = MeasurementError(
            f"{self.job.name!r} over {count(len(self.members), 'rank')} made no progress within the "
            f"{self.job.timeout_s:g} s of timeout_s=, and was ended: does every rank call the same collectives?"
        )
        for index, member in enumerate(self.members):
            dump = member.dump.read_text(errors="replace") if member.dump.exists() else ""
            annotate(error, "\n".join([f"gpu_bench: rank {index} {said_of(member)}", *own_lines(dump)]))
        raise error

    def _end(self) -> None:
        """End every process that is still there, and wait until it is gone."""
        finished = all(member.done and member.failure is None for member in self.members)
        for member in self.members:
            if finished:
                member.process.join(10 * GRACE_S)  # they are leaving their group
            if member.process.pid is not None and member.process.is_alive():
                member.process.kill()  # a kernel that spins, or a test that ignores SIGTERM, would not mind less
        for member in self.members:
            if member.process.pid is not None:
                member.process.join()
            member.pipe.close()


def ranks_text(indices: Sequence[int]) -> str:
    """Return ranks by their numbers: `rank 1`, `ranks 0, 1 and 3`."""
    *most, last = map(str, indices)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"


def said_of(member: Member) -> str:
    """Return what a rank did when another failed, and what it made of that."""
    doing = "was done" if member.done and member.failure is None else f"was {member.doing}"
    if member.failure is None:
        return doing
    return member.failure.sentence if member.failure.died else f"{doing}, and {member.failure.sentence:.{LONGEST}}"


def own_lines(dump: str) -> list[str]:
    """Return of what a process wrote about where it is, the innermost line first, those that are not ours."""
    lines = [line for line in dump.splitlines() if line.lstrip().startswith("File ")]
    within = next((place for place, line in enumerate(lines) if line.endswith(" in run_rank")), len(lines))
    return [line for line in lines[:within] if OURS not in line]


def died(code: int | None, doing: str) -> str:
    """Return how a process ended that did not say why."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name} while it was {doing}"
    return f"ended with exit code {code} while it was {doing}"


# the process of a rank


@dataclass(frozen=True)
class Place:
    """Which of the ranks a process is."""

    index: int
    world_size: int
    port: int
    device_index: int | None
    """None is the CPU."""
    dump: str


def run_rank(place: Place, pickled: bytes, pipe: Connection) -> None:
    """Take part, tell how it went, and end."""
    end_with_parent()
    label = ""
    with open(place.dump, "w") as dump:
        faulthandler.register(signal.SIGUSR1, dump, all_threads=False)
        try:
            job: Job = pickle.loads(pickled)
            label = job.name
            timing = take_part(job, place, lambda text: pipe.send(("doing", text)))
        except BaseException as error:
            pipe.send(("failed", failure_of(error, label)))
            pipe.close()
            os._exit(1)  # leaving the group in order would wait for ranks that may never come
        pipe.send(("done", timing))
        faulthandler.unregister(signal.SIGUSR1)
    import torch.distributed as dist

    dist.destroy_process_group()


def end_with_parent() -> None:
    """End this process when the one that started it is gone, however that ended."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None:
        return

    def end() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end, name="gpu_bench parent watch", daemon=True).start()


def failure_of(error: BaseException, label: str) -> Failure:
    """Return what the test is to raise for an error of a rank."""
    text = (str(error).strip().splitlines() or [""])[0]  # the traceback has all of them
    named = f"{type(error).__name__}: {text}".removesuffix(": ")
    if isinstance(error, (GpuBenchError, WrongResult)):
        return Failure(type(error), f"failed: {text}", own_traceback(error.__cause__) if error.__cause__ else "")
    sentence = f"raised {named}" if label else f"cannot begin ({named})"
    return Failure(MeasurementError, sentence, own_traceback(error))


def own_traceback(error: BaseException) -> str:
    """Return an error's traceback without our lines; with them where there are no others."""
    trace = traceback.TracebackException.from_exception(error)
    if any(not frame.filename.startswith(OURS) for frame in trace.stack):
        leave_out_ours(trace)
    return "".join(trace.format()).rstrip()


def leave_out_ours(trace: traceback.TracebackException | None) -> None:
    """Leave our lines out of the traceback of an error, and of those that it came from."""
    if trace is None:
        return
    trace.stack = traceback.StackSummary.from_list(
        [frame for frame in trace.stack if not frame.filename.startswith(OURS)]
    )
    leave_out_ours(trace.__cause__)
    leave_out_ours(trace.__context__)
    for each in getattr(trace, "exceptions", None) or ():  # of a group, from Python 3.11 on
        leave_out_ours(each)


def take_part(job: Job, place: Place, say: Callable[[str], None]) -> Timing | None:
    """Return what this rank took of a job."""
    device = cpu_device() if place.device_index is None else cuda_device(place.device_index)
    rank = Rank(place.index, place.world_size, device.torch_device)
    say("joining the others")
    fellows = Fellows(rank, place.port, job.timeout_s)
    setup = None if job.setup is None else bound(job.setup, rank)
    call = replace(make_call(job.function, make_arguments(setup=setup), label=job.name), prepares_on_device=True)
    started_s = time.perf_counter()
    say("calling the function for the first time")
    call_once(call, job, rank, device, fellows)
    if not job.timed:
        return None
    say("warming up")
    wanted = WARMUP_CALLS if job.plan.warmup is None else job.plan.warmup
    for _ in range(wanted):
        fellows.meet()
        call.prepare()()
        device.synchronize()
    say("measuring")
    timer = LockstepWall(device, job.plan.cache, fellows) if device.type == "cpu" else None
    measured_by = timer or LockstepProfiler(device, job.plan.cache, fellows)
    sample = take_together(measured_by, device, call, job.plan, fellows, say)
    say("calling the function for the last time")
    call_once(call, job, rank, device, fellows)
    return summarise(
        call, measured_by, device, job.plan, Warmth(wanted + 1, 0.0, 0.0), sample, time.perf_counter() - started_s
    )


def bound(setup: Callable[[Rank], object], rank: Rank) -> Callable[[], object]:
    """Return a rank's own setup."""
    return lambda: setup(rank)


def call_once(call: Call, job: Job, rank: Rank, device: Device, fellows: "Fellows") -> None:
    """Call it, and check what it returns; raise WrongResult where the check does."""
    fellows.meet()
    output = call.prepare()()
    refuse_lazy(output, call.label)
    device.synchronize()
    if job.check is None:
        return
    try:
        job.check(rank, output)
    except AssertionError as error:
        raise WrongResult(str(error) or "its check found another result than it expects") from error


class Fellows:
    """What ranks say to each other, from host to host and from GPU to GPU."""

    def __init__(self, rank: Rank, port: int, timeout_s: float) -> None:
        import torch
        import torch.distributed as dist

        os.environ.update(
            RANK=str(rank.index),
            LOCAL_RANK=str(rank.index),
            WORLD_SIZE=str(rank.world_size),
            LOCAL_WORLD_SIZE=str(rank.world_size),
            NCCL_NVLS_ENABLE="0",
        )
        if sys.platform == "linux":
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, "lo")
        if rank.device.type == "cuda":
            torch.cuda.set_device(rank.device)
        patience = timedelta(seconds=START_TIMEOUT_S + 2 * timeout_s)  # the test's process is first: it can say more
        store = dist.TCPStore(  # type: ignore[attr-defined] # public, though its home is C++
            "127.0.0.1", port, is_master=False, timeout=patience
        )
        backend = "nccl" if rank.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank.index, world_size=rank.world_size, timeout=patience)
        self.rank = rank
        self.hosts = dist.new_group(backend="gloo", timeout=patience)
        self.on_host = torch.zeros(1)
        self.on_device = torch.zeros(1, device=rank.device)
        self.meet_on_device()

    def meet(self) -> None:
        """Wait, on the host, until all are here."""
        import torch.distributed as dist

        dist.all_reduce(self.on_host, group=self.hosts)

    def meet_on_device(self) -> None:
        """Have the devices wait for each other in their queues."""
        import torch.distributed as dist

        dist.all_reduce(self.on_device)

    def tell(self, mine: object) -> list[Any]:
        """Return what each rank says, in their order."""
        import torch.distributed as dist

        said: list[Any] = [None] * self.rank.world_size
        dist.all_gather_object(said, mine, group=self.hosts)
        return said


class LockstepWall(WallTimer):
    """Read the host's clock around a call that all ranks begin together."""

    def __init__(self, device: Device, cache: str, fellows: Fellows) -> None:
        super().__init__(device, cache)
        flush = self.flush

        def flush_and_meet() -> None:
            flush()
            fellows.meet()

        self.flush = flush_and_meet


class LockstepProfiler(ProfilerTimer):
    """Sum the device's own records of a call that all GPUs begin together."""

    def __init__(self, device: Device, cache: str, fellows: Fellows) -> None:
        super().__init__(device, cache)
        self.fellows = fellows
        self.queued_us: deque[float] = deque(maxlen=REMEMBERED)
        """What the host took to queue each of the last calls."""

    def session(self) -> "LockstepSession":
        """Return a new profiler session."""
        return LockstepSession(self)

    def spin(self) -> None:
        """Keep the GPU busy for as long as the host is known to need."""
        import torch

        lead_us = min(max(LEAST_LEAD_US, HEADROOM * max(self.queued_us, default=0.0)), MOST_LEAD_US)
        cycles = int(lead_us * (self.device.facts.max_sm_clock_mhz or ASSUMED_CLOCK_MHZ))
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


class LockstepSession(ProfilerSession):
    """Record reps that all ranks begin together."""

    def __init__(self, lockstep: LockstepProfiler) -> None:
        super().__init__(lockstep)
        self.lockstep = lockstep
        self.met = new_event()
        self.bound: list[bool] = []

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep: its begin sentinel is queued behind the GPUs' meeting, and the call behind that."""
        timer, synchronize, slot = self.lockstep, self.lockstep.device.synchronize, 2 * len(self.taken)
        timed = call.prepare()
        synchronize()
        rest(idle_s)
        timer.flush()
        synchronize()
        timer.fellows.meet()
        timer.spin()
        queuing_s = time.perf_counter()
        timer.fellows.meet_on_device()
        self.met.record()
        timer.sentinels.begin(slot)
        timed()
        ahead = not self.met.query()  # type: ignore[no-untyped-call]
        timer.queued_us.append(1e6 * (time.perf_counter() - queuing_s))
        synchronize()
        timer.sentinels.end(slot + 1)
        self.taken.append(call)
        self.bound.append(not ahead)

    def reps(self) -> Sequence[Rep]:
        """Return the reps, flagged where the host was not ahead; raise MeasurementError where records are missing."""
        reps = super().reps()
        return [
            replace(rep, flags=(*rep.flags, HOST_BOUND)) if bound else rep
            for rep, bound in zip(reps, self.bound, strict=True)
        ]


LockstepTimer = LockstepWall | LockstepProfiler


@dataclass
class Throttled:
    """Reps that were taken while one of the GPUs was throttled, kept for the case that there are no others."""

    reps: list[Rep] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)


def take_together(
    timer: LockstepTimer, device: Device, call: Call, plan: Plan, fellows: Fellows, say: Callable[[str], None]
) -> Sample:
    """Take reps until the slowest of each are precise, or the time is spent, as the first rank decides."""
    watch = device.nvml.throttle_mask if device.nvml is not None else (lambda: 0)
    pacing = Pacing(device.facts.max_sm_clock_mhz)
    probe = Sample()
    take_session(timer, call, PROBE_REPS, 0.0, watch, probe, fellows)  # the first session of a process is slow
    started_s = time.perf_counter()
    take_session(timer, call, PROBE_REPS, pacing.idle_s(probe.reps), watch, Sample(), fellows)
    cost_s = (time.perf_counter() - started_s) / PROBE_REPS
    budget = Budget(plan.reps, plan.precision, plan.max_time_s, cost_s, precision_time_s=plan.precision_time_s)
    sample = Sample()
    slowest_us: list[float] = []
    while wanted := fellows.tell(next_batch(budget, slowest_us, True))[0]:
        wanted, started_s = min(wanted, timer.max_reps), time.perf_counter()
        take_clean(timer, call, wanted, pacing.idle_s(sample.reps or probe.reps), watch, sample, fellows)
        slowest_us = list(map(max, zip(*fellows.tell(sample.samples_us), strict=True)))
        budget.spend(time.perf_counter() - started_s, wanted)
        say(f"measuring, {count(len(slowest_us), 'rep')} taken")
    return sample


def take_clean(
    timer: LockstepTimer,
    call: Call,
    wanted: int,
    idle_s: float,
    watch: Callable[[], int],
    sample: Sample,
    fellows: Fellows,
) -> None:
    """Add so many reps to the sample, those taken while a GPU was throttled only where no others can be had."""
    throttled, pause_s, missing = Throttled(), PAUSE_S, wanted
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
        batch = Sample(reps=sample.reps[:1])
        masks = take_session(timer, call, missing, idle_s, watch, batch, fellows)
        sample.remeasured += batch.remeasured
        for rep, mask in zip(batch.reps[-missing:], masks, strict=True):
            if mask:
                throttled.reps.append(rep)
                throttled.masks.append(mask)
            else:
                sample.reps.append(rep)
        missing = sum(1 for mask in masks if mask)
        if not missing:
            break
    sample.discarded += len(throttled.reps) - missing
    for rep, mask in zip(throttled.reps[:missing], throttled.masks[:missing], strict=True):
        sample.reps.append(rep)
        sample.throttle_mask |= mask


def take_session(
    timer: LockstepTimer,
    call: Call,
    wanted: int,
    idle_s: float,
    watch: Callable[[], int],
    sample: Sample,
    fellows: Fellows,
) -> list[int]:
    """Add a session's reps to the sample, again where one rank's are not complete; return by rep what throttled any.

    All raise the same error where they never are.
    """
    for attempt in range(1, ATTEMPTS + 1):
        masks: list[int] = []
        problem: MeasurementError | None = None
        reps: Sequence[Rep] = ()
        with without_collecting(), timer.session() as session:
            for _ in range(wanted):
                session.take(call, idle_s)
                masks.append(watch())
        try:
            reps = session.reps()
            check_same_kernels(call, [*sample.reps[:1], *reps])
        except MeasurementError as error:  # the others have to be told, or they would wait
            problem = error
        told = fellows.tell((problem, masks))
        problems = [(index, each) for index, (each, _) in enumerate(told) if each is not None]
        if not problems:
            sample.reps += reps
            return [combined(column) for column in zip(*(each for _, each in told), strict=True)]
        sample.remeasured += 1
        index, first = problems[0]
        if attempt == ATTEMPTS:
            raise type(first)(f"rank {index}: {first} (measured {count(attempt, 'time')})")
    raise AssertionError("the last attempt returns or raises")


def combined(masks: Sequence[int]) -> int:
    """Return the throttle reasons of all ranks together."""
    whole = 0
    for mask in masks:
        whole |= mask
    return whole
