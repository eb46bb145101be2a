"""Run a command so that an interrupt ends it with all that it started."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_gpubench.units import printable

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, what CI cancels a job with, and a terminal or an ssh connection that is gone."""
TAIL_LINES = 15
END_S = 10.0
"""The time in which an interrupted command may end by itself."""


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
        )
    try:
        if interrupts:
            raise KeyboardInterrupt
        return process.wait()
    except BaseException:
        _end_group(process)
        raise


def tail(log: Path) -> str:
    """Return the last lines that a command printed."""
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"    {printable(line)}" for line in lines) or "    (nothing)"


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process as Ctrl-C would, then kill what is left of it and of what it started."""
    with signals_handled(signal.SIG_IGN, *INTERRUPTS):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
