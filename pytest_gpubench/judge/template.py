"""The template: a process in which torch is imported, and from which those of candidates are forked.

An import takes 4 s of a core, and each candidate needs two processes. The template has no CUDA context, no thread and
no secret.
"""

import gc
import importlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.judge.isolation import environment, hide_memory, limit_files
from pytest_gpubench.judge.isolation.libc import libc

START = "import sys; from pytest_gpubench.judge.template import serve; serve(int(sys.argv[1]))"
IMPORTED = (
    "torch.profiler",
    "torch.utils._pytree",
    "triton",
    "pytest_gpubench.judge.spec",
    "pytest_gpubench.judge.worker",
    "pytest_gpubench.replay.capture",
    "pytest_gpubench.replay.replayed",
    "pytest_gpubench.timing.kernels",
)
FIRST_FORK_S = 180.0
"""The longest time from its start to the first fork."""
NOWHERE = Path("/nowhere")
PR_SET_CHILD_SUBREAPER = 36

_open: "set[Template]" = set()


class Template:
    """The referee's handle of the template process.

    While one is open, this process adopts the orphans of its descendants, and hides its memory from them.
    """

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.settimeout(FIRST_FORK_S)
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", START, str(theirs.fileno())],
                    env=environment(NOWHERE),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError:
            self._link.close()
            raise
        _open.add(self)
        _guard()

    def fork(self, settings: Mapping[str, Any], channel: int, log: int) -> int:
        """Return the id of a new process in a session of its own, and a child of this one.

        It answers the channel's messages, and prints to the log.
        """
        try:
            socket.send_fds(self._link, [msgspec.json.encode(settings)], [channel, log])
            return int(self._link.recv(100))
        except (OSError, ValueError):
            self._process.kill()
            self._process.wait()
            raise MeasurementError(
                "the process from which those of candidates are forked did not fork one, and was ended: see what it "
                "printed"
            ) from None

    @property
    def has_ended(self) -> bool:
        """True if it forks nothing any more."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it."""
        self._link.close()
        self._process.kill()
        self._process.wait()
        _open.discard(self)
        _guard()


def _guard() -> None:
    """Adopt orphans of this process's descendants, and hide its memory, while a template is open."""
    libc().prctl(PR_SET_CHILD_SUBREAPER, int(bool(_open)), 0, 0, 0)
    hide_memory(bool(_open))


def serve(descriptor: int) -> None:
    """Fork a process for each request, until the referee is gone."""
    link = socket.socket(fileno=descriptor)
    hide_memory(True)
    for name in ("torch", *IMPORTED):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        message, files, _, _ = socket.recv_fds(link, 2**20, 2)
        if not message:
            os._exit(0)
        settings = msgspec.json.decode(message)
        if settings["device"] != "cpu":
            _warm_triton()
        if os.fork() == 0:
            try:
                _fork_an_orphan(link, settings, files)
            finally:
                os._exit(1)
        for each in files:
            os.close(each)
        if os.wait()[1]:
            link.send(b"no process")


def _warm_triton() -> None:
    """Import Triton's compiler, and let it hash itself, 500 MB, once for all processes that compile for a GPU.

    Its versions have that function in different places.
    """
    importlib.import_module("triton.compiler.code_generator")
    for place in ("triton.runtime.cache", "triton.compiler.compiler"):
        if triton_key := getattr(importlib.import_module(place), "triton_key", None):
            triton_key()
            return


def _fork_an_orphan(link: socket.socket, settings: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Fork and end: the new process waits until the referee has adopted it, as only its parent can wait for it."""
    own = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == own:
        time.sleep(1e-4)
    os.setsid()
    link.send(b"%d" % os.getpid())
    link.close()
    channel, log = files
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    try:
        from pytest_gpubench.judge.worker import main

        os.environ.clear()
        os.environ.update(settings["environment"])
        os.chdir(settings["box"])
        tempfile.tempdir = None
        hide_memory(False)
        main(channel, settings, limit_files(settings))  # before CUDA starts threads
    except BaseException:
        traceback.print_exc()
    os._exit(1)
