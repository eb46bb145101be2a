"""A run that `ab` starts ahead: it waits before its first test, until the runs before it are over."""

import json
import os
import socket
import sys
import time
from contextlib import suppress
from importlib import import_module

import pytest

from pytest_gpubench.child_process import RUN_NOTES, TURN_SOCKET
from pytest_gpubench.plugin.gpu_turn import GpuTurns
from pytest_gpubench.plugin.items import is_perf, source_hash
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.workers import hand_on, handed_on, is_distributing
from pytest_gpubench.timing.startup import wait_for_startup

IMPORTED_LATER = (
    "pytest_gpubench.fixture",
    "pytest_gpubench.report.table",
    "pytest_gpubench.results.store",
    "hypothesis.internal.observability",
)
"""Modules for the first measurement, and for the end of a run, hypothesis's own plugin included: a third of a turn."""


class StartedAhead:
    """The hooks that wait once, right before the first test, and tell in the end how all of them ended."""

    def __init__(self, config: pytest.Config, turns: GpuTurns, results: Results) -> None:
        self.config = config
        self.turns = turns
        self.results = results
        self._notes: str | None = os.environ.pop(RUN_NOTES, None) or handed_on(config, RUN_NOTES)
        """The file for the notes of this run and its workers; what its tests start, fresh processes too, has none."""
        hand_on(config, RUN_NOTES, self._notes)
        self._socket = int(os.environ.pop(TURN_SOCKET, -1))
        """The descriptor of the parent's socket; -1 for none, and after the wait."""
        if self._socket >= 0:
            os.set_inheritable(self._socket, False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Wait before xdist starts its workers, which would start while others measure."""
        if is_distributing(self.config):
            self._wait({})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Wait with the tests collected, the profiler started and all modules imported."""
        if self._socket >= 0 and "torch" in sys.modules:  # else nothing is measured
            with suppress(Exception):  # the first test that measures fails with it
                for name in IMPORTED_LATER:
                    import_module(name)
        self._wait({item.nodeid: item for item in session.items})

    def pytest_sessionfinish(self) -> None:
        """Tell the parent how the tests ended, and which files the modules come from."""
        if self._notes is not None:
            files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
            # others have made up relative names, as torch.ops has
            modules = {name: file for name, file in files.items() if isinstance(file, str) and os.path.isabs(file)}
            line = json.dumps({"ended": self.results.ended, "modules": modules}).encode() + b"\n"
            with open(self._notes, "ab", buffering=0) as notes:  # in one piece, as others write too
                notes.write(line)

    def _wait(self, items: dict[str, pytest.Item]) -> None:
        """Tell the parent the source of each perf test, and an empty text for any other; then wait for its answer."""
        place, self._socket = self._socket, -1
        if place < 0:
            return

        wait_for_startup()
        sources = {name: source_hash(each) if is_perf(each) else "" for name, each in items.items()}
        with socket.socket(fileno=place) as parent:
            with suppress(BrokenPipeError):
                parent.sendall(json.dumps(sources).encode() + b"\n")
            may_begin = parent.recv(1)
        if not may_begin:
            pytest.exit("the comparison that started this run has ended", returncode=pytest.ExitCode.INTERRUPTED)
        self.turns.ended_s = time.monotonic()
