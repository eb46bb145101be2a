"""Save the run, and write JSON, the HTML page, the Markdown summary and that of the traces, as options ask."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench import __version__
from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.plugin.baseline import ComparedRun
from pytest_gpubench.plugin.containment import ExitStatus
from pytest_gpubench.plugin.failures import Failures
from pytest_gpubench.plugin.missing import MissingTests
from pytest_gpubench.plugin.results import NO_SWEEP, Results
from pytest_gpubench.plugin.sessions import EarlierSessions
from pytest_gpubench.plugin.workers import is_dry, is_worker
from pytest_gpubench.results.baseline import Baseline
from pytest_gpubench.results.files import explaining_os_errors, write_text
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import FAILED, Storage, read_run, write_run
from pytest_gpubench.settings import ROWS, TERMINAL, Settings, flag_name, ini_name
from pytest_gpubench.stats.process_spread import shrunk
from pytest_gpubench.units import count, format_share, printable, share_or_more

HISTORY_RUNS = 50
"""The number of saved runs of each GPU model on the page."""
NO_TRACE = "there is no trace of "
"""The beginning of the warning that a trace could not be taken."""


@dataclass(eq=False, repr=False)
class OutputFiles:
    """The hooks that write files at the end of the run and say so."""

    config: pytest.Config
    settings: Settings
    results: Results
    compared: ComparedRun
    failures: Failures
    earlier: EarlierSessions
    missing: MissingTests
    status: ExitStatus
    saved: dict[Path, int] = field(default_factory=dict)
    """The files of the saved run, with the sessions in each."""
    _ended: SavedRun | None = None
    _interrupted: bool = False
    _has_failed: bool = False
    """True if the run failed its limits, or lacks tests that have to be there: it replaces no baseline."""

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files; one that cannot be written fails the run after the others were tried."""
        if is_worker(self.config) or is_dry(session.config):
            return
        self._interrupted = session.exitstatus == pytest.ExitCode.INTERRUPTED
        self._has_failed = bool(self.status.reasons)
        save = self.settings.save or ("" if self.settings.autosave else None)
        for name, given, write in (
            ("json", self.settings.json, self._write_json),
            ("save", save, self._save),
            ("html", self.settings.html, self._write_html),
            ("markdown", self.settings.markdown, self._write_markdown),
            ("plot", None if self.settings.plot == TERMINAL else self.settings.plot, self._write_plots),
            ("trace", self.settings.trace, self._summarize_traces),
        ):
            if given is None:
                continue
            try:
                if self._has_anything(name):
                    for line in write(given):
                        self.status.say(line)
                elif given and (self.config.getoption(ini_name(name), None) is not None or self.results.selected):
                    if name == "save":
                        raise BadRequest(f"{flag_name('save')}={given}: nothing was measured, so nothing is saved")
                    unwritten = f"{given} was not written, as nothing was measured"
                    self.status.say(self._no_trace() if name == "trace" else unwritten)
            except Exception as error:  # whatever it is, it must not cost the table or the other files
                known = isinstance(error, (BadFile, BadRequest, OSError))
                self.status.fail(str(error) if known else f"{type(error).__name__}: {error}")
        self._write_step_summary()

    def _has_anything(self, name: str) -> bool:
        """Tell whether there is anything to write: a run that measured nothing leaves the files of the last one."""
        if name == "save":
            return self.results.has_numbers
        items = [item for record in self.results.records for item in record.measurements]
        is_judged = any(item.timing.measured or item.verdicts for item in items)
        return is_judged or (name == "markdown" and bool(self.failures.messages or self._silent()))

    def _silent(self) -> dict[str, str]:
        """Return why tests that have a limit, or had a number, have no verdict."""
        return self.results.silent | dict.fromkeys(self.missing.found, "in the baseline, but not in this run")

    def _run(self) -> SavedRun:
        """Return the run as it ended: all files have the same time and the same look at the commit."""
        if self._ended is None:
            from pytest_gpubench.results.provenance import commit_info, machine_info, now

            defaults = Settings()
            chosen = {name: getattr(self.settings, name) for name in ROWS}
            records, earlier = tuple(self.results.records), self.earlier.records()
            self._ended = SavedRun(
                records=records,
                earlier=tuple(old for each in records for old in earlier.get(each.key, ())),
                datetime=now(),
                name=self.settings.save or "",
                version=__version__,
                commit_info=commit_info(self.config.rootpath),
                machine_info=machine_info(),
                settings={name: str(value) for name, value in chosen.items() if value != getattr(defaults, name)},
            )
        return self._ended

    def _write_json(self, path: str) -> list[str]:
        target, reason = Path(path), ""
        if self._has_failed and target.exists() and any(map(target.samefile, self.compared.files)):
            target = target.with_stem(target.stem + FAILED)
            reason = f": the run failed, and does not replace {path}, which it was compared with"
        write_run(self._run(), target)
        return [f"{count(len(self.results.records), 'test')} written to {target}{reason}"]

    def _save(self, name: str) -> list[str]:
        storage = Storage(Path(self.settings.storage))
        self.saved = storage.save_each(self._run(), name, self.missing.is_gone, self._has_failed)
        tests = count(len(self.results.records), "test")
        part = f": {tests}, as the run was interrupted" if self._interrupted else ""
        names = [f"{path} (session {number})" if number > 1 else str(path) for path, number in self.saved.items()]
        why = f": the run failed, and does not become the baseline {name or 'latest'!r}" if self._has_failed else ""
        lines = [f"saved as {', '.join(names)}{part}{why}"]
        for path, sessions in self.saved.items() if self.earlier.runs else ():
            spread = Baseline([("", read_run(path))]).spreads["time"]
            usual = shrunk(replace(spread, freedom=sessions - 1), spread)  # of a test as most are
            lines.append(
                f"{path} has {count(sessions, 'session')}: times of most tests differ by {format_share(spread.std)} "
                "from process to process, so it can decide "
                f"{share_or_more(usual.decidable(self.settings.alpha, sessions))}"
            )
        return lines

    def _write_html(self, path: str) -> list[str]:
        from pytest_gpubench.report.html.page import html_page

        runs = self.compared.runs
        records = tuple(record for run in runs for record in run.records)
        compared = msgspec.structs.replace(runs[0], records=records) if runs else None
        storage, stored, history = Storage(Path(self.settings.storage)), [], []
        models = sorted({record.device.name for record in self._run().records})
        try:
            stored = [one.path for model in models for one in storage.runs(model)[-HISTORY_RUNS:]]
        except BadFile as error:
            self.status.say(f"the page shows no history: {error}")
        for file in stored:
            try:
                if file not in self.saved:  # this run itself
                    history.append(read_run(file))
            except BadFile as error:
                self.status.say(f"left out of the page: {error}")
        write_text(html_page(self._run(), compared, history), Path(path))
        return [f"page written to {path}"]

    def _write_markdown(self, path: str) -> list[str]:
        write_text(self._summary(), Path(path))
        return [f"summary written to {path}"]

    def _write_plots(self, path: str) -> list[str]:
        from pytest_gpubench.report.plot.panels import svg_files
        from pytest_gpubench.report.sweeps import sweeps_of

        files = svg_files(sweeps_of(self.results.records))
        for name, text in files.items():
            write_text(text, Path(path, name))
        return [f"{count(len(files), 'sweep')} drawn in {path}" if files else NO_SWEEP]

    def _write_step_summary(self) -> None:
        """Add the summary to that of the GitHub Actions step; a failure is only a line, as no option asks for it."""
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        has_anything = self.results.records or self._has_anything("markdown")
        if not path or self.settings.markdown is not None or not has_anything:
            return
        try:
            with explaining_os_errors(Path(path), "written"), open(path, "ab") as file:
                file.write(self._summary().encode(errors="backslashreplace"))
        except Exception as error:
            self.status.say(f"no summary in GITHUB_STEP_SUMMARY: {error}")

    def _summary(self) -> str:
        from pytest_gpubench.report.markdown import markdown_summary

        return markdown_summary(self._run(), self.failures.messages, silent=self._silent())

    def _summarize_traces(self, path: str) -> list[str]:
        from pytest_gpubench.report.trace_summary import write_summary

        folder = Path(path)
        write_summary(folder, self.results.records)
        if number := len(list(folder.rglob("*.json.gz"))):
            return [f"{count(number, 'trace')} and a summary are in {folder}"]
        return [f"{self._no_trace()}; see {folder}"]

    def _no_trace(self) -> str:
        """Say that no trace was taken, with the first reason, as far as it is known."""
        records = self.results.records
        reasons = [text for record in records for text in record.warnings if text.startswith(NO_TRACE)]
        if self.settings.timer == "scripted":
            reasons.append("the scripted timer runs nothing")
        timings = [item.timing for record in records for item in record.measurements]
        reasons += [f"{each.label!r} was not measured: {each.unmeasured}" for each in timings if not each.measured]
        return "no trace was taken" + (f": {printable(reasons[0])}" if reasons else "")
