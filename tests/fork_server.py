"""`subprocess.Popen` that forks Python's processes from one in which pytest, our plugin and torch are imported.

A new interpreter takes a second for pytest and our plugin, and three more for torch; a stub of torch takes none. A
forked run of pytest has a server of its own: its xdist workers are its descendants, and share none of its state.
"""

import atexit
import ctypes
import fcntl
import functools
import gc
import importlib.util
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

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
CLONE_PARENT = 0x8000
CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call, by machine."""
RealPopen = subprocess.Popen
HIGH = 200
"""Descriptors are moved so high before they become those that a process expects."""


class ForkingPopen(subprocess.Popen[Any]):
    """Have a server fork what is an interpreter of ours with -c, -m or a script."""

    connect: Callable[[], socket.socket]

    def _execute_child(self, args: Any, *others: Any) -> None:
        start = super()._execute_child  # type: ignore[misc]
        if not isinstance(args, Sequence) or args[0] != sys.executable or args[1][:2] in ("-E", "-I", "-S", "-X"):
            start(args, *others)
            return
        given = inspect.signature(start).bind(args, *others).arguments
        standard = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        files = [number if each == -1 else each for number, each in enumerate(standard)] + list(given["pass_fds"])
        answer, told = os.pipe()
        request = {
            "arguments": [str(each) for each in args[1:]],
            "cwd": str(given["cwd"] or Path.cwd()),
            "env": dict(os.environ if given["env"] is None else given["env"]),
            "numbers": [0, 1, 2, *given["pass_fds"]],
            "own_session": bool(given["start_new_session"]),
        }
        socket.send_fds(type(self).connect(), [json.dumps(request).encode()], [told, *files])
        os.close(told)
        with open(answer) as reader:
            self.pid = int(reader.read())
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]


def forking(connect: Callable[[], socket.socket]) -> type[ForkingPopen]:
    """Return a class in the place of `subprocess.Popen` whose processes this server forks."""
    return type("Popen", (ForkingPopen,), {"connect": staticmethod(connect)})


@functools.cache
def server(torch: str) -> socket.socket:
    """Return the connection to a server of this process, with "stub" or "real" torch; closed, it ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", __name__, torch, str(theirs.fileno())]
    root = Path(__file__).parents[1]
    with theirs:
        process = RealPopen(command, cwd=root, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    atexit.register(process.wait)
    atexit.register(ours.close)  # first
    return ours


Popen = forking(functools.partial(server, "stub"))
PopenWithTorch = forking(functools.partial(server, "real"))


# the server


def serve(link: socket.socket) -> Callable[[], object]:
    """Fork a process for each request; in the process, return what it does."""
    while True:
        message, files, _, _ = socket.recv_fds(link, 2**20, 30)
        if not message:
            os._exit(0)
        if not fork_sibling():
            link.close()
            return functools.partial(become, files, **json.loads(message))
        for each in files:
            os.close(each)


def fork_sibling() -> int:
    """Return what `os.fork` does; the new process is a child of this one's parent, which can wait for it."""
    python, libc = ctypes.pythonapi, ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    pid = libc.syscall(CLONE[os.uname().machine], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    return int(pid)


def become(
    files: Sequence[int],
    arguments: list[str],
    cwd: str,
    env: dict[str, str],
    numbers: Sequence[int],
    own_session: bool,
) -> None:
    """Be the process that was asked for, with these files and no others; the first takes its number."""
    told, *moved = [fcntl.fcntl(each, fcntl.F_DUPFD, HIGH) for each in files]
    os.closerange(3, HIGH)
    for each, number in zip(moved, numbers, strict=True):
        os.dup2(each, number)
        os.close(each)
    if own_session:
        os.setsid()
    os.write(told, b"%d" % os.getpid())
    os.close(told)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[0:1] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    interpret(arguments[1:] if arguments[0] == "-u" else arguments)


def interpret(arguments: list[str]) -> None:
    """Do what `python -c CODE ...`, `python -m MODULE ...`, `python -mMODULE ...` or `python SCRIPT ...` does."""
    first, *rest = arguments
    if first in ("-c", "-m"):
        what, *rest = rest
    else:
        what = first.removeprefix("-m")
    sys.argv[:] = [first, *rest]
    if first == "-c":
        exec(what, {"__name__": "__main__"})
        return
    ours = fork_server()
    subprocess.Popen = forking(lambda: ours)  # type: ignore[misc]
    if first.startswith("-m"):
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(what, run_name="__main__")


def fork_server() -> socket.socket:
    """Return the connection to a new server."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ours.close()
        end_with(serve(theirs))
    theirs.close()
    return ours


def end_with(work: Callable[[], object]) -> NoReturn:
    """Work and end as an interpreter does, but for freeing all that is imported, which takes longer than most runs."""
    status = 0
    try:
        work()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for each in (sys.stdout, sys.stderr):
        each.flush()
    os._exit(status)


def preload(torch: str) -> None:
    """Import what a run needs, perhaps with a stub in the place of torch."""
    if torch == "stub":
        spec = importlib.util.spec_from_file_location("torch", Path(__file__).parent / "plugin/stub_torch.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules["torch"] = stub = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(stub)
    for name in (*PRELOADED, "torch"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload(sys.argv[1])
    end_with(serve(socket.socket(fileno=int(sys.argv[2]))))
