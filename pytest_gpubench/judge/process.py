"""The candidate's process as the referee controls it: start, ask, kill."""

import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from pytest_gpubench.child_process import how_ended
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.channel import LONGEST_TEXT, TICK_S, Broken, Channel, Closed, Reply, decode_reply
from pytest_gpubench.judge.held import Watch, members_of
from pytest_gpubench.judge.isolation import environment, library_folders
from pytest_gpubench.judge.judgement import Ended
from pytest_gpubench.judge.template import Template
from pytest_gpubench.units import printable

WARM_S = 180.0
"""The longest time to import torch and start CUDA, perhaps from a cold disk."""
STOP_S = 5.0
"""The longest time to end: a millisecond is enough, unless the process is stuck in a driver."""
WALL = 0x40000000
"""__WALL of waitpid(2): wait for children that tell their parent by another signal than SIGCHLD, too."""
NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "MemoryError", "OutOfMemoryError")


class Process:
    """A process for one candidate, in a session and a folder of its own."""

    _killed = _outlived = False
    _code: int | None = None
    """The exit code of its first process, once that was waited for."""

    def __init__(self, template: Template, device: Device, memory_bytes: int, cache: Path | None) -> None:
        self.memory_bytes = memory_bytes
        self.isolation: dict[str, str] = {}
        with ExitStack() as held:
            self.box = Path(tempfile.mkdtemp(prefix="gpu_bench_judge_"))
            held.callback(remove_folder, self.box)
            self._log = held.enter_context((self.box / "log").open("w+b"))
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            held.enter_context(mine).settimeout(TICK_S)
            self.channel = Channel(mine)
            with theirs:
                settings = self._settings(device, cache)
                self.pid = template.fork(settings, theirs.fileno(), self._log.fileno())
            self._watch = Watch(self.pid, self.box, memory_bytes, device.nvml, self.send)
            held.pop_all()

    def _settings(self, device: Device, cache: Path | None) -> dict[str, Any]:
        """Return the process's settings, and make its folders."""
        import torch

        variables = environment(self.box)
        for name, value in variables.items():
            if value.startswith(f"{self.box}{os.sep}") and name != "PATH":
                Path(value).mkdir(exist_ok=True)
        self.cache = Path(variables["TRITON_CACHE_DIR"])
        if cache is not None and cache.exists():
            copy_triton_cache(cache, self.cache)
        place, files = gpu_for_process(device, variables)
        wanted = {"box": str(self.box), "device": place, "device_files": files, "memory_bytes": self.memory_bytes}
        wanted |= {"threads": 1 if place == "cpu" else torch.get_num_threads(), "folders": library_folders()}
        return wanted | {"environment": variables}

    def wait_ready(self) -> None:
        """Wait until it is warm; raise Ended where it fails to start."""
        self.allow(WARM_S)
        self.isolation = self._hear().isolation

    # messages

    def ask(
        self,
        do: str,
        descriptors: Sequence[int] = (),
        meanwhile: Callable[[Callable[[], None]], object] = lambda look: None,
        **message: Any,
    ) -> Reply:
        """Have a message answered, and return the reply; raise Ended for an error.

        meanwhile: is called once the message is sent, with a function that raises Ended where the process has taken too
        much; the time that it takes is not the process's.
        """
        try:
            with self.running():
                self.channel.send({"do": do, **message}, descriptors, self._look)
        except Closed:
            raise self._death() from None
        except Broken as error:
            raise BadRequest(f"the spec's inputs cannot be sent: {error}: give fewer values, or plain texts") from None
        meanwhile(self.look)
        reply = self._hear()
        if self.has_ended:  # and a child of it has answered
            raise self._death()
        return reply

    def _hear(self) -> Reply:
        """Wait for a reply, and return it; raise Ended for an error."""
        try:
            with self.running():
                reply = decode_reply(self.channel.receive(self._look)[0])
        except Closed:
            raise self._death() from None
        except Broken as error:
            raise Ended("invalid", f"the candidate wrote to the referee's channel: {error}") from None
        if reply.kind == "failed":
            raise ended_by(reply)
        return reply

    def look(self) -> None:
        """Raise Ended where it has taken too much, whatever the time."""
        with self.running():
            self._look()

    @property
    def has_answered(self) -> bool:
        """True if a message of it can be read, or none can come any more."""
        poll = select.poll()  # select takes no descriptor from 1024 on
        poll.register(self.channel.socket, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def has_ended(self) -> bool:
        """True if its first process has ended; `kill` frees its id."""
        with suppress(ChildProcessError):
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return False
            self._code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return True

    # time

    def allow(self, seconds: float) -> None:
        """Set the time that it may run from now on."""
        self.allowed_s = self.left_s = seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count time as its own."""
        started_s = time.monotonic()
        self._deadline_s = started_s + self.left_s
        try:
            yield
        finally:
            self.left_s -= time.monotonic() - started_s

    def kill(self) -> None:
        """End all of its processes."""
        if self._killed:
            return
        self.send(signal.SIGKILL)
        until_s = time.monotonic() + 3 * STOP_S
        with suppress(ChildProcessError):  # all of them are children of this process: see `Template`
            while time.monotonic() < until_s:
                if os.waitpid(-self.pid, os.WNOHANG | WALL) == (0, 0):
                    time.sleep(1e-3)
            self._outlived = True
        self._killed = True

    @property
    def lingers(self) -> bool:
        """True while a process lives that was killed and did not end: the kernel waits for a driver or a disk."""
        return self._outlived and bool(members_of(self.pid))

    def close(self) -> None:
        """End all of its processes, and remove its folder."""
        self.kill()
        self.channel.socket.close()
        self._log.close()
        remove_folder(self.box)

    def _wait(self, seconds: float) -> None:
        """Wait for its first process to end, for so long at most."""
        until_s = time.monotonic() + seconds
        while not self.has_ended and time.monotonic() < until_s:
            time.sleep(1e-3)

    def send(self, number: int) -> None:
        """Send all of its processes a signal, unless they were killed: their id may be another's by then."""
        if not self._killed:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _look(self) -> None:
        """Raise Ended where it has taken too long, or too much."""
        if time.monotonic() > self._deadline_s:
            raise Ended("timeout", f"the candidate did not answer within {self.allowed_s:g} s")
        self._watch.look()

    def _death(self) -> Ended:
        """Return the error that says how it ended."""
        self._wait(2)
        if self._code is None:
            return Ended("invalid", "the candidate closed the referee's channel")
        return Ended("crash", f"the candidate's process ended with {how_ended(self._code)}", self.tail())

    def tail(self) -> str:
        """Return the end of its standard output and standard error; empty once its folder is removed."""
        if self._log.closed:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), LONGEST_TEXT, max(0, size - LONGEST_TEXT)).decode(errors="replace")
        return "\n".join(map(printable, text.splitlines()))


def gpu_for_process(device: Device, variables: dict[str, str]) -> tuple[str, list[str]]:
    """Return the place of a device in a new process, "cpu" or CUDA's index, and the files by which it uses a driver.

    Of several GPUs it may use only its own, which CUDA then finds there alone: starting takes longer for each, and
    candidates on others must not be disturbed. `variables` says so where the GPU is known; else it may use all.
    """
    if device.type == "cpu":
        return "cpu", []
    files = sorted(map(str, Path("/dev").glob("nvidia*")))
    own = f"/dev/nvidia{device.nvml.ask('MinorNumber')}" if device.nvml else ""
    if device.facts.mig or device.facts.uuid is None or own not in files:  # an instance is not its GPU
        return str(device.torch_device.index), files
    variables["CUDA_VISIBLE_DEVICES"] = device.facts.uuid
    return "0", [each for each in files if each == own or not each.removeprefix("/dev/nvidia").isdigit()]


def copy_triton_cache(cache: Path, folder: Path) -> None:
    """Copy Triton's cache to a folder; it holds absolute paths, by which a copy is no cache."""
    shutil.copytree(cache, folder, dirs_exist_ok=True)
    for group in folder.glob("*/__grp__*"):
        names = msgspec.json.decode(group.read_bytes())["child_paths"]
        group.write_bytes(msgspec.json.encode({"child_paths": {name: str(group.parent / name) for name in names}}))


def remove_folder(folder: Path) -> None:
    """Remove a candidate's folder, which may be too deep for Python, or without permissions."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        subprocess.run(["chmod", "-R", "u+rwx", folder], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", folder], check=False, capture_output=True)


def ended_by(reply: Reply) -> Ended:
    """Return the end of a candidate that raised an error, with its status."""
    error, text = printable(reply.error), printable((reply.text.strip().splitlines() or [""])[0])
    words = f"{error}: {text}".removesuffix(": ")
    detail = "\n".join(map(printable, reply.trace.splitlines()))
    if reply.error == "BadRequest":
        return Ended("refused", text)
    if any(each in f"{reply.error} {reply.text}" for each in NO_MEMORY):
        return Ended("out_of_memory", f"the candidate ran out of memory: {words}", detail)
    compiling = "Compil" in reply.error or any(each in reply.error for each in ("Inductor", "SyntaxError", "PTXAS"))
    if compiling or "Error building extension" in reply.text or (reply.stage == "load" and reply.error != "SystemExit"):
        return Ended("compile_error", f"the candidate cannot be loaded: {words}", detail)
    if reply.error in ("KernelsDiffer", "IncompleteRecords", "NothingRecorded", "ProfilerBusy", "InvalidResult"):
        return Ended("invalid", words, detail)
    return Ended("crash", f"the candidate raised {words}", detail)
