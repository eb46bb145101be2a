"""A run that ended in the midst of a perf test, without a report: the next run in the same folder says so.

`os._exit(0)` called from C, or a kill, leaves an exit status that says nothing about the tests that did not run.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.items import is_perf
from pytest_gpubench.plugin.workers import is_dry, is_worker

FOLDER = "gpu_bench_running"
"""The folder of pytest's cache that has a file for each run that has not ended."""


class UnfinishedRuns:
    """The hooks that note the running perf test, and report notes that earlier runs never removed.

    Workers of xdist need none: their controller sees them die.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._note: Path | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say which earlier runs never ended, and begin a note if this one measures."""
        cache = getattr(self.config, "cache", None)
        if cache is None or is_worker(self.config) or is_dry(self.config) or not any(map(is_perf, session.items)):
            return
        with suppress(OSError):  # a folder that nobody may write to
            folder = cache.mkdir(FOLDER)
            for path in sorted(folder.iterdir()):
                if sentence := _sentence_about(path):
                    terminal.say(self.config, f"warning: {sentence}")
            self._note = folder / f"{socket.gethostname()}-{os.getpid()}"

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the test that begins."""
        if self._note is not None:
            import msgspec

            from pytest_gpubench.gpu.holder import Holder

            note = msgspec.structs.replace(Holder.of_this_process(), test=nodeid)
            with suppress(OSError):  # the folder may be gone, or the disk full
                self._note.write_bytes(msgspec.json.encode(note))

    def pytest_sessionfinish(self) -> None:
        """Take the note back: the run has ended, whatever came of it."""
        if self._note is not None:
            with suppress(OSError):
                self._note.unlink()


def _sentence_about(path: Path) -> str:
    """Return a sentence about the note of a run, and remove it; empty if that run may still go on.

    Hosts and containers may share the folder: the note of another one is left to it.
    """
    import msgspec

    from pytest_gpubench.gpu.holder import Holder

    test = "a perf test"
    with suppress(OSError, msgspec.DecodeError):
        note = msgspec.json.decode(path.read_bytes(), type=Holder)
        if not note.has_ended:
            return ""
        test = note.test
    path.unlink(missing_ok=True)
    return f"an earlier run ended in the midst of {test} without a report: whatever its exit status, it proves nothing"
