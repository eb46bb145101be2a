"""A command that runs with all it starts, and what it prints."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pytest_gpubench.cli.ab.interrupts import InterruptsLater, interrupts_ignored
from pytest_gpubench.units import printable

TAIL_LINES = 15
END_S = 10.0
"""How long a run that is interrupted may take to end by itself."""


def run_logged(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> int:
    """Run a command in a session of its own and return its exit status; an interrupt ends it and all it started."""
    waiting = InterruptsLater()
    with log.open("wb") as output, waiting:
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
        if waiting.came:
            raise KeyboardInterrupt
        return process.wait()
    except BaseException:
        end_group(process)
        raise


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process as Ctrl-C would, and then, by force, what is left of it and of what it started."""
    with interrupts_ignored():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tail(log: Path) -> str:
    """Return the last lines that a command printed."""
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"    {printable(line)}" for line in lines) or "    (nothing)"
