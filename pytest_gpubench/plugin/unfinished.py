"""A run that ended in the midst of a perf test, without a report: the next run of the same project says so.

A program that replaces the process, `_exit(0)` called from C, or a kill leaves an exit status that says nothing about
the tests that did not run.
"""

import hashlib
import os
import secrets
from contextlib import suppress

import pytest

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock_file import OPEN_FLAGS, LockFile, lock_folder_of
from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.items import is_perf
from pytest_gpubench.plugin.workers import is_dry, is_worker
from pytest_gpubench.settings import Settings


class UnfinishedRuns:
    """The hooks that note the running perf test in a locked file, and report the files that earlier runs have left.

    The file lies beside the locks of the GPUs. Workers of xdist need none: their controller sees them die.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self._note: LockFile | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say which earlier runs never ended, and begin a note if this one measures."""
        if is_worker(self.config) or is_dry(self.config) or not any(map(is_perf, session.items)):
            return

        project = hashlib.sha256(str(self.config.rootpath).encode()).hexdigest()[:16]
        with suppress(OSError, BadRequest):  # a folder that nobody may write to
            folder = lock_folder_of(self.settings)
            for path in sorted(folder.glob(f"run-{project}-*")):
                if test := _interrupted_test(LockFile(folder, path.name)):
                    terminal.announce(
                        self.config,
                        f"warning: an earlier run ended in the midst of {test} without a report: whatever its exit "
                        "status, it proves nothing",
                    )
            note = LockFile(folder, f"run-{project}-{secrets.token_hex(8)}")
            self._note = note if note.try_acquire(Holder.of_this_process()) else None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the test that begins."""
        if self._note is not None:
            self._note.write(Holder.of_this_process(nodeid))

    def pytest_sessionfinish(self) -> None:
        """Remove the note: the run has ended, whatever its outcome."""
        if self._note is not None:
            with suppress(OSError):  # the folder may be gone
                self._note.path.unlink()
            self._note.release()


def _interrupted_test(note: LockFile) -> str:
    """Return the test that a note was left in, and remove the note; empty while the run goes on.

    The lock on it ends with its process, however that ends. Notes of other users are left to them.
    """
    with suppress(OSError):  # it was removed
        descriptor = os.open(note.path, os.O_RDONLY | OPEN_FLAGS)
        try:
            if os.fstat(descriptor).st_uid == os.getuid() and note.take_over(descriptor):
                holder = note.holder()
                note.path.unlink()  # raises where its run has removed it, which has ended as it should
                return (holder and holder.test) or "a perf test"
        finally:
            os.close(descriptor)
    return ""
