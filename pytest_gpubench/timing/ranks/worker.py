"""The process of a rank: it joins the others, takes reps that all begin and keep together, reports, and ends."""

import faulthandler
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial, reduce
from itertools import dropwhile
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from operator import or_
from pathlib import Path
from typing import Any

import torch

from pytest_gpubench.errors import GpuBenchError, MeasurementError, NothingRecorded, WrongResult
from pytest_gpubench.gpu.device import Device, cpu_device, cuda_device, new_event
from pytest_gpubench.results.model import Timing, text_of
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.stats.stopping import Budget, next_batch
from pytest_gpubench.timing.attempts import ATTEMPTS, NOT_COMPLETE, Pauses, until_complete
from pytest_gpubench.timing.base import PROBE_REPS, Call, Rep, Timer, collection_off
from pytest_gpubench.timing.calls import make_arguments, make_call, refuse_untimeable
from pytest_gpubench.timing.events import HOST_BOUND, REMEMBERED, lead_for, spin
from pytest_gpubench.timing.measurement import Plan, summarise
from pytest_gpubench.timing.pacing import Pacing, rest
from pytest_gpubench.timing.profiler import ProfilerSession, ProfilerTimer
from pytest_gpubench.timing.ranks.job import LOOPBACK, START_TIMEOUT_S, Job, Rank
from pytest_gpubench.timing.rounds import Sample, check_same_kernels
from pytest_gpubench.timing.wall import WallTimer
from pytest_gpubench.timing.warmup import Warmth
from pytest_gpubench.units import count

# ranks as each other's peers: their hosts and GPUs wait for each other, and their hosts talk


class Peers:
    """The other ranks, over a process group for the GPUs and one for the hosts."""

    def __init__(self, rank: Rank, port: int, timeout_s: float) -> None:
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
        # the test's process gives up before this: it can say more
        patience = timedelta(seconds=START_TIMEOUT_S + 2 * timeout_s)
        store = torch.distributed.TCPStore(  # type: ignore[attr-defined] # public, though its home is C++
            LOOPBACK, port, is_master=False, timeout=patience
        )
        backend = "nccl" if rank.device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(
            backend, store=store, rank=rank.index, world_size=rank.world_size, timeout=patience
        )
        self._world_size = rank.world_size
        self._hosts = torch.distributed.new_group(backend="gloo", timeout=patience)
        self._on_host = torch.zeros(1, device="cpu")
        self._on_device = torch.zeros(1, device=rank.device)
        self.meet_on_device()

    def meet(self) -> None:
        """Wait, on the host, until all are here."""
        torch.distributed.all_reduce(self._on_host, group=self._hosts)

    def meet_on_device(self) -> None:
        """Have the devices wait for each other in their queues."""
        torch.distributed.all_reduce(self._on_device)

    def tell(self, mine: object) -> list[Any]:
        """Return each rank's message, in their order."""
        told: list[Any] = [None] * self._world_size
        torch.distributed.all_gather_object(told, mine, group=self._hosts)
        return told


# reps that all ranks begin together: their hosts wait for each other, and then their GPUs

LONGEST_SPIN_US = 5_000.0


class SynchronisedProfilerTimer(ProfilerTimer):
    """Sum the device's own records of a call that all GPUs begin together."""

    def __init__(self, device: Device, cache: Cache, peers: Peers) -> None:
        super().__init__(device, cache)
        self.peers = peers
        self.queued_us: deque[float] = deque(maxlen=REMEMBERED)
        """The host's time to queue each of the last calls."""

    def session(self) -> "SynchronisedSession":
        """Return a new profiler session."""
        return SynchronisedSession(self)


class SynchronisedSession(ProfilerSession):
    """Record reps that all ranks begin together."""

    def __init__(self, synchronised: SynchronisedProfilerTimer) -> None:
        super().__init__(synchronised)
        self.synchronised = synchronised
        self.met = new_event()
        self.host_bound: list[bool] = []

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep: the GPUs' meeting is queued first, behind it the begin sentinel, and behind that the call."""
        timer, synchronize, slot = self.synchronised, self.synchronised.device.synchronize, 2 * len(self.taken)
        timed = call.prepare()
        synchronize()
        rest(idle_s)
        timer.flush()
        synchronize()
        timer.peers.meet()
        spin(timer.device, lead_for(timer.queued_us, LONGEST_SPIN_US))
        queuing_s = time.perf_counter()
        timer.peers.meet_on_device()
        self.met.record()
        timer.sentinels.begin(slot)
        timed()
        ahead = not self.met.query()  # type: ignore[no-untyped-call]
        timer.queued_us.append(1e6 * (time.perf_counter() - queuing_s))
        synchronize()
        timer.sentinels.end(slot + 1)
        self.taken.append(call)
        self.host_bound.append(not ahead)

    def reps(self) -> Sequence[Rep]:
        """Return the reps, flagged where the host was not ahead; raise MeasurementError where records are missing."""
        return [
            replace(rep, flags=(*rep.flags, HOST_BOUND)) if bound else rep
            for rep, bound in zip(super().reps(), self.host_bound, strict=True)
        ]


# reps that all keep, or take again, together: one that a rank cannot use is of no use to any

LONGEST_BATCH_S = 10.0
"""Each batch ends with a message, without which ranks are ended as hung."""


@dataclass(frozen=True)
class RankSampler:
    """Take reps of a call in agreement with the other ranks."""

    timer: Timer
    call: Call
    watch: Callable[[], int]
    """Returns what throttles this rank's GPU."""
    peers: Peers

    def take_sample(self, plan: Plan, pacing: Pacing, say: Callable[[str], None]) -> Sample:
        """Take reps until the slowest of each are precise, or the time is spent, as the first rank decides."""
        probe = [rep for rep, *_ in self.take_session(PROBE_REPS, 0.0, Sample())]  # the first of a process is slow
        started_s = time.perf_counter()
        self.take_session(PROBE_REPS, pacing.idle_s(probe), Sample())
        cost_s = (time.perf_counter() - started_s) / PROBE_REPS
        budget = Budget(plan.reps, plan.precision, plan.max_time_s, cost_s, precision_time_s=plan.precision_time_s)
        sample = Sample()
        slowest_us: list[float] = []
        most = min(self.timer.max_reps, 1 + int(LONGEST_BATCH_S / cost_s))
        while wanted := self.peers.tell(min(next_batch(budget, slowest_us, True), most))[0]:
            started_s = time.perf_counter()
            self.take_clean(wanted, pacing.idle_s(sample.reps or probe), sample)
            slowest_us = list(map(max, zip(*self.peers.tell(sample.samples_us), strict=True)))
            budget.spend(time.perf_counter() - started_s, wanted)
            say(f"measuring, {count(len(slowest_us), 'rep')} taken")
        return sample

    def take_clean(self, wanted: int, idle_s: float, sample: Sample) -> None:
        """Add so many reps to the sample, throttled or host-bound ones only where no others can be had."""
        unclean: list[tuple[Rep, int]] = []
        pauses, missing = Pauses(), wanted
        for attempt in range(ATTEMPTS):
            if attempt:
                pauses.rest()
            taken = self.take_session(missing, idle_s, sample)
            sample.reps += [rep for rep, _, is_clean in taken if is_clean]
            again = [(rep, mask) for rep, mask, is_clean in taken if not is_clean]
            unclean, missing = [*unclean, *again], len(again)
            if not missing:
                break
        sample.discarded += len(unclean) - missing
        for rep, mask in unclean[:missing]:
            sample.reps.append(rep)
            sample.throttle_mask |= mask

    def take_session(self, wanted: int, idle_s: float, sample: Sample) -> list[tuple[Rep, int, bool]]:
        """Return a session's reps, each with what throttled any GPU in it, and whether it is clean on all ranks.

        All measure again where one's are not complete, and raise the same error where they never are.
        """

        def take() -> list[tuple[Rep, int, bool]]:
            masks: list[int] = []
            problem: MeasurementError | None = None
            reps: Sequence[Rep] = ()
            with collection_off(), self.timer.session() as session:
                for _ in range(wanted):
                    session.take(self.call, idle_s)
                    masks.append(self.watch())
            try:
                reps = session.reps()
                check_same_kernels(self.call, [*sample.reps[:1], *reps])
            except MeasurementError as error:  # the others have to be told, or they would wait
                problem = error
            behind = [HOST_BOUND in rep.flags for rep in reps]
            # a host that was never ahead would not be the next time
            told = self.peers.tell((problem, masks, [False] * len(behind) if all(behind) else behind))
            for index, (each, *_) in enumerate(told):
                if each is not None:
                    raise type(each)(f"rank {index}: {each}")
            throttled = [reduce(or_, column) for column in zip(*(each for _, each, _ in told), strict=True)]
            late = map(any, zip(*(each for *_, each in told), strict=True))
            return [(rep, mask, not (mask or each)) for rep, mask, each in zip(reps, throttled, late, strict=True)]

        return until_complete(take, again=sample.count_again, errors=(*NOT_COMPLETE, NothingRecorded))


# the process

WARMUP_CALLS = 8
OURS = f"{Path(__file__).parents[2]}{os.sep}"
"""The beginning of the names of our files."""


@dataclass(frozen=True)
class Assignment:
    """The rank that a process is, and its GPU."""

    index: int
    world_size: int
    port: int
    device_index: int | None
    """None is the CPU."""
    dump: str
    """The file for a traceback of what it is doing."""
    pacing: Pacing
    """From the process of the test: it alone knows of clocks that it has locked."""


@dataclass(frozen=True)
class Failure:
    """The reason why a rank cannot go on."""

    kind: type[Exception]
    """The error that the test raises for it."""
    sentence: str
    traceback: str = ""
    """The user's own lines of it."""
    died: bool = False
    """True if the process ended without a message."""
    at_s: float = field(default_factory=time.monotonic)
    """The time of the failure, by a clock that all processes share."""


def run_worker(assignment: Assignment, pickled: bytes, pipe: Connection) -> None:
    """Do the job, report, and end."""
    end_with_parent()
    label = ""
    with open(assignment.dump, "w") as dump:
        faulthandler.register(signal.SIGUSR1, dump, all_threads=False)
        try:
            job: Job = pickle.loads(pickled)
            label = job.name
            timing = do_job(job, assignment, lambda text: pipe.send(("doing", text)))
        except BaseException as error:
            pipe.send(("failed", failure_of(error, label)))
            pipe.close()
            os._exit(1)  # leaving the group in order would wait for ranks that may never come
        pipe.send(("done", timing))
        faulthandler.unregister(signal.SIGUSR1)
    torch.distributed.destroy_process_group()


def end_with_parent() -> None:
    """End this process when the one that started it has ended."""

    def end(started_by: int) -> None:
        wait([started_by])
        os._exit(1)

    if (parent := parent_process()) is not None:
        threading.Thread(target=end, args=(parent.sentinel,), name="gpu_bench parent watch", daemon=True).start()


def do_job(job: Job, assignment: Assignment, say: Callable[[str], None]) -> Timing | None:
    """Return this rank's timing of a job; None for one that is not timed."""
    device = cpu_device() if assignment.device_index is None else cuda_device(assignment.device_index)
    rank = Rank(assignment.index, assignment.world_size, device.torch_device)
    say("joining the others")
    peers = Peers(rank, assignment.port, job.timeout_s)
    setup = None if job.setup is None else partial(job.setup, rank)
    call = replace(make_call(job.function, make_arguments(setup=setup), label=job.name), prepares_on_device=True)
    started_s = time.perf_counter()
    say("calling the function for the first time")
    call_once(call, job, rank, device, peers)
    if not job.timed:
        return None
    wanted = WARMUP_CALLS if job.plan.warmup is None else job.plan.warmup
    for _ in range(wanted):
        say("warming up")
        peers.meet()
        call.prepare()()
        device.synchronize()
    say("measuring")
    timer = _timer_on(device, job.plan.cache, peers)
    watch = device.nvml.throttle_mask if device.nvml is not None else (lambda: 0)
    sample = RankSampler(timer, call, watch, peers).take_sample(job.plan, assignment.pacing, say)
    say("calling the function for the last time")
    call_once(call, job, rank, device, peers)
    warmth = Warmth(wanted + 1, 0.0, 0.0)
    return summarise(call, timer, device, job.plan, warmth, sample, time.perf_counter() - started_s)


def _timer_on(device: Device, cache: Cache, peers: Peers) -> Timer:
    """Return a timer of a call that all ranks begin together."""
    if device.type == "cuda":
        return SynchronisedProfilerTimer(device, cache, peers)
    timer = WallTimer(device, cache)
    flush = timer.flush

    def flush_and_meet() -> None:
        flush()
        peers.meet()

    timer.flush = flush_and_meet
    timer.takes_off = False  # ranks wait for each other's cores
    return timer


def call_once(call: Call, job: Job, rank: Rank, device: Device, peers: Peers) -> None:
    """Call it, and check what it returns; raise WrongResult where the check does."""
    peers.meet()
    output = call.prepare()()
    refuse_untimeable(output, call.label)
    device.synchronize()
    if job.check is None:
        return
    try:
        job.check(rank, output)
    except AssertionError as error:
        raise WrongResult(text_of(error) or "its check found another result than it expects") from error


# its failure


def failure_of(error: BaseException, label: str) -> Failure:
    """Return the failure that an error of a rank is; label: empty until the job has been read."""
    text = (text_of(error).strip().splitlines() or [""])[0]  # the traceback has all of them
    named = f"{type(error).__name__}: {text}".removesuffix(": ")
    if isinstance(error, (GpuBenchError, WrongResult)):
        return Failure(type(error), f"failed: {text}", _own_traceback(error.__cause__) if error.__cause__ else "")
    sentence = f"raised {named}" if label else f"cannot begin ({named})"
    return Failure(MeasurementError, sentence, _own_traceback(error))


def _own_traceback(error: BaseException) -> str:
    """Return an error's traceback from the user's first line on; all of it where there is none."""
    told = traceback.TracebackException.from_exception(error)
    _cut(told)
    return "".join(told.format()).rstrip()


def _cut(told: traceback.TracebackException) -> None:
    """Leave out our first frames from an error, its causes and the members of a group."""
    told.stack[:] = list(dropwhile(lambda frame: frame.filename.startswith(OURS), told.stack)) or told.stack
    for each in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
        if each is not None:
            _cut(each)
