"""Further sessions of a run: the same tests, each time in a fresh process, before the run measures them itself."""

import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.errors import BadRequest, GpuBenchError
from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.containment import ExitStatus
from pytest_gpubench.plugin.fresh_process import run_fresh
from pytest_gpubench.plugin.workers import hand_on, handed_on, is_dry, is_worker
from pytest_gpubench.results.baseline import slimmed
from pytest_gpubench.results.counterpart import by_test
from pytest_gpubench.results.model import SavedRun, TestRecord
from pytest_gpubench.settings import SAVED_SESSIONS, Resolver, flag_name
from pytest_gpubench.units import count

SAME_IN_EVERY_PROCESS = ("scripted",)
"""Timers whose samples a fresh process would only repeat."""
SESSIONS = "gpu_bench_sessions"
"""The key under which a worker is given the sessions."""


class EarlierSessions:
    """The hooks that take the sessions before that of this process, and report them."""

    def __init__(self, config: pytest.Config, resolver: Resolver, status: ExitStatus) -> None:
        self.config = config
        self.settings = settings = resolver.run
        self.status = status
        self.is_wanted = settings.save or settings.autosave or settings.compare
        if "sessions" in resolver.explicit and (settings.sessions or 1) > 1 and not self.is_wanted:
            raise BadRequest(
                f"{flag_name('sessions')}={settings.sessions} takes sessions of a run that is saved or compared: "
                f"give {flag_name('save')}=NAME or {flag_name('compare')}=NAME too"
            )
        self.runs: list[SavedRun] = []
        """The sessions taken, oldest first."""
        self._records: dict[tuple[str, str], list[TestRecord]] | None = None
        if given := handed_on(config, SESSIONS):
            self.runs = msgspec.json.decode(given, type=list[SavedRun])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Take the sessions, before xdist starts its workers, which are given their results."""
        number = self.settings.sessions
        if number is None:  # as many as a FAIL needs where the run is saved under a name
            is_usual = self.settings.save and self.settings.timer not in SAME_IN_EVERY_PROCESS
            number = SAVED_SESSIONS if is_usual else 1
        measures = self.is_wanted and not (self.settings.disable or self.settings.skip or is_dry(self.config))
        if not measures or is_worker(self.config):
            return
        for place in range(1, number):
            title = f"session {place} of {number}"
            try:
                began_s = time.monotonic()
                with tempfile.TemporaryDirectory(prefix="gpubench-session-") as folder:
                    run, has_failed = run_fresh(self.config, Path(folder))
                self.runs.append(run)
                tests = count(len(run.records), "test") + (", some failed" if has_failed else "")
                terminal.announce(self.config, f"{title}: {tests}, {time.monotonic() - began_s:.0f} s")
            except (GpuBenchError, OSError) as error:
                if asked_for := self.settings.sessions is not None:
                    self.status.reasons.append(f"{title}: {error}")
                terminal.announce(self.config, f"{title}: {error}", red=asked_for)
                break
        if self.settings.compare is not None:
            hand_on(self.config, SESSIONS, msgspec.json.encode(list(map(slimmed, self.runs))).decode())

    def records(self) -> dict[tuple[str, str], list[TestRecord]]:
        """Return what the sessions measured, by test and device."""
        if self._records is None:
            self._records = by_test(record for run in self.runs for record in run.records)
        return self._records
