"""The results of all tests, collected in the process that the user started: their tables, and whether they suffice."""

from collections.abc import Sequence

import pytest

from pytest_gpubench.gpu.device import cpu_facts
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.gpu.visible import find_visible, has_gpu_driver
from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.containment import GREEN, ExitStatus
from pytest_gpubench.plugin.workers import is_distributing, is_dry, is_worker, without_group, worker_name
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.remedies import named
from pytest_gpubench.report.terminal import header_line, summary_lines
from pytest_gpubench.results.model import DeviceFacts, TestRecord, decode
from pytest_gpubench.settings import TERMINAL, Settings
from pytest_gpubench.units import count

ENDINGS = ("passed", "skipped", "failed")
"""From the best to the worst."""
NO_SWEEP = "nothing was drawn, as no test measured at two values of a parameter that is a number or a shape"


class Results:
    """The hooks that collect results from reports, of this process and of workers alike, and show them."""

    def __init__(self, config: pytest.Config, settings: Settings, status: ExitStatus) -> None:
        self.config = config
        self.settings = settings
        self.status = status
        self.selected: set[str] = set()
        """The perf tests of the run."""
        self.ended: dict[str, str] = {}
        """The worst that a part of each test came to; of a file that could not be collected, "failed"."""
        self.silent: dict[str, str] = {}
        """For each skipped or xfailed test with limits that were not judged, the reason."""
        self._broken: dict[tuple[str, str], tuple[str, bool]] = {}
        """For each test that has to fail, by test and worker, the reason, and whether it was reported as failed."""
        self._records: dict[tuple[str, str], TestRecord] = {}
        """Records by test and worker."""
        self._order: dict[str, int] = {}

    @property
    def records(self) -> list[TestRecord]:
        """The record of each test, in the order in which pytest collected them."""
        return sorted(self._records.values(), key=lambda record: self._order.get(record.nodeid, 0))

    @property
    def has_numbers(self) -> bool:
        """True if anything was timed."""
        return any(item.timing.measured for record in self._records.values() for item in record.measurements)

    def keep(self, record: TestRecord) -> None:
        """Keep what a test measured; of a test that runs again, as with --reruns, only the last run counts."""
        self._records[record.nodeid, record.worker] = record

    # hooks

    def pytest_report_header(self, config: pytest.Config) -> str | None:
        """Say what workers measure on; without xdist that is said after the collection, if there are perf tests."""
        if not is_distributing(config):
            return None
        devices = [] if self.settings.device == "cpu" else visible_facts()
        if not devices:  # as far as is known without torch
            is_unknown = self.settings.device == "cuda" or has_gpu_driver() or has_remote_workers(config)
            devices = [] if is_unknown and self.settings.device != "cpu" else [cpu_facts()]
        return header_line(devices[0] if devices else None, self.settings, len(devices))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the order of the tests, which is that of the tables, whichever worker runs them."""
        self._order = {nodeid: place for place, nodeid in enumerate(map(without_group, ids))}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected."""
        if report.failed:
            self.ended[report.nodeid] = "failed"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how tests end; collect the results, and which tests should have some."""
        if report.outcome in ENDINGS:  # others are of plugins, as of tests that are run again
            nodeid = without_group(report.nodeid)
            self.ended[nodeid] = max(self.ended.get(nodeid, "passed"), report.outcome, key=ENDINGS.index)
        if is_worker(self.config):
            return
        test = report.nodeid, str(getattr(report, "worker_id", worker_name()))
        if report.when == "setup":
            self._records.pop(test, None)
            self._broken.pop(test, None)
            self.silent.pop(report.nodeid, None)
        if reason := getattr(report, "gpu_bench_broken", ""):
            self._broken[test] = f"{report.nodeid} has to fail: {reason}", report.failed
        if reason := getattr(report, "gpu_bench_silent", ""):
            self.silent[report.nodeid] = reason
        text = getattr(report, "gpu_bench", None)
        if text is not None or getattr(report, "gpu_bench_selected", False):
            self.selected.add(report.nodeid)
        if text is not None:
            self.keep(decode(text))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """Count a test that passed with an undecided limit apart from those that passed."""
        ending = getattr(report, "gpu_bench_ending", "")
        if not ending or not report.passed or hasattr(report, "wasxfail"):
            return None
        return ending, "?", (ending.upper(), {"yellow": True})

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which limits were broken, or that measured less than --gpu-bench-require asks for."""
        if is_worker(self.config) or is_dry(session.config):
            return
        if self.silent:
            tests = f"{count(len(self.silent), 'test')} with limits skipped or xfailed, not judged"
            self.status.say(f"{tests}: {named(self.silent)}", yellow=True)
        if shortfall := self._find_shortfall():
            self.status.fail(shortfall)
        is_green = session.exitstatus in GREEN
        for reason, is_told in self._broken.values():
            self.status.reasons.append(reason)
            if is_green or not is_told:
                self.status.say(reason, red=True)

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Write the tables, and the lines below them."""
        if not self.records:
            return
        from pytest_gpubench.report.table import render

        terminal.write_line(terminalreporter, "")
        if not self.settings.quiet:
            screen = Screen.current(self.config.get_terminal_writer().hasmarkup)
            text = render(self.records, self.settings, screen)
            for line in [*text.split("\n"), ""] if text else []:
                terminal.write_line(terminalreporter, line, screen.color)
        if self.settings.plot == TERMINAL:
            from pytest_gpubench.report.plot.panels import text_charts
            from pytest_gpubench.report.sweeps import sweeps_of

            text = text_charts(sweeps_of(self.records), Screen.current(color=False)) or f"gpu_bench: {NO_SWEEP}"
            for line in [*text.split("\n"), ""]:
                terminal.write_line(terminalreporter, line)
        for line in summary_lines(self.records, self.settings):
            terminal.write_sentence(terminalreporter, line)

    def _find_shortfall(self) -> str | None:
        """Return in one sentence what is missing for --gpu-bench-require; None where nothing is."""
        wanted, on_cpu = self.settings.require, self.settings.device == "cpu"
        option = "--gpu-bench-strict" if self.settings.strict and wanted == "all" else f"--gpu-bench-require={wanted}"
        if wanted == "all" and not self.selected:
            return f"{option}: there was no perf test to run"
        numbers = [each for each in self.records if any(item.timing.measured for item in each.measurements)]
        measured = {each.nodeid for each in numbers if on_cpu or each.device.type == "cuda"}
        fell_back = {each.nodeid for each in numbers} - measured
        if wanted is None or (wanted != "all" and len(measured) >= wanted):
            return None
        missing = []
        if wanted != "all":
            missing = [f"{count(len(measured), 'test')} measured on {'the CPU' if on_cpu else 'a GPU'}"]
        elif silent := self.selected - measured - fell_back:
            tests = f"{count(len(silent), 'perf test')} of {len(self.selected)}"
            missing = [f"{tests} measured nothing, the first is {min(silent)}"]
        if fell_back:
            missing.append(
                f"{count(len(fell_back), 'perf test')} measured on the CPU, which does not count where no GPU was "
                f"found, the first is {min(fell_back)}: run where there is a GPU, or ask for the CPU with "
                "--gpu-bench-device=cpu"
            )
        return f"{option}: {'; '.join(missing)}" if missing else None


def visible_facts() -> list[DeviceFacts]:
    """Return the visible GPUs as NVML knows them; nothing if NVML is not usable."""
    import socket

    gpus = find_visible()
    try:
        driver = Nvml.open(gpus[0].uuid).driver() if gpus else None
    except RuntimeError:
        driver = None
    host = socket.gethostname()
    return [DeviceFacts(type="cuda", name=gpu.name, host=host, uuid=gpu.uuid, driver=driver) for gpu in gpus]


def has_remote_workers(config: pytest.Config) -> bool:
    """Tell whether workers may run on other hosts, whose GPUs are not known here."""
    return any("popen" not in spec or "via=" in spec for spec in config.getoption("tx", None) or ())
