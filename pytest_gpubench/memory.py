"""What lasts beyond a run: files it is saved in, the saved run it is compared with, and what CI shows of it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench import __version__
from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.gathering import Gathering
from pytest_gpubench.limits import regression_tolerance
from pytest_gpubench.settings import ROWS, Settings
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.units import count
from pytest_gpubench.workers import is_worker

if TYPE_CHECKING:
    from pytest_gpubench.fixture import CurrentTest
    from pytest_gpubench.past import Past
    from pytest_gpubench.results.baseline import Baseline
    from pytest_gpubench.results.model import DeviceFacts, SavedRun

BASELINE = "gpu_bench_baseline"
"""Under which the controller gives its workers what they compare with."""
HISTORY_RUNS = 50
"""So many saved runs of a GPU are shown on a page."""


class Memory:
    """The hooks that save a run, and hold it against a saved one."""

    def __init__(self, config: pytest.Config, settings: Settings, gathering: Gathering) -> None:
        self.config = config
        self.settings = settings
        self.gathering = gathering
        self.baseline: Baseline | None = None
        self._compared: list[str] = []
        self._no_baseline: str | None = None
        self._lines: list[tuple[str, bool]] = []
        """What the last lines say, and whether it is a failure."""
        self._failures: dict[str, tuple[str, int, str]] = {}
        """By test that failed: file, line, and the first line of what it said."""
        if settings.compare is not None and not settings.disable:
            self._find_baseline(settings.compare)

    def past_of(self, test: "CurrentTest") -> "Callable[[DeviceFacts], Past | None]":
        """Return what finds what a test is held against, on a device."""

        def find(facts: "DeviceFacts") -> "Past | None":
            if self.baseline is None:
                return None
            from pytest_gpubench.past import Past
            from pytest_gpubench.results.provenance import torch_version

            found = self.baseline.find(test.nodeid, test.source, facts, test.params, torch_version())
            if test.limits.max_regression is not None:
                limit = test.limits.max_regression
                return Past(found, regression_tolerance(limit), f"max_regression={limit!r}")
            if self.settings.compare_fail is not None:
                limit = self.settings.compare_fail
                return Past(found, parse_tolerance(limit), f"compare_fail={limit}")
            return Past(found, None)

        return find

    # the saved run

    def _find_baseline(self, which: str) -> None:
        from pytest_gpubench.results.baseline import Baseline

        if is_worker(self.config):
            text = self.config.workerinput.get(BASELINE)  # type: ignore[attr-defined] # xdist puts it there
            self.baseline = None if text is None else Baseline.decode(text)
            return
        from pytest_gpubench.results.store import Storage, read_run

        try:
            paths = Storage(Path(self.settings.storage)).find(which)
        except BadFile as error:
            if self.settings.missing_baseline == "fail":
                raise BadRequest(f"--gpu-bench-compare={which}: {error}") from None
            self._no_baseline = f"compared with nothing: {error}"
            return
        try:
            runs = [(path, read_run(path)) for path in paths]
        except BadFile as error:
            raise BadRequest(f"--gpu-bench-compare={which}: {error}") from None
        self.baseline = Baseline([(run.name or path.stem, run) for path, run in runs])
        self._compared = [f"{path} of {run.datetime[:16]}" for path, run in runs]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Give a worker what to compare with: it may be on another host, where the file is not."""
        if self.baseline is not None:
            node.workerinput[BASELINE] = self.baseline.encode()  # type: ignore[attr-defined] # xdist's WorkerController

    def pytest_report_header(self) -> str | None:
        """Say what the run is compared with."""
        if self._no_baseline is not None and self.settings.missing_baseline == "warn":
            return f"gpu_bench: {self._no_baseline}"
        return f"gpu_bench: compared with {', '.join(self._compared)}" if self._compared else None

    # what is written

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note where perf tests fail."""
        is_perf = hasattr(report, "gpu_bench") or report.nodeid in self.gathering.selected
        if report.failed and is_perf and not is_worker(self.config):
            path, line, _ = report.location
            crash = getattr(report.longrepr, "reprcrash", None)
            if crash is not None and Path(crash.path).resolve() == (self.config.rootpath / path).resolve():
                line = crash.lineno - 1
            text = crash.message if crash is not None else str(report.longrepr)
            self._failures.setdefault(report.nodeid, (path, (line or 0) + 1, text))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what was asked for; what cannot be written fails the run, after all else has been tried."""
        if is_worker(self.config) or session.config.option.collectonly:
            return
        for write in (self._write_json, self._save, self._write_html, self._write_markdown):
            try:
                write()
            except (BadFile, BadRequest, OSError) as error:
                self._lines.append((str(error), True))
                if session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written where, and show CI which lines failed."""
        for line, failed in self._lines:
            terminalreporter.write_line(f"gpu_bench: {line}", red=failed)
        if os.environ.get("GITHUB_ACTIONS") == "true" and not is_worker(self.config):
            for line in self._annotations():
                terminalreporter.write_line(line)

    def _run(self) -> "SavedRun":
        from pytest_gpubench.results.model import SavedRun
        from pytest_gpubench.results.provenance import commit_info, machine_info, now

        defaults = Settings()
        chosen = {name: getattr(self.settings, name) for name in ROWS}
        return SavedRun(
            records=tuple(self.gathering.records),
            datetime=now(),
            name=self.settings.save or "",
            version=__version__,
            commit_info=commit_info(self.config.rootpath),
            machine_info=machine_info(),
            settings={name: str(value) for name, value in chosen.items() if value != getattr(defaults, name)},
        )

    def _write_json(self) -> None:
        if self.settings.json is None:
            return
        from pytest_gpubench.results.store import write_run

        write_run(self._run(), Path(self.settings.json))
        number = len(self.gathering.records)
        self._lines.append((f"{count(number, 'test')} written to {self.settings.json}", False))

    def _save(self) -> None:
        if self.settings.save is None and not self.settings.autosave:
            return
        if not self.gathering.records:
            if self.settings.save is not None:
                raise BadFile(f"--gpu-bench-save={self.settings.save}: nothing was measured, so nothing is saved")
            return
        from pytest_gpubench.results.store import Storage

        paths = Storage(Path(self.settings.storage)).save_each(self._run(), self.settings.save or "")
        self._lines.append((f"saved as {', '.join(map(str, paths))}", False))

    def _write_html(self) -> None:
        if self.settings.html is None:
            return
        from pytest_gpubench.report.html.page import html_page
        from pytest_gpubench.results.store import Storage, read_run

        run = self._run()
        storage = Storage(Path(self.settings.storage))
        models = {record.device.name for record in run.records}
        stored = [one for model in sorted(models) for one in storage.runs(model)[-HISTORY_RUNS:]]
        past: list[SavedRun] = []
        for one in stored:
            try:
                past.append(read_run(one.path))
            except BadFile as error:
                self._lines.append((f"left out of the page: {error}", False))
        baseline = None
        if self.baseline is not None:
            baseline = next((each for each in reversed(past) if each.name in self.baseline.names), None)
        Path(self.settings.html).write_text(html_page(run, baseline, past), encoding="utf-8")
        self._lines.append((f"page written to {self.settings.html}", False))

    def _write_markdown(self) -> None:
        path = self.settings.markdown or os.environ.get("GITHUB_STEP_SUMMARY")
        if not path or not (self.gathering.records or self._failures):
            return
        from pytest_gpubench.report.markdown import markdown_summary

        text = markdown_summary(self._run(), {nodeid: text for nodeid, (_, _, text) in self._failures.items()})
        with open(path, "a" if self.settings.markdown is None else "w", encoding="utf-8") as file:
            file.write(text)
        if self.settings.markdown is not None:
            self._lines.append((f"summary written to {path}", False))

    def _annotations(self) -> list[str]:
        from pytest_gpubench.report.annotations import Place, github_lines
        from pytest_gpubench.results.model import Outcome

        places = [
            Place(path=path, line=line, title=nodeid, sentence=text, level="error")
            for nodeid, (path, line, text) in self._failures.items()
        ]
        places += [
            Place(
                path=record.nodeid.partition("::")[0],
                line=1,
                title=record.nodeid,
                sentence=each.sentence,
                level="warning",
            )
            for record in self.gathering.records
            for item in record.measurements
            for each in item.verdicts
            if each.outcome is Outcome.INCONCLUSIVE and record.nodeid not in self._failures
        ]
        return github_lines(places, os.environ.get("GITHUB_WORKSPACE", ""))
