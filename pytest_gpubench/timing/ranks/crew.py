"""The processes of a call over several ranks, as the process of the test knows them: none is left behind."""

import os
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

from pytest_gpubench.errors import BadRequest, MeasurementError, annotate
from pytest_gpubench.gpu.device import Device, cuda_device
from pytest_gpubench.results.model import Timing
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks.failure import Failure, died, own_lines
from pytest_gpubench.timing.ranks.job import START_TIMEOUT_S, Job, checked
from pytest_gpubench.timing.ranks.process import Place, run_rank
from pytest_gpubench.timing.ranks.timings import Ranks, combine
from pytest_gpubench.units import count

__tracebackhide__ = True

STARTING = "starting"
GRACE_S = 1.0
"""For how long news of others is awaited once one rank has failed: its peers may notice before it is told why."""
TRACEBACK_S = 0.5
LONGEST = 150
"""Of what a rank says of another's failure: what it noticed of that, in the words of a library below."""


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
            place = Place(
                index=index,
                world_size=len(self.devices),
                port=port,
                device_index=device.torch_device.index,
                dump=str(folder / f"{index}.txt"),
                pacing=Pacing.of(device),
            )
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
            patience_s = self.job.timeout_s if started else START_TIMEOUT_S
            ready = wait(pipes, patience_s)
            if not ready:
                self._raise_hung(waiting, hung(patience_s) if started else not_started(patience_s))
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

    def _raise_hung(self, waiting: Sequence[Member], what: str) -> NoReturn:
        for member in waiting:
            with suppress(ProcessLookupError, TypeError):
                os.kill(member.process.pid, signal.SIGUSR1)
        time.sleep(TRACEBACK_S)
        error = MeasurementError(f"{self.job.name!r} over {count(len(self.members), 'rank')} {what}")
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


def hung(waited_s: float) -> str:
    """Return what ranks did that had no news for the time of timeout_s."""
    return (
        f"made no progress within the {waited_s:g} s of timeout_s=, and was ended: does every rank call the same "
        "collectives?"
    )


def not_started(waited_s: float) -> str:
    """Return what ranks did whose processes never all began."""
    return f"did not start within {waited_s:g} s: what does the test's module do when its processes import it?"


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
