"""The processes of a call over several ranks: start them, listen to them, and leave none behind."""

import itertools
import os
import pickle
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch

from pytest_gpubench.child_process import how_ended
from pytest_gpubench.errors import BadRequest, MeasurementError, annotate
from pytest_gpubench.gpu.device import Device, cuda_device
from pytest_gpubench.results.model import Timing
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks.job import LOOPBACK, START_TIMEOUT_S, Job
from pytest_gpubench.timing.ranks.result import Ranks
from pytest_gpubench.timing.ranks.worker import OURS, Assignment, Failure, run_worker
from pytest_gpubench.units import count, repr_of

STARTING = "starting"
NOT_STARTED = "did not start within {:g} s: what does the test's module do when its processes import it?"
HUNG = "made no progress within the {:g} s of timeout_s=, and was ended: does every rank call the same collectives?"
GRACE_S = 1.0
"""The wait for other messages once one rank has failed: its peers may fail before its own error arrives."""
TRACEBACK_S = 0.5
LONGEST_QUOTE = 150
"""The most of what a rank says about another's failure: those are the words of a library below."""


def measure_ranks(job: Job, device: Device, world_size: int) -> Ranks | None:
    """Return the time of a job in so many processes, one for each GPU; None for one that is not timed.

    device: of the first rank; the others have the GPUs after it in their order, or the same CPU. Raises BadRequest for
    invalid arguments, WrongResult where a check fails, MeasurementError where a rank raises, dies, or makes no
    progress, with notes of where that was and of what the others did. All processes have ended by then.
    """
    pickled = pickled_job(job, world_size)
    timings = Processes(job, pickled, _devices_of(device, world_size)).run()
    if not job.timed:
        return None
    return combine([timing for timing in timings if timing is not None], job)


def _devices_of(device: Device, world_size: int) -> list[Device]:
    if device.type == "cpu":
        return [device] * world_size
    first, there = device.torch_device.index, torch.cuda.device_count()
    if there < world_size:
        raise BadRequest(f"ranks(world_size={world_size}) needs {world_size} GPUs, and this process sees {there}")
    others = [index for index in range(there) if index != first]
    return [device, *(cuda_device(index) for index in others[: world_size - 1])]


def serve_on_loopback() -> Any:
    """Return a torch store that only processes of this host can reach: by itself it listens on all interfaces.

    The server is here from the start and its port its own: no other process can take it between two steps.
    """
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        return torch.distributed.TCPStore(  # type: ignore[attr-defined] # public, though its home is C++
            LOOPBACK,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=server.detach(),
            use_libuv=False,  # which takes no descriptor in torch 2.6
        )


@dataclass
class RankProcess:
    """The process of a rank, as the process of the test knows it."""

    process: Any
    pipe: Connection
    dump: Path
    """The file in which it writes, when asked, what it is doing."""
    doing: str = STARTING
    timing: Timing | None = None
    done: bool = False
    failure: Failure | None = None

    def hear(self) -> None:
        """Read the next message; a closed pipe is the end of the process."""
        try:
            news, value = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(GRACE_S)
            ended = f"ended with {how_ended(self.process.exitcode)} while it was {self.doing}"
            news, value = "failed", Failure(MeasurementError, ended, died=True)
        if news == "doing":
            self.doing = value
            return
        self.done = True
        if news == "failed":
            self.failure = value
        else:
            self.timing = value

    def __str__(self) -> str:
        if self.failure is not None and self.failure.died:
            return self.failure.sentence
        if self.failure is not None:
            return f"was {self.doing}, and {self.failure.sentence:.{LONGEST_QUOTE}}"
        return "was done" if self.done else f"was {self.doing}"


@dataclass
class Processes:
    """Start the ranks, listen to them, and end them."""

    job: Job
    pickled: bytes
    devices: Sequence[Device]
    workers: list[RankProcess] = field(default_factory=list)

    def run(self) -> list[Timing | None]:
        """Return each rank's timing; raise for the first that fails."""
        store = serve_on_loopback()
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._start(store.port, Path(folder))
                self._listen()
                return [worker.timing for worker in self.workers]
            finally:
                self._end()

    def _start(self, port: int, folder: Path) -> None:
        context = torch.multiprocessing.get_context("spawn")
        for index, device in enumerate(self.devices):
            here, there = context.Pipe(duplex=False)
            dump = folder / f"{index}.txt"
            assignment = Assignment(
                index, len(self.devices), port, device.torch_device.index, str(dump), Pacing.of(device)
            )
            process = context.Process(
                target=run_worker, args=(assignment, self.pickled, there), name=f"gpu_bench rank {index}"
            )
            self.workers.append(RankProcess(process, here, dump))
            process.start()
            there.close()  # or the end of the rank would not be the end of the pipe

    def _listen(self) -> None:
        """Listen until all are done; raise for the first that fails, or where none has news for too long."""
        while not all(worker.done for worker in self.workers):
            started = all(worker.doing != STARTING for worker in self.workers)
            patience_s = self.job.timeout_s if started else START_TIMEOUT_S
            if not self._hear(patience_s):
                self._raise_hung((HUNG if started else NOT_STARTED).format(patience_s))
            if any(worker.failure for worker in self.workers):
                self._raise_failed()

    def _hear(self, patience_s: float) -> bool:
        """Hear the workers that have news; return False where all are done, or none has any for so long."""
        waiting = {worker.pipe: worker for worker in self.workers if not worker.done}
        ready = wait(list(waiting), patience_s) if waiting else []
        for pipe, worker in waiting.items():
            if pipe in ready:
                worker.hear()
        return bool(ready)

    def _raise_failed(self) -> NoReturn:
        """Raise for the rank that is the cause: one that died, if any, as its peers may have told of it first."""
        until_s = time.monotonic() + GRACE_S
        while self._hear(max(0.0, until_s - time.monotonic())):
            pass
        failed = {index: each.failure for index, each in enumerate(self.workers) if each.failure is not None}
        first = min(failed.values(), key=lambda each: (not each.died, each.at_s))
        alike = [index for index, each in failed.items() if (each.kind, each.sentence) == (first.kind, first.sentence)]
        *most, last = map(str, alike)
        ranks = f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"
        error = first.kind(f"{ranks} of {len(self.workers)} of {self.job.name!r} {first.sentence}")
        others = [f"rank {index} {worker}" for index, worker in enumerate(self.workers) if index not in alike]
        if first.traceback:
            annotate(error, first.traceback)
        if others:
            annotate(error, f"gpu_bench: meanwhile {'; '.join(others)}")
        raise error

    def _raise_hung(self, what: str) -> NoReturn:
        """Raise with the lines at which ranks that are not done are, the innermost first; ours are left out."""
        for worker in self.workers:
            with suppress(ProcessLookupError, TypeError):
                if not worker.done:
                    os.kill(worker.process.pid, signal.SIGUSR1)
        time.sleep(TRACEBACK_S)
        error = MeasurementError(f"{self.job.name!r} over {count(len(self.workers), 'rank')} {what}")
        for index, worker in enumerate(self.workers):
            dump = worker.dump.read_text(errors="replace") if worker.dump.exists() else ""
            lines = [line for line in dump.splitlines() if line.lstrip().startswith("File ")]
            within = itertools.takewhile(lambda line: not line.endswith(" in run_worker"), lines)
            own = [line for line in within if OURS not in line]
            annotate(error, "\n".join([f"gpu_bench: rank {index} {worker}", *own]))
        raise error

    def _end(self) -> None:
        """End every process, and wait until it has ended."""
        finished = all(worker.done and worker.failure is None for worker in self.workers)
        started = [worker.process for worker in self.workers if worker.process.pid is not None]
        for process in started:
            if finished:
                process.join(10 * GRACE_S)  # it is leaving its group
            if process.is_alive():
                process.kill()  # a kernel that spins, or a test that ignores SIGTERM, would go on
        for process in started:
            process.join()
        for worker in self.workers:
            worker.pipe.close()


def pickled_job(job: Job, world_size: int) -> bytes:
    """Return a job as another process can read it; raise BadRequest for invalid arguments."""
    job.bus_bytes(world_size)
    for name, given in (("setup", job.setup), ("check", job.check)):
        if given is not None and not callable(given):
            raise BadRequest(f"ranks({name}={repr_of(given)}) is not valid: it must be a function")
    try:
        return pickle.dumps(job)
    except Exception as error:
        raise BadRequest(
            f"ranks({job.name}) cannot be run by other processes ({error}): its function, setup= and check= must be "
            "defined at the top of a module that can be imported, not in a test, and not be lambdas"
        ) from None


def combine(timings: Sequence[Timing], job: Job) -> Ranks:
    """Combine the timings of all ranks of a job: in each rep the slowest counts.

    Kernels, and all else that is not known by rep, are those of the rank with the longest median. Raises
    MeasurementError unless all ranks took each rep.
    """
    reps = {timing.reps for timing in timings}
    if len(reps) != 1 or reps == {0}:
        found = ", ".join(str(timing.reps) for timing in timings)
        raise MeasurementError(f"the ranks of {timings[0].label!r} did not all take the same reps: they took {found}")
    samples = list(zip(*(timing.samples_us for timing in timings), strict=True))
    slowest = [max(range(len(timings)), key=column.__getitem__) for column in samples]

    def of_slowest(values: Sequence[Sequence[float]]) -> tuple[float, ...]:
        return tuple(values[rank][rep] for rep, rank in enumerate(slowest)) if all(values) else ()

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
        moved_bytes=job.bus_bytes(len(timings)),
    )
    return Ranks(timing, tuple(timings), job.message_bytes)
