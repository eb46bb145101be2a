"""The perf tests that failed: on which line, and with which message, for CI to show."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.workers import is_worker

if TYPE_CHECKING:
    from pytest_gpubench.results.model import TestRecord

OWN_ERRORS = "pytest_gpubench.errors."
"""The module name of our errors, which tells a reader nothing."""


class Failures:
    """The hooks that note where perf tests are and why they fail, and tell GitHub Actions."""

    def __init__(self, config: pytest.Config, results: Results) -> None:
        self.config = config
        self.results = results
        self.messages: dict[str, str] = {}
        """By test that failed."""
        self._places: dict[str, tuple[str, int | None]] = {}
        """By perf test: file, and line, counted from 1."""
        self._failed_lines: dict[str, int | None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note where a perf test is, and why it failed."""
        is_perf = hasattr(report, "gpu_bench") or report.nodeid in self.results.selected
        if not is_perf or is_worker(self.config):
            return
        file, index, _ = report.location
        path, line = self.config.rootpath / file, None if index is None else index + 1
        self._places.setdefault(report.nodeid, (str(path), line))
        if report.when == "setup":
            self.messages.pop(report.nodeid, None)  # of an earlier run, as with --reruns
        if report.failed and report.nodeid not in self.messages:
            crash = getattr(report.longrepr, "reprcrash", None)
            if crash is not None and Path(crash.path).resolve() == path.resolve():
                line = crash.lineno
            message = crash.message if crash is not None else str(report.longrepr)
            self._failed_lines[report.nodeid] = line
            self.messages[report.nodeid] = message.removeprefix(OWN_ERRORS)

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Annotate the lines of failed tests and undecided limits in GitHub Actions."""
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for line in self._annotations():
                terminalreporter.write_line(line)

    def _annotations(self) -> list[str]:
        from pytest_gpubench.report.annotations import Place, github_lines

        places = [
            Place(self._places[nodeid][0], self._failed_lines[nodeid], nodeid, message)
            for nodeid, message in self.messages.items()
        ]
        for record in self.results.records:
            path, line = self._places.get(record.nodeid, ("", None))
            sentences = _undecided(record) if record.nodeid not in self.messages else []
            places += [Place(path, line, record.nodeid, sentence, "warning") for sentence in sentences]
        return github_lines(places, os.environ.get("GITHUB_WORKSPACE") or str(self.config.rootpath))


def _undecided(record: "TestRecord") -> list[str]:
    """Return what the test's INCONCLUSIVE limits say, as far as the run warns of them."""
    from pytest_gpubench.results.model import Outcome

    verdicts = [verdict for item in record.measurements for verdict in item.verdicts]
    sentences = [verdict.sentence for verdict in verdicts if verdict.outcome is Outcome.INCONCLUSIVE]
    return [sentence for sentence in sentences if sentence in record.warnings]
