"""A server that forks processes in which pytest and our plugin are imported: a new interpreter takes a second for that.

Runs have a stub of torch. The xdist workers of a run are forked by a server of its own: they are its descendants, and
share none of its state.
"""

import atexit
import functools
import gc
import importlib.util
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

PRELOADED = (
    "_pytest.config",
    "execnet.gateway_base",
    "execnet.gateway_bootstrap",
    "pytest",
    "pytest_gpubench.fixture",
    "pytest_gpubench.plugin.hooks",
    "pytest_gpubench.report.table",
    "rich.console",
)


class Forked:
    """A process of a server, used like `subprocess.Popen`.

    arguments: pytest's, for a run whose stderr goes to its stdout; None for an xdist worker.
    """

    def __init__(self, server: socket.socket, arguments: Sequence[str] | None, cwd: Path, env: dict[str, str]) -> None:
        given, stdin = os.pipe()
        stdout, written = os.pipe()
        status, told = os.pipe()
        request = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": env}).encode()
        files = [given, written, written if arguments is not None else 2, told]
        socket.send_fds(server, [request], files)
        for each in (given, written, told):
            os.close(each)
        self.stdin = os.fdopen(stdin, "wb")
        self.stdout: IO[Any] = os.fdopen(stdout, "rb" if arguments is None else "r")
        self._status = os.fdopen(status)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, 9)

    def communicate(self, timeout: float) -> tuple[str, None]:
        """Return what it still prints; after the timeout it is killed."""
        timer = threading.Timer(timeout, self.kill)
        timer.start()
        with self.stdin, self.stdout:
            output = self.stdout.read()
            self.wait()
        timer.cancel()
        return output, None


@functools.cache
def server() -> socket.socket:
    """Return the connection to the server of this process; the server ends when it is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __name__, str(theirs.fileno())]
    root = Path(__file__).parents[2]
    with theirs:
        process = subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    atexit.register(process.wait)
    atexit.register(ours.close)  # first
    return ours


def serve(link: socket.socket) -> Callable[[], object]:
    """Fork a process for each request and tell when it ends; in the process, return what it does."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        ready, _, _ = select.select([link.fileno(), *running], [], [])
        for ended in running.keys() & set(ready):
            pid, told = running.pop(ended)
            os.write(told, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            os.close(ended)
            os.close(told)
        if link.fileno() not in ready:
            continue
        message, files, _, _ = socket.recv_fds(link, 2**20, 4)
        if not message:
            os._exit(0)
        pid = os.fork()
        if not pid:
            link.close()
            return functools.partial(become, files, **json.loads(message))
        *standard, told = files
        for each in standard:
            os.close(each)
        os.write(told, b"%d\n" % pid)
        running[os.pidfd_open(pid)] = (pid, told)


def become(files: Sequence[int], arguments: Sequence[str] | None, cwd: str, env: dict[str, str]) -> None:
    """Be the process that was asked for."""
    for number, file in enumerate(files):
        if number < 3:
            os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0:1] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    if arguments is None:
        exec(eval(sys.stdin.readline()), {"__name__": "__main__"})  # what execnet has a new interpreter do
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ours.close()
        return serve(theirs)()  # type: ignore[return-value]
    theirs.close()
    fork_workers(ours)
    import pytest

    sys.argv[1:] = arguments
    sys.exit(pytest.main(list(arguments)))


def fork_workers(server: socket.socket) -> None:
    """Have execnet fork its local interpreters."""
    gateway_io: Any = importlib.import_module("execnet.gateway_io")

    def start(io: Any, args: object, execmodel: Any) -> None:
        io.popen = Forked(server, None, Path.cwd(), dict(os.environ))
        gateway_io.Popen2IO.__init__(io, io.popen.stdin, io.popen.stdout, execmodel=execmodel)

    gateway_io.Popen2IOMaster.__init__ = start


def preload() -> None:
    """Import what a run needs, with the stub in the place of torch."""
    spec = importlib.util.spec_from_file_location("torch", Path(__file__).parent / "stub_torch.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["torch"] = torch = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(torch)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))()
