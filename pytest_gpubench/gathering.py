"""What reaches the process that the user started: all results, their table, and whether they are enough."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.settings import Settings
from pytest_gpubench.units import count
from pytest_gpubench.workers import is_distributing, is_worker

if TYPE_CHECKING:
    from pytest_gpubench.results.model import TestRecord


class Gathering:
    """The hooks that gather results, its own process's and the workers' alike, and show them."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self.records: list[TestRecord] = []
        self._order: dict[str, int] = {}
        self.selected: set[str] = set()
        self._shortfall: str | None = None

    def pytest_report_header(self, config: pytest.Config) -> str | None:
        """Say what is measured with; without xdist that waits until it is known that there are perf tests."""
        if not is_distributing(config):
            return None
        from pytest_gpubench.gpu.presence import visible_facts
        from pytest_gpubench.report.terminal import header_line

        gpus = visible_facts() if self.settings.device != "cpu" else []
        return header_line(gpus[0] if gpus else None, self.settings, len(gpus))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the order of the tests, in which they are shown whoever runs them."""
        self._order = {nodeid: place for place, nodeid in enumerate(ids)}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the results, and which tests should have some."""
        if is_worker(self.config):
            return
        if getattr(report, "gpu_bench_selected", False):
            self.selected.add(report.nodeid)
        text = getattr(report, "gpu_bench", None)
        if text is not None:
            from pytest_gpubench.results.model import decode

            self.records.append(decode(text))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that measured less than --gpu-bench-require asks for."""
        if is_worker(self.config) or session.config.option.collectonly:
            return
        self.records.sort(key=lambda record: self._order.get(record.nodeid, 0))
        self._shortfall = self._missing()
        if self._shortfall is not None and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the tables, what was measured on what, and what is missing."""
        if self.records:
            self._show(terminalreporter)
        if self._shortfall is not None:
            terminalreporter.write_line(f"gpu_bench: {self._shortfall}", red=True)

    def _show(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_gpubench.report.table import render
        from pytest_gpubench.report.terminal import summary_lines

        terminalreporter.write_line("")
        if not self.settings.quiet:
            text = render(self.records, self.settings, self.config.get_terminal_writer().hasmarkup)
            for line in text.splitlines():
                terminalreporter.write_line(line)
        for line in summary_lines(self.records, self.settings):
            terminalreporter.write_line(line)

    def _missing(self) -> str | None:
        """Return in one sentence what --gpu-bench-require finds wanting; None where nothing is."""
        wanted = self.settings.require
        if wanted is None:
            return None
        measured = {
            record.nodeid: record for record in self.records if any(m.timing.measured for m in record.measurements)
        }
        if wanted == "all":
            missing = sorted(self.selected - set(measured))
            if missing:
                return (
                    f"--gpu-bench-require=all: {count(len(missing), 'perf test')} of {len(self.selected)} measured "
                    f"nothing, the first is {missing[0]}"
                )
            return None if self.selected else "--gpu-bench-require=all: there was no perf test to run"
        on_gpu = sum(record.device.type == "cuda" for record in measured.values())
        if on_gpu >= wanted:
            return None
        return f"--gpu-bench-require={wanted}: {count(on_gpu, 'test')} measured on a GPU"
