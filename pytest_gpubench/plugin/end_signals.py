"""SIGTERM and SIGHUP: a run that has measured ends as by Ctrl-C, so what is finished is shown, written and saved."""

import os
import signal
import socket
import threading
import time
from types import FrameType

import pytest

from pytest_gpubench.gpu.clocks import LOCKS
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.save import OutputFiles
from pytest_gpubench.plugin.workers import is_dry, is_worker

END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
STUCK_AFTER_S = 10.0
"""A main thread that has not handled a signal by then is stuck in C, as in the driver behind a kernel that hangs."""


class EndedBySignal(KeyboardInterrupt):
    """The signal that ended the run."""


class EndSignals:
    """The hooks that handle the signals from the first test on, unless they are ignored or handled by others.

    Workers of xdist handle none: their controller has the results.
    """

    def __init__(self, config: pytest.Config, results: Results, files: OutputFiles) -> None:
        self.config = config
        self.results = results
        self.files = files
        self._numbers: list[signal.Signals] = []
        """The signals that are handled."""
        self._masks = threading.local()
        """As `mask`, the signals that a thread had blocked before it forked."""
        self._wakeup: socket.socket | None = None
        """The end of a pair of sockets that Python's C handler writes to; None where somebody else's has its place."""
        self._handled_s = -STUCK_AFTER_S
        """The time when the main thread last handled a signal, by the monotonic clock."""
        self._is_ending = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Handle the signals."""
        if is_worker(self.config) or is_dry(self.config) or threading.current_thread() is not threading.main_thread():
            return
        self._numbers = [number for number in END_SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
        if not self._numbers:
            return
        others = signal.set_wakeup_fd(-1)
        if others != -1:
            signal.set_wakeup_fd(others)
        else:  # have a thread told of the signals, whatever the main thread does
            reader, self._wakeup = socket.socketpair()
            self._wakeup.setblocking(False)
            signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
            threading.Thread(
                target=self._end_stuck, args=(reader, session), name="gpu_bench signals", daemon=True
            ).start()
        for number in self._numbers:
            signal.signal(number, self._handle)
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._forget)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Let no signal interrupt the writing of files."""
        self._is_ending = True

    def pytest_unconfigure(self) -> None:
        """Leave the signals as they were."""
        self._stop_handling()
        if self._wakeup is not None:
            self._wakeup.close()
            self._wakeup = None

    def _stop_handling(self) -> None:
        """Give back the signals, where nobody else has taken them since."""
        for number in self._numbers:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)
        self._numbers = []
        if self._wakeup is not None:
            others = signal.set_wakeup_fd(-1)
            if others != self._wakeup.fileno():
                signal.set_wakeup_fd(others)

    # a fork, by any thread: a signal to the new process waits until nothing of ours is left there to handle it

    def _hold(self) -> None:
        """Let the signals wait in this thread, and in the process that it is about to fork."""
        if self._numbers:
            self._masks.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)

    def _release(self) -> None:
        """Let them come."""
        mask = self._masks.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _forget(self) -> None:
        """Let them do in the new process what they do in any."""
        self._stop_handling()
        self._release()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt; end the process at once where nothing would be lost."""
        if not (self.results.selected or LOCKS):
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._handled_s = time.monotonic()
        if not self._is_ending:
            raise EndedBySignal(signal.Signals(number).name)

    # a main thread that is stuck

    def _end_stuck(self, reader: socket.socket, session: pytest.Session) -> None:
        """Write the files and end the process where the main thread does not handle a signal."""
        with reader:
            while number := reader.recv(1):
                came_s = time.monotonic()
                time.sleep(STUCK_AFTER_S)
                is_stuck = number[0] in self._numbers and self._handled_s <= came_s - STUCK_AFTER_S
                if is_stuck and self.results.selected:
                    if not self._is_ending:
                        session.exitstatus = pytest.ExitCode.INTERRUPTED
                        self.files.pytest_sessionfinish(session)
                    os._exit(128 + number[0])
