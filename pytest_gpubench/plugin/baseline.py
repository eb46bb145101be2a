"""The saved run that this run is compared with: found, passed on to workers, and looked up for each test."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.sessions import EarlierSessions
from pytest_gpubench.plugin.workers import hand_on, handed_on, is_distributing, is_worker
from pytest_gpubench.results.baseline import Baseline, toolchain
from pytest_gpubench.results.counterpart import Missing, PastTest
from pytest_gpubench.results.model import DeviceFacts, SavedRun
from pytest_gpubench.results.store import NoSuchRun, Storage
from pytest_gpubench.settings import ROWS, Settings, environment_name, flag_name, ini_name
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.units import count, safe_line

if TYPE_CHECKING:
    from pytest_gpubench.running_test import CurrentTest
    from pytest_gpubench.verdict.saved_runs import BaselineLimit

BASELINE = "gpu_bench_baseline"
"""The key under which a worker is given the baseline, and why there is none: it may be on another host."""
UNJUDGED = "max_regression was not judged, as nothing was compared: give --gpu-bench-compare"


class ComparedRun:
    """The hooks for the saved run of --gpu-bench-compare."""

    def __init__(self, config: pytest.Config, settings: Settings, results: Results, earlier: EarlierSessions) -> None:
        self.settings = settings
        self.results = results
        self.earlier = earlier
        self.baseline: Baseline | None = None
        self.runs: list[SavedRun] = []
        """The runs compared with, one for each GPU model; none in a worker."""
        self.files: list[Path] = []
        """Their files."""
        self._compared: list[str] = []
        self._missing = ""
        """The reason why there is no baseline."""
        self._collected: set[str] = set()
        _refuse_useless_options(config, settings)
        if settings.compare is None or settings.disable:
            return
        if is_worker(config):
            text, self._missing = handed_on(config, BASELINE) or (None, "")  # nothing if only this host asks for one
            self.baseline = None if text is None else Baseline.decode(text, self._collected)
            return
        self._find(settings.compare, is_typed=config.getoption(ini_name("compare"), None) is not None)
        if is_distributing(config):
            hand_on(config, BASELINE, (None if self.baseline is None else self.baseline.encode(), self._missing))

    def past_of(self, test: "CurrentTest", facts: DeviceFacts) -> "BaselineLimit | None":
        """Return the saved test that a test is compared with on a device, and its limit; None if with nothing."""
        from pytest_gpubench.results.provenance import installed_tools
        from pytest_gpubench.verdict.limits.regression import MaxRegression
        from pytest_gpubench.verdict.saved_runs import BaselineLimit

        limit, option = test.limits.max_regression, self.settings.compare_fail
        if limit is None and self.settings.compare is None:
            return None
        found: PastTest | Missing = Missing("no run", self._missing)
        if self.settings.compare is None:
            found = Missing("not asked", UNJUDGED)
        elif self.baseline is not None:
            tools = toolchain(installed_tools())
            found = self.baseline.find(test.nodeid, test.source, facts, test.params, tools)
        earlier = self.earlier.records().get((test.nodeid, facts.name), ())
        if limit is not None:
            return BaselineLimit(found, MaxRegression.parse(limit), "max_regression", repr(limit), earlier)
        if option is not None:
            return BaselineLimit(found, parse_tolerance(option), "compare_fail", option, earlier)
        is_said_once = self.baseline is None and self.settings.missing_baseline != "fail"
        return None if is_said_once else BaselineLimit(found, None, earlier=earlier)

    # hooks

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note which tests there are: none of them is an old name of another."""
        self._collected.add(item.nodeid)

    def pytest_report_header(self) -> str | None:
        """Say what the run is compared with."""
        if self._missing:
            return safe_line(f"gpu_bench: compared with nothing: {self._missing}")
        return safe_line(f"gpu_bench: compared with {', '.join(self._compared)}") if self._compared else None

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Say why no test was compared although that was asked for."""
        records, option, sentence = self.results.records, self.settings.compare_fail, ""
        if self.settings.disable or not self.results.has_numbers:
            return
        if self._missing:
            sentence = f"compared with nothing: {self._missing}"
        elif self.settings.compare is None:
            sentence = f"compare_fail={option} was not judged: give {flag_name('compare')} too" if option else ""
        elif not any(item.change is not None for record in records for item in record.measurements):
            names = ", ".join(self.baseline.names if self.baseline is not None else ())
            sentence = f"compared with {names}: none of {count(len(records), 'test')}"
        if sentence:
            terminal.write_sentence(terminalreporter, f"gpu_bench: {sentence}", yellow=True)

    # the saved run

    def _find(self, which: str, is_typed: bool) -> None:
        """Find the saved run; raise BadRequest where the command line names none and tests would fail by that.

        The ini file and the environment are for all runs: there only the tests fail that would be compared.
        """
        from pytest_gpubench.results.provenance import minute_text
        from pytest_gpubench.verdict.ending import Ending, rule_for

        found: list[tuple[Path, SavedRun]] = []
        try:
            found = Storage(Path(self.settings.storage)).baselines(which)
        except NoSuchRun as error:
            self._missing = str(error)
            ending = Ending.NO_TEST if self.settings.compare_fail is None else Ending.NO_RUN
            rule = rule_for(ending, self.settings)
            if rule.action == "fail" and is_typed:
                raise BadRequest(f"{flag_name('compare')}={which}: {error} ({rule.remedy})") from None
        except BadFile as error:
            raise BadRequest(f"{flag_name('compare')}={which}: {error}") from None
        self.files, self.runs = [path for path, _ in found], [run for _, run in found]
        self._compared = [f"{path} of {minute_text(run.datetime)}" for path, run in found]
        if found:
            self.baseline = Baseline([(run.name or path.stem, run) for path, run in found], self._collected)


def _refuse_useless_options(config: pytest.Config, settings: Settings) -> None:
    """Raise BadRequest for an empty value, as of a variable that is not set, and for a tolerance without a baseline."""
    given = {flag_name(name): config.getoption(ini_name(name), None) for name in ROWS}
    given |= {name: os.environ.get(name) for name in map(environment_name, ("save", "compare", "compare_fail"))}
    if empty := [spelling for spelling, value in given.items() if value == ""]:
        raise BadRequest(f"{empty[0]} was given an empty value: name one, or leave it out")
    option = settings.compare_fail
    is_asked = settings.strict or config.getoption(ini_name("compare_fail"), None) is not None
    if option is not None and is_asked and settings.compare is None and not settings.disable:
        raise BadRequest(f"{flag_name('compare_fail')}={option} compares with nothing: give {flag_name('compare')} too")
