"""Run a command so that an interrupt ends it with all that it started."""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_gpubench.settings import TURN_SOCKET

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, what CI cancels a job with, and a terminal or an ssh connection that is gone."""
END_S = 10.0
"""The time in which an interrupted command may end by itself."""
READY_S = 60.0
"""The time in which runs that are started together may start; one that takes longer starts beside the others."""


@contextmanager
def signals_handled(handler: Callable[[int, object], object] | signal.Handlers, *numbers: int) -> Iterator[None]:
    """Let a handler take some signals for a while; those that are ignored stay so, as SIGHUP under `nohup`."""
    before = {
        number: signal.signal(number, handler) for number in numbers if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


def raise_interrupt(number: int, frame: object) -> None:
    """Handle a signal as Python handles Ctrl-C."""
    raise KeyboardInterrupt


def run_logged(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> int:
    """Run a command in a session of its own and return its exit status; an interrupt ends it and all it started."""
    with logged_process(command, folder, environment, log) as process:
        return process.wait()


@contextmanager
def logged_process(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path, descriptors: Sequence[int] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command in a session of its own; one that was not waited for is ended with all it started.

    descriptors: what it inherits.
    """
    interrupts: list[int] = []

    def note(number: int, frame: object) -> None:  # raised while the process starts, it would leave it running
        interrupts.append(number)

    with log.open("wb") as output, signals_handled(note, *INTERRUPTS):
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=descriptors,
        )
    try:
        if interrupts:
            raise KeyboardInterrupt
        yield process
    finally:
        if process.returncode is None:
            _end_group(process)


class WaitingProcess:
    """A run of pytest that has been started, and waits for its turn before its first test."""

    def __init__(self, process: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
        self._process = process
        self._connection = connection
        self._has_begun = False

    def wait_until_ready(self) -> None:
        """Return once it waits for its turn, or has ended; after READY_S in any case, as it may wait for others."""
        select.select([self._connection], [], [], READY_S)

    def run(self) -> int:
        """Let it run its tests, and return its exit status."""
        self._has_begun = True
        with suppress(OSError):  # it has ended before its first test
            self._connection.sendall(b"!")
        return self._process.wait()

    def kill_waiting(self) -> None:
        """Kill it if it still waits for its turn: it holds nothing, and to end by itself would take it a second."""
        if not self._has_begun:
            _kill_group(self._process)


@contextmanager
def waiting_process(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
) -> Iterator[WaitingProcess]:
    """Start a run of pytest that waits for its turn; leaving this context ends it."""
    own, other = socket.socketpair()
    variables = {**environment, TURN_SOCKET: str(other.fileno())}
    with own, other, logged_process(command, folder, variables, log, [other.fileno()]) as process:
        other.close()
        waiting = WaitingProcess(process, own)
        try:
            yield waiting
        finally:
            waiting.kill_waiting()


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process as Ctrl-C would, then kill what is left of it and of what it started."""
    with signals_handled(signal.SIG_IGN, *INTERRUPTS):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        _kill_group(process)
        process.wait()


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
