"""What reaches the process that the user started: all results, their table, and whether they are enough."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.plugin.workers import is_distributing, is_dry, is_worker, worker_name
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import count

if TYPE_CHECKING:
    from pytest_gpubench.results.model import DeviceFacts, TestRecord


class Gathering:
    """The hooks that gather results, its own process's and the workers' alike, and show them."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self.config = config
        self.settings = settings
        self._records: dict[tuple[str, str], TestRecord] = {}
        self._runs: Counter[tuple[str, str]] = Counter()
        """How often each test was run."""
        self._order: dict[str, int] = {}
        self.selected: set[str] = set()
        self._shortfall: str | None = None

    def pytest_report_header(self, config: pytest.Config) -> str | None:
        """Say what is measured with; without xdist that waits until it is known that there are perf tests."""
        if not is_distributing(config):
            return None
        from pytest_gpubench.report.terminal import header_line

        devices = self._devices()
        return header_line(devices[0] if devices else None, self.settings, len(devices))

    def _devices(self) -> "list[DeviceFacts]":
        """Return what the workers will measure on, as far as that is known without torch: GPUs, or the CPU."""
        from pytest_gpubench.gpu.device import cpu_facts
        from pytest_gpubench.gpu.visible import has_gpu_driver, visible_facts

        if self.settings.device == "cpu":
            return [cpu_facts()]
        if gpus := visible_facts():
            return gpus
        unknown = self.settings.device == "cuda" or has_gpu_driver() or has_remote_workers(self.config)
        return [] if unknown else [cpu_facts()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the order of the tests, in which they are shown whoever runs them."""
        self._order = {nodeid: place for place, nodeid in enumerate(ids)}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the results, and which tests should have some."""
        if is_worker(self.config):
            return
        if report.when == "setup":
            test = report.nodeid, worker_of(report)
            self._runs[test] += 1
            self._records.pop(test, None)
        if getattr(report, "gpu_bench_selected", False):
            self.selected.add(report.nodeid)
        text = getattr(report, "gpu_bench", None)
        if text is not None:
            from pytest_gpubench.results.model import decode

            self.selected.add(report.nodeid)
            self.keep(decode(text))

    @property
    def records(self) -> "list[TestRecord]":
        """What each test measured, in the order in which pytest collected them."""
        return sorted(self._records.values(), key=lambda record: self._order.get(record.nodeid, 0))

    def keep(self, record: "TestRecord") -> None:
        """Keep what a test measured; of one that is run again, as by --reruns, only its last run counts."""
        test = record.nodeid, record.worker
        if (times := self._runs[test]) > 1:
            record = with_warning(record, f"it was run {times} times: what is shown and kept is of the last")
        self._records[test] = record

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that measured less than --gpu-bench-require asks for."""
        if is_worker(self.config) or is_dry(session.config):
            return
        self._shortfall = self._missing()
        if self._shortfall is not None and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Write the tables, what was measured on what, and what is missing."""
        if self.records:
            self._show(terminalreporter)
        if self._shortfall is not None:
            terminalreporter.write_line(f"gpu_bench: {self._shortfall}", red=True)

    def _show(self, terminalreporter: "pytest.TerminalReporter") -> None:
        from pytest_gpubench.report.layout import Screen
        from pytest_gpubench.report.table import render
        from pytest_gpubench.report.terminal import summary_lines

        terminalreporter.write_line("")
        if not self.settings.quiet:
            screen = Screen.current(self.config.get_terminal_writer().hasmarkup)
            text = render(self.records, self.settings, screen)
            for line in [*text.split("\n"), ""] if text else []:
                terminalreporter.write_line(line)
        for line in summary_lines(self.records, self.settings):
            terminalreporter.write_line(line)

    def _missing(self) -> str | None:
        """Return in one sentence what --gpu-bench-require finds wanting; None where nothing is."""
        wanted = self.settings.require
        if wanted is None:
            return None
        counted, fell_back = self._measured()
        if wanted == "all":
            if not self.selected:
                return "--gpu-bench-require=all: there was no perf test to run"
            wanting = unmeasured_words(self.selected - counted - fell_back, len(self.selected))
        elif len(counted) < wanted:
            where = "the CPU" if self.settings.device == "cpu" else "a GPU"
            wanting = [f"{count(len(counted), 'test')} measured on {where}"]
        else:
            return None
        wanting += fallback_words(fell_back - counted)
        return f"--gpu-bench-require={wanted}: {'; '.join(wanting)}" if wanting else None

    def _measured(self) -> tuple[set[str], set[str]]:
        """Return the tests that measured where they were meant to, and those that did so on a CPU for want of a GPU."""
        counted: set[str] = set()
        fell_back: set[str] = set()
        for record in self.records:
            if any(each.timing.measured for each in record.measurements):
                meant = record.device.type == "cuda" or self.settings.device == "cpu"
                (counted if meant else fell_back).add(record.nodeid)
        return counted, fell_back


def worker_of(report: pytest.TestReport) -> str:
    """Return which worker a report came from, as records name it."""
    return str(getattr(report, "worker_id", worker_name()))


def with_warning(record: "TestRecord", sentence: str) -> "TestRecord":
    """Return a record with one more warning."""
    import msgspec

    return msgspec.structs.replace(record, warnings=(*record.warnings, sentence))


def has_remote_workers(config: pytest.Config) -> bool:
    """Tell whether workers may run on other hosts, of whose GPUs nothing is known here."""
    return any("popen" not in spec or "via=" in spec for spec in config.getoption("tx", None) or ())


def unmeasured_words(tests: set[str], selected: int) -> list[str]:
    """Return how many of the selected tests measured nothing, and the first of them; nothing where all did."""
    if not tests:
        return []
    return [f"{count(len(tests), 'perf test')} of {selected} measured nothing, the first is {min(tests)}"]


def fallback_words(tests: set[str]) -> list[str]:
    """Return how many tests measured on a CPU that nobody asked for, and what to do; nothing where none did."""
    if not tests:
        return []
    return [
        f"{count(len(tests), 'perf test')} measured on the CPU, which does not count where no GPU was found, the "
        f"first is {min(tests)}: run where there is a GPU, or ask for the CPU with --gpu-bench-device=cpu"
    ]
