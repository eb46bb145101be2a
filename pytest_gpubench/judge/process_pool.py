"""Processes that are warmed ahead of their candidates, one for each."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpubench.errors import GpuBenchError, MeasurementError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.isolation import NOT_AVAILABLE
from pytest_gpubench.judge.judgement import Ended
from pytest_gpubench.judge.process import STOP_S, Process
from pytest_gpubench.judge.template import Template

MEMORY_BYTES = 16 * 2**30
MOST_READY = 2
"""A candidate on a GPU needs a process of its own, and one that replays its call."""


@dataclass
class ProcessPool:
    """Processes of one device, started ahead of their candidates."""

    device: Device
    memory_bytes: int = MEMORY_BYTES
    ahead: int = 1
    _waiting: list[Process] = field(default_factory=list)
    """Those that warm up, or are warm."""
    _ready: list[Candidate] = field(default_factory=list)
    """Those that were tried."""
    _ending: list[Candidate] = field(default_factory=list)
    """Those that were killed, until they have ended."""
    _template: Template | None = None
    _cache: Path | None = None
    """A copy of Triton's cache after warming up, before a candidate was loaded."""

    def start(self, number: int) -> None:
        """Start processes until there are so many for candidates to come."""
        while len(self._ready) + len(self._waiting) < number:
            self._waiting.append(self._start())

    def get(self) -> Candidate:
        """Return a candidate in a warm process; raise MeasurementError where none works."""
        while self._ready:
            candidate = self._ready.pop(0)
            if not candidate.process.has_ended:  # for lack of memory
                return candidate
            candidate.end()
        if self._waiting:
            with suppress(MeasurementError):  # a candidate may have broken all of them
                return self._tried(self._waiting.pop(0))
            self._drop()
        return self._tried(self._start())

    def end(self, candidate: Candidate) -> None:
        """Kill a candidate's process; it has ended before anything is timed, which takes CUDA 0.1 s.

        Its end is awaited here where the GPU has no memory for another candidate, and on the CPU.
        """
        candidate.process.send(signal.SIGKILL)
        if candidate not in self._ending:
            self._ending.append(candidate)
        if not self._has_room():
            self.await_ends()

    def _has_room(self) -> bool:
        import torch

        return self.device.type == "cuda" and torch.cuda.mem_get_info(self.device.torch_device)[0] > self.memory_bytes

    def await_ends(self) -> None:
        """Wait until those that were killed have ended, and prepare others meanwhile."""
        try:
            if self._ending:
                self._prepare()
        finally:
            self._end_killed()

    def _end_killed(self) -> None:
        for candidate in self._ending:
            candidate.end()
        self._ending = [each for each in self._ending if each.process.lingers]

    def _prepare(self, look: Callable[[], None] = lambda: None) -> None:
        """Try processes that are warm, as many as a candidate needs, and start others; `get` raises what fails.

        look: called before each that is tried.
        """
        try:
            while self._waiting and self._waiting[0].has_answered and len(self._ready) < MOST_READY:
                look()
                self._ready.append(self._tried(self._waiting.pop(0)))
            self.start(self.ahead)
        except MeasurementError:
            self._drop()

    def _tried(self, process: Process) -> Candidate:
        """Return the candidate of a warm process that works; raise MeasurementError where it does not."""
        candidate = None
        try:
            process.wait_ready()
            process.allow(2 * STOP_S)  # a candidate that is judged meanwhile may keep the GPU busy
            writes_anywhere = has_open_files(process.isolation)
            candidate = Candidate(process, self.device)
            candidate.practise()
            candidate.alone, candidate.meanwhile = self.alone, self._prepare
            if self._cache is None and self.device.type == "cuda" and not writes_anywhere:
                self._keep_cache(process.cache)  # no candidate can write what later ones run
        except BaseException as error:
            (candidate.end if candidate else process.close)()
            if not isinstance(error, (Ended, GpuBenchError, RuntimeError, OSError)):
                raise
            detail = error.detail if isinstance(error, Ended) else ""
            raise MeasurementError(f"the candidate's process does not work: {error} {detail}".strip()) from None
        return candidate

    def _keep_cache(self, cache: Path) -> None:
        folder = Path(tempfile.mkdtemp(prefix="gpu_bench_judge_cache_"))
        try:
            self._cache = shutil.copytree(cache, folder, dirs_exist_ok=True)
        except OSError:  # the disk is full, and half of a cache is none
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _start(self) -> Process:
        if self._template is not None and self._template.has_ended:
            self._template.close()
            self._template = None
        try:
            self._template = self._template or Template()
            return Process(self._template, self.device, self.memory_bytes, self._cache)
        except OSError as error:
            raise MeasurementError(f"no process can be started for a candidate: {error}") from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for those that end, and stop the processes that warm up: a GPU takes turns with them too.

        Raises MeasurementError where one was killed and does not end.
        """
        self.await_ends()
        if self._ending:
            groups = ", ".join(str(each.process.pid) for each in self._ending)
            raise MeasurementError(
                f"processes of a candidate were killed and have not ended (group {groups}), as the kernel waits for a "
                "driver or a disk, and nothing is timed while they live: judge again when they have ended"
            )
        waiting = [*self._waiting]
        for process in waiting:
            process.send(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in waiting:
                process.send(signal.SIGCONT)

    def _drop(self) -> None:
        """End the processes for candidates to come."""
        for process in self._waiting:
            process.close()
        for candidate in self._ready:
            candidate.end()
        self._waiting.clear()
        self._ready.clear()
        self._end_killed()

    def close(self) -> None:
        """End all processes."""
        self._drop()
        if self._template is not None:
            self._template.close()
            self._template = None
        if self._cache is not None:
            shutil.rmtree(self._cache, ignore_errors=True)
            self._cache = None


def has_open_files(isolation: Mapping[str, str]) -> bool:
    """Tell whether nothing limits the files that a process may write but its user's rights.

    Raises MeasurementError where that are all files of this machine, the plugin's own among them.
    """
    landlock = isolation.get("landlock", NOT_AVAILABLE)
    is_open = landlock.startswith(NOT_AVAILABLE)
    if os.geteuid() == 0 and is_open:
        raise MeasurementError(
            f"judge runs as root, and nothing limits the files that a candidate may write (Landlock is {landlock}): "
            "run it as another user, or on Linux 5.13 or later"
        )
    return is_open
