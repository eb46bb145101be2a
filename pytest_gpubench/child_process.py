"""Start a command in a session of its own, wait for it, end it with all that it started, and say how it ended."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_gpubench.units import printable

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, what CI cancels a job with, and a terminal or an ssh connection that is gone."""
END_S = 10.0
"""The time in which an interrupted command may end by itself."""
TAIL_LINES = 15
LISTED_TESTS = "PYTEST_GPUBENCH_TESTS"
"""The variable that names a file with the node ids, as JSON, of the only tests that a run of pytest is to run."""
TURN_SOCKET = "PYTEST_GPUBENCH_TURN_SOCKET"
"""The variable with the descriptor of an inherited socket, at which a run waits for its turn before its first test."""
RUN_NOTES = "PYTEST_GPUBENCH_NOTES"
"""The variable that names a file for how tests ended and what modules were loaded: a line for each process of a run."""
OF_OUTER_RUN = ("PYTEST_CURRENT_TEST", "PYTEST_XDIST_", "GITHUB_STEP_SUMMARY")
"""Beginnings of variables by which a run would take itself for a worker of the outer one, or write to its summary."""


def inner_environment(*dropped: str) -> dict[str, str]:
    """Return this process's variables for a run of pytest in another; dropped: beginnings of others to leave out."""
    return {name: value for name, value in os.environ.items() if not name.startswith((*OF_OUTER_RUN, *dropped))}


@contextmanager
def signals_handled(handler: Callable[[int, object], object] | signal.Handlers, *numbers: int) -> Iterator[None]:
    """Let a handler take some signals for a while; those that are ignored stay so, as SIGHUP under `nohup`.

    Other threads than the main one handle no signals: there it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        numbers = ()
    before = {
        number: signal.signal(number, handler) for number in numbers if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do for a while what SIGINT does; in a forked child they do what they always do."""
    owner = os.getpid()

    def handle(number: int, _: object) -> None:
        if os.getpid() == owner:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    with signals_handled(handle, *INTERRUPTS[1:]):
        yield


def run_logged(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    descriptors: Collection[int] = (),
    timeout_s: float | None = None,
) -> int | None:
    """Run a command and return its exit status; None where it took longer than timeout_s, and was ended.

    An interrupt ends it with all that it started.
    """
    with logged_process(command, folder, environment, log, descriptors) as process:
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None


@contextmanager
def logged_process(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path, descriptors: Collection[int] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command in a session of its own; one that was not waited for is ended with all that it started.

    descriptors: what it inherits. The signals of INTERRUPTS raise KeyboardInterrupt: they do not reach its session.
    """
    interrupts: list[int] = []
    noting = True

    def handle(number: int, frame: object) -> None:
        if not noting:
            raise KeyboardInterrupt
        interrupts.append(number)  # raised while the process starts, it would leave it running

    with log.open("wb") as output, signals_handled(handle, *INTERRUPTS):
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(descriptors),
        )
        try:
            noting = False
            if interrupts:
                raise KeyboardInterrupt
            yield process
        finally:
            if process.returncode is None:  # it is ended as by Ctrl-C, then what is left is killed
                with signals_handled(signal.SIG_IGN, *INTERRUPTS):
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGINT)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(END_S)
                    kill_group(process)
                    process.wait()


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and what it started, unless they have ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def how_ended(status: int | None, timeout_s: float | None = None) -> str:
    """Return how a process ended: its exit status, the signal, or that it took longer than timeout_s (status None)."""
    if status is None and timeout_s is not None:
        return f"not within {timeout_s:.0f} s"
    if status is not None and status < 0:
        with suppress(ValueError):
            return signal.Signals(-status).name
    return f"exit status {status}"


def ending(status: int | None, log: Path, timeout_s: float | None = None) -> str:
    """Return how a command ended, for the end of a sentence, and its last lines, indented."""
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    tail = "\n".join(f"    {printable(line)}" for line in lines) or "    (nothing)"
    return f"({how_ended(status, timeout_s)}); it ended with:\n{tail}"
