"""Processes that are warmed ahead of their candidates, one for each."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.isolation import LEVELS, NOT_AVAILABLE, hide_memory
from pytest_gpubench.judge.process import Ended, Process
from pytest_gpubench.judge.template import Template

MEMORY_BYTES = 16 * 2**30


@dataclass
class ProcessPool:
    """Processes of one device, started ahead of their candidates."""

    device: Device
    memory_bytes: int = MEMORY_BYTES
    ahead: int = 1
    _waiting: list[Process] = field(default_factory=list)
    _ending: list[Candidate] = field(default_factory=list)
    """Those whose processes were killed, and may not have ended."""
    _template: Template | None = None
    _cache: Path | None = None
    """A copy of Triton's cache after warming up, before a candidate was loaded."""
    _levels: list[tuple[str, ...]] = field(default_factory=lambda: list(LEVELS))
    """The levels of isolation still to try: no process worked at those before."""
    _problem: str = ""
    _worked: bool = False
    """True once a process has worked: later ones fail for lack of memory, where less isolation would not help."""

    def start(self, number: int) -> None:
        """Start processes until so many wait."""
        while len(self._waiting) < number:
            self._waiting.append(self._start())

    def get(self) -> Candidate:
        """Return a candidate in a warm process; raise MeasurementError where no process works."""
        candidate = None
        while candidate is None:
            is_new = not self._waiting
            process = self._start() if is_new else self._waiting.pop(0)
            try:
                candidate = self._warmed(process)
            except MeasurementError as error:
                may_retry = not is_new if self._worked else self._lower(str(error))
                if not may_retry:
                    raise
        self._worked = True
        if self._problem:
            process.isolation["problem"] = self._problem
        self._keep_cache(process)
        self.start(self.ahead)
        return candidate

    def kill(self, candidate: Candidate) -> None:
        """Kill a candidate's process, and let `wait` wait for its end: CUDA takes 0.1 s."""
        candidate.process.send(signal.SIGKILL)
        self._ending.append(candidate)

    def wait(self) -> None:
        """Wait until killed processes have ended."""
        while self._ending:
            self._ending.pop().end()

    def _lower(self, problem: str) -> bool:
        """Take the next level of isolation; return False where there is none."""
        self._drop()
        if len(self._levels) == 1:
            return False
        self._problem = " ".join(problem.split())[-300:]
        self._levels.pop(0)
        if len(self._levels) == 1:
            hide_memory(False)
        return True

    def _warmed(self, process: Process) -> Candidate:
        """Return the candidate of a process once it works; raise MeasurementError where it does not."""
        try:
            process.wait_ready()
            refuse_open_files(process.isolation)
            candidate = Candidate(process, self.device)
            candidate.practise()
            candidate.alone = self.paused
        except BaseException as error:
            process.close()
            if not isinstance(error, (Ended, RuntimeError)):
                raise
            detail = error.detail if isinstance(error, Ended) else ""
            raise MeasurementError(f"the candidate's process does not work: {error} {detail}".strip()) from None
        return candidate

    def _start(self) -> Process:
        torch_device = self.device.torch_device
        name = "cpu" if self.device.type == "cpu" else str(torch_device.index)
        if self._template is None or self._template.has_ended:
            self._template = Template()
        level, nvml = self._levels[0], self.device.nvml
        return Process(self._template, name, self.memory_bytes, level, self._cache, nvml)

    def _keep_cache(self, process: Process) -> None:
        if self._cache is None and self.device.type == "cuda":
            self._cache = Path(tempfile.mkdtemp(prefix="gpu_bench_judge_cache_"))
            shutil.copytree(process.cache, self._cache, dirs_exist_ok=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the processes that wait: while they warm up, a GPU takes turns with them too."""
        waiting = [*self._waiting]
        for process in waiting:
            process.send(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in waiting:
                process.send(signal.SIGCONT)

    def _drop(self) -> None:
        """End the processes that wait."""
        for process in self._waiting:
            process.close()
        self._waiting.clear()

    def close(self) -> None:
        """End all processes."""
        self.wait()
        self._drop()
        if self._template is not None:
            self._template.close()
            self._template = None
        if self._cache is not None:
            shutil.rmtree(self._cache, ignore_errors=True)
            self._cache = None


def refuse_open_files(isolation: Mapping[str, str]) -> None:
    """Raise MeasurementError where a candidate may write all files of this machine, the plugin's own among them."""
    landlock = isolation.get("landlock", NOT_AVAILABLE)
    if os.geteuid() == 0 and landlock.startswith(NOT_AVAILABLE):
        raise MeasurementError(
            "judge runs as root, and nothing limits the files that a candidate may write (Landlock is "
            f"{landlock}): run it as another user, or on Linux 5.13 or later"
        )
