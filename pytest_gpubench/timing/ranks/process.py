"""The process of a rank: it joins the others, calls and times what they all do, tells how it went, and ends."""

import faulthandler
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait

from pytest_gpubench.errors import WrongResult
from pytest_gpubench.gpu.device import Device, cpu_device, cuda_device
from pytest_gpubench.results.model import Timing
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import make_arguments, make_call, refuse_lazy
from pytest_gpubench.timing.measurement import summarise
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks.failure import failure_of
from pytest_gpubench.timing.ranks.fellows import Fellows
from pytest_gpubench.timing.ranks.job import Job, Rank
from pytest_gpubench.timing.ranks.lockstep import LockstepProfiler, LockstepWall
from pytest_gpubench.timing.ranks.sampling import take_together
from pytest_gpubench.timing.warmup import Warmth

__tracebackhide__ = True

WARMUP_CALLS = 8


@dataclass(frozen=True)
class Place:
    """Which of the ranks a process is."""

    index: int
    world_size: int
    port: int
    device_index: int | None
    """None is the CPU."""
    dump: str
    pacing: Pacing
    """As the process of the test knows it, which alone knows of clocks that it has locked."""


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
    sample = take_together(measured_by, device, call, job.plan, place.pacing, fellows, say)
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
