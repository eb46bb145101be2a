"""The saved run that this run is compared with: found, passed on to workers, and looked up for each test."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.limits import regression_tolerance
from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.workers import is_worker
from pytest_gpubench.settings import Settings, flag_name, ini_name
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.units import count, safe_line

if TYPE_CHECKING:
    from pytest_gpubench.results.baseline import Baseline
    from pytest_gpubench.results.model import DeviceFacts, SavedRun
    from pytest_gpubench.results.store import Storage
    from pytest_gpubench.running_test import CurrentTest
    from pytest_gpubench.verdict.saved_runs import BaselineLimit

BASELINE = "gpu_bench_baseline"
"""The key under which a worker is given the baseline."""
UNJUDGED = "max_regression was not judged, as nothing was compared: give --gpu-bench-compare"


class ComparedRun:
    """The hooks for the saved run of --gpu-bench-compare."""

    def __init__(self, config: pytest.Config, settings: Settings, results: Results) -> None:
        self.settings = settings
        self.results = results
        self.baseline: Baseline | None = None
        self.runs: list[SavedRun] = []
        """The runs compared with, one for each GPU model; none in a worker."""
        self._compared: list[str] = []
        self._missing: str | None = None
        """Why there is no baseline, where that is allowed."""
        self._collected: set[str] = set()
        _refuse_useless_options(config, settings)
        if settings.compare is None or settings.disable:
            return
        if is_worker(config):
            self._decode(config.workerinput.get(BASELINE))  # type: ignore[attr-defined] # xdist puts it there
        else:
            self._find(settings.compare)

    def past_of(self, test: "CurrentTest", facts: "DeviceFacts") -> "BaselineLimit | None":
        """Return what a test on a device is compared with, and how much slower it may be; None for nothing."""
        limit, option = test.limits.max_regression, self.settings.compare_fail
        if self.baseline is None:
            if limit is not None and self.settings.compare is None:
                test.warn(UNJUDGED)
            return None
        from pytest_gpubench.results.provenance import torch_version
        from pytest_gpubench.verdict.saved_runs import BaselineLimit

        found = self.baseline.find(test.nodeid, test.source, facts, test.params, torch_version())
        if limit is not None:
            return BaselineLimit(found, regression_tolerance(limit), "max_regression", repr(limit))
        if option is not None:
            return BaselineLimit(found, parse_tolerance(option), "compare_fail", option)
        return BaselineLimit(found, None)

    # hooks

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note which tests there are: none of them is an old name of another."""
        self._collected.add(item.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Give a worker the baseline: it may be on another host, where the file is not."""
        if self.baseline is not None:
            node.workerinput[BASELINE] = self.baseline.encode()  # type: ignore[attr-defined] # xdist's WorkerController

    def pytest_report_header(self) -> str | None:
        """Say what the run is compared with."""
        if self._missing is not None and self.settings.missing_baseline == "warn":
            return safe_line(f"gpu_bench: {self._missing}")
        return safe_line(f"gpu_bench: compared with {', '.join(self._compared)}") if self._compared else None

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Say why no test was compared."""
        if sentence := self._why_uncompared():
            terminal.write(terminalreporter, f"gpu_bench: {sentence}", yellow=True)

    def _why_uncompared(self) -> str | None:
        """Return why no test was compared although that was asked for; None where one was."""
        records = self.results.records
        if self.settings.disable or not self.results.has_numbers:
            return None
        if self._missing is not None:
            return self._missing if self.settings.missing_baseline == "warn" else None
        if self.settings.compare is None:
            option = self.settings.compare_fail
            return option and f"compare_fail={option} was not judged: give {flag_name('compare')} too"
        if any(item.change is not None for record in records for item in record.measurements):
            return None
        names = ", ".join(self.baseline.names if self.baseline is not None else ())
        return f"compared with {names}: none of {count(len(records), 'test')}"

    # the saved run

    def _decode(self, text: str | None) -> None:
        from pytest_gpubench.results.baseline import Baseline

        self.baseline = None if text is None else Baseline.decode(text, self._collected)

    def _find(self, which: str) -> None:
        from pytest_gpubench.results.baseline import Baseline
        from pytest_gpubench.results.provenance import minute_text
        from pytest_gpubench.results.store import Storage, read_run

        storage = Storage(Path(self.settings.storage))
        try:
            storage.runs()  # a storage that cannot be read is an error, unlike one without the run
            found = [(path, read_run(path)) for path in self._paths(storage, which)]
        except BadFile as error:
            raise BadRequest(f"{flag_name('compare')}={which}: {error}") from None
        self.runs = [run for _, run in found]
        self._compared = [f"{path} of {minute_text(run.datetime)}" for path, run in found]
        if found:
            self.baseline = Baseline([(run.name or path.stem, run) for path, run in found], self._collected)

    def _paths(self, storage: "Storage", which: str) -> list[Path]:
        """Return the files to compare with; none where there are none and that is allowed."""
        tests = BadFile(f"these are tests and no saved run; in front of them, write {flag_name('compare')}=latest")
        try:
            paths = storage.find(which)
        except BadFile as error:
            if os.path.isdir(which) or "::" in which or which.endswith(".py"):
                raise tests from None
            if self.settings.missing_baseline == "fail":
                raise
            self._missing = f"compared with nothing: {error}"
            return []
        if which.endswith(".py") and paths == [Path(which)]:
            raise tests
        return paths


def _refuse_useless_options(config: pytest.Config, settings: Settings) -> None:
    """Raise BadRequest for an empty value, as of a variable that is not set, and for a tolerance without a baseline."""
    for name in ("save", "compare", "compare_fail"):
        if config.getoption(ini_name(name), None) == "":
            raise BadRequest(f"{flag_name(name)} was given an empty value: name one, or leave the option out")
    given = config.getoption(ini_name("compare_fail"), None)
    if given is not None and settings.compare is None and not settings.disable:
        raise BadRequest(f"{flag_name('compare_fail')}={given} compares with nothing: give {flag_name('compare')} too")
