"""The perf tests of the saved run that are not in this run, although nothing left them out."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.baseline import ComparedRun
from pytest_gpubench.plugin.exit_status import ExitStatus
from pytest_gpubench.plugin.left_out import LeftOut
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.workers import is_dry, is_worker
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import count, first_few

if TYPE_CHECKING:
    from pytest_gpubench.results.counterpart import PastTest
    from pytest_gpubench.results.model import TestRecord

MOST_MISSING = 20


class MissingTests:
    """The hooks that name what is missing at the end of the run."""

    def __init__(
        self,
        config: pytest.Config,
        settings: Settings,
        compared: ComparedRun,
        results: Results,
        left_out: LeftOut,
        status: ExitStatus,
    ) -> None:
        self.config = config
        self.settings = settings
        self.compared = compared
        self.results = results
        self.left_out = left_out
        self.status = status
        self._passed: dict[str, bool] = {}
        """For each test that was run, whether all of it passed."""
        self._records: dict[str, TestRecord] = {}
        """What each test measured, at the end of the run."""
        self.found: list[str] = []
        """At the end of the run: each test that is missing, or `test: function` for one that measures less."""
        self._sentence = ""

    def is_gone(self, nodeid: str) -> bool:
        """Tell whether a test neither measured nor failed nor was skipped, and was not left out."""
        if nodeid in self._passed:
            return self._passed[nodeid] and nodeid not in self._records
        return not self.left_out.has(nodeid)

    # hooks

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which tests were run."""
        self._passed[report.nodeid] = self._passed.get(report.nodeid, True) and report.passed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Find what is missing; fail the run if --gpu-bench-missing says so."""
        self._records = {record.nodeid: record for record in self.results.records}
        baseline, action = self.compared.baseline, self.settings.missing
        if baseline is None or is_worker(self.config) or is_dry(self.config) or action == "ignore":
            return
        self.found = list(dict.fromkeys(self._missing()))
        if self.found:
            self._sentence = (
                f"{count(len(self.found), 'test')} of the baseline {', '.join(map(repr, baseline.names))} not in this "
                f"run: {first_few(self.found, MOST_MISSING)}; if that is meant, save a new run, or give "
                "--gpu-bench-missing=ignore"
            )
            if action == "fail":
                self.status.fail(self._sentence)

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Write what is missing."""
        if self._sentence:
            colour = "red" if self.settings.missing == "fail" else "yellow"
            terminal.write_sentence(terminalreporter, f"gpu_bench: {self._sentence}", **{colour: True})

    # what is missing

    def _missing(self) -> Iterator[str]:
        """Yield the tests that are gone, and what others measure no more."""
        from pytest_gpubench.results.baseline import is_same_model

        here = {record.device for record in self._records.values()}
        for past in self.compared.baseline.tests() if self.compared.baseline is not None else ():
            if here and not any(is_same_model(past.device, each) for each in here):
                continue
            if self.is_gone(past.nodeid):
                yield past.nodeid
            elif self._passed.get(past.nodeid, False):
                yield from (f"{past.nodeid}: {label}" for label in _labels_gone(past, self._records[past.nodeid]))


def _labels_gone(past: "PastTest", record: "TestRecord") -> list[str]:
    """Return the labels of what a test measured then and not now; a test that was changed is NOT JUDGED for that."""
    if past.source and record.source not in ("", past.source):
        return []
    then, now = (
        Counter(each.timing.label for each in measurements if each.timing.measured and not each.example)
        for measurements in (past.measurements, record.measurements)
    )
    return list((then - now).elements())
