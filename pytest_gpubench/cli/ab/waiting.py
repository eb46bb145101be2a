"""A run of pytest that is started ahead, and waits for its turn."""

import select
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_gpubench.child_process import kill_group, logged_process
from pytest_gpubench.settings import TURN_SOCKET

READY_S = 60.0
"""The time in which runs that are started together may start; one that takes longer starts beside the others."""


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
            kill_group(self._process)


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
