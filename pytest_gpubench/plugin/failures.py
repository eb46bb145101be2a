"""The perf tests that failed: on which line, and with which message, for the terminal and CI to show."""

import os
import re
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.errors import GpuBenchError, LimitBroken, WrongResult, is_ours
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.workers import is_worker
from pytest_gpubench.results.model import Outcome

OWN_ERROR = re.compile(r"^(E *|)pytest_gpubench\.errors\.", re.MULTILINE)
"""The module name of our errors, which tells a reader nothing."""
OWN_FAILURE = re.compile(r"^(pytest_gpubench\.errors\.)?((LimitBroken|WrongResult): )?")
"""The beginning of a message whose sentence says enough without it."""
UNDECIDED = (Outcome.INCONCLUSIVE, Outcome.NOT_JUDGED)


def fail(item: pytest.Item, report: pytest.TestReport, sentence: str) -> None:
    """Turn the report of a test into that of a failure at the test's first line."""
    with pytest.raises(AssertionError) as raised:
        raise_at(item, AssertionError(sentence))
    shown = raised.getrepr(style="value")
    if shown.reprcrash is not None:
        shown.reprcrash.message = sentence
    report.longrepr = shown
    report.outcome = "failed"
    vars(report).pop("wasxfail", None)


def raise_at(item: pytest.Item, error: BaseException) -> None:
    """Raise an error in a frame of the test's file: pytest shows no reason for one whose frames are all hidden."""
    file, index, _ = item.location
    exec(compile("\n" * (index or 0) + "raise error", item.config.rootpath / file, "exec"), {"error": error})


class Failures:
    """The hooks that note where perf tests are and why they fail, and tell GitHub Actions."""

    def __init__(self, config: pytest.Config, results: Results) -> None:
        self.config = config
        self.results = results
        self.messages: dict[str, str] = {}
        """The message of each test that failed."""
        self._places: dict[str, tuple[str, int | None]] = {}
        """The file of each perf test, and its line or that which failed, counted from 1."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Name our errors without their module, so that pytest's short summary has room, and name the page that helps.

        That is done to what pytest shows, not to the error, whose text tests may match.
        """
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        page = error.page if isinstance(error, (GpuBenchError, LimitBroken, WrongResult)) else ""
        entries: list[Any] = []
        with suppress(Exception):  # another plugin's representation may be of any kind
            for traceback, crash, _ in getattr(report.longrepr, "chain", ()):
                entries += traceback.reprentries
                if crash is not None:
                    crash.message = OWN_FAILURE.sub("", crash.message)
            for entry in entries:
                entry.lines = [OWN_ERROR.sub(r"\1", line) for line in entry.lines]
            if page and entries:
                entries[-1].lines.append(f"E       gpu_bench: see `pytest-gpubench docs {page}`")
        return report

    def pytest_enter_pdb(self, pdb: Any) -> None:
        """Let the debugger begin in the user's frame: pytest itself passes over frames that hide themselves only."""

        def users_stack(frame: object, traceback: object) -> tuple[list[Any], int]:
            stack, place = get_stack(frame, traceback)
            while frame is None and place and is_ours(stack[place][0]):  # in a post-mortem
                place -= 1
            return stack, place

        get_stack, pdb.get_stack = pdb.get_stack, users_stack

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
                self._places[report.nodeid] = str(path), crash.lineno
            self.messages[report.nodeid] = crash.message if crash is not None else str(report.longrepr)

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Annotate the lines of failed tests and undecided limits in GitHub Actions."""
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return
        from pytest_gpubench.report.annotations import Annotation, github_lines

        places = [Annotation(*self._places[nodeid], nodeid, message) for nodeid, message in self.messages.items()]
        for record in self.results.records:
            path, line = self._places.get(record.nodeid, ("", None))
            verdicts = [verdict for item in record.measurements for verdict in item.verdicts]
            undecided = [each.sentence for each in verdicts if each.outcome in UNDECIDED]
            if record.nodeid not in self.messages:
                told = [sentence for sentence in dict.fromkeys(undecided) if sentence in record.warnings]
                places += [Annotation(path, line, record.nodeid, sentence, "warning") for sentence in told]
        for nodeid, reason in self.results.silent.items():
            sentence = f"the limits of the test were not judged: {reason}"
            places.append(Annotation(*self._places.get(nodeid, ("", None)), nodeid, sentence, "warning"))
        for text in github_lines(places, os.environ.get("GITHUB_WORKSPACE") or str(self.config.rootpath)):
            terminalreporter.write_line(text)
