"""The note in a lock file: which process holds the lock."""

import getpass
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pytest_gpubench.gpu.processes import pid_namespace, start_of
from pytest_gpubench.units import printable, shortened

LONGEST_FIELD = 80


class Holder(msgspec.Struct, frozen=True):
    """A process that holds a lock, as it describes itself; anybody may write the file, so no safety depends on it."""

    pid: int
    started: int | None
    namespace: str | None
    host: str
    user: str
    command: str
    test: str
    since_s: float

    @classmethod
    def of_this_process(cls, test: str = "", command: str | None = None) -> "Holder":
        """Describe this process; `command` None is the command line that it was started with."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # users have no names in many containers
            user = f"uid {os.getuid()}"
        return cls(
            pid=os.getpid(),
            started=start_of(os.getpid()),
            namespace=pid_namespace(),
            host=socket.gethostname(),
            user=brief(user),
            command=brief(command_line(sys.argv) if command is None else command),
            test=brief(test),
            since_s=time.time(),
        )

    @property
    def is_local(self) -> bool:
        """True if the process runs on this host and in this container, where its id means something."""
        return self.namespace is not None and (self.host, self.namespace) == (socket.gethostname(), pid_namespace())

    @property
    def has_ended(self) -> bool:
        """True if the process has ended, even if its id is used again; False if that cannot be seen."""
        return self.is_local and self.started is not None and start_of(self.pid) != self.started

    def __str__(self) -> str:
        where = "" if self.is_local else f" on {brief(self.host)} or in a container there"
        test = f", {brief(self.test)}" if self.test else ""
        style = "%H:%M:%S" if abs(time.time() - self.since_s) < 43200 else "%Y-%m-%d %H:%M:%S"
        try:
            since = time.strftime(style, time.localtime(self.since_s))
        except (OverflowError, ValueError, OSError):
            since = "an unknown time"
        return f"pid {self.pid} of {brief(self.user)}{where} ({brief(self.command)}{test}, since {since})"


def command_line(arguments: Sequence[str]) -> str:
    """Return a command as a user would type it."""
    program = Path(arguments[0] if arguments else "python")
    name = program.parent.name if program.name == "__main__.py" else program.name
    return " ".join([name, *arguments[1:]])


def brief(text: str) -> str:
    """Return a text that fits into a line of a message, with an ellipsis where it is cut."""
    return shortened(printable(text), LONGEST_FIELD)
