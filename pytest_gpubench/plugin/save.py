"""What lasts beyond a run: files it is saved in, the saved run it is compared with, and what CI shows of it."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench import __version__
from pytest_gpubench.errors import BadFile, BadRequest
from pytest_gpubench.limits import regression_tolerance
from pytest_gpubench.plugin.collect import Gathering
from pytest_gpubench.plugin.workers import is_dry, is_worker
from pytest_gpubench.settings import ROWS, Settings, flag_name, ini_name
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.units import count, printable

if TYPE_CHECKING:
    from pytest_gpubench.results.baseline import Baseline
    from pytest_gpubench.results.model import DeviceFacts, SavedRun, TestRecord
    from pytest_gpubench.results.store import Storage
    from pytest_gpubench.running_test import CurrentTest
    from pytest_gpubench.verdict.saved_runs import BaselineLimit

BASELINE = "gpu_bench_baseline"
"""Under which the controller gives its workers what they compare with."""
HISTORY_RUNS = 50
"""So many saved runs of a GPU are shown on a page."""
UNJUDGED = "max_regression was not judged, as nothing was compared: give --gpu-bench-compare"
NO_TRACE = "there is no trace of "
"""What the warning that a trace could not be taken begins with."""
OWN_ERRORS = "pytest_gpubench.errors."
"""What the names of our errors begin with, which says nothing to a reader."""


class Memory:
    """The hooks that save a run, and hold it against a saved one."""

    def __init__(self, config: pytest.Config, settings: Settings, gathering: Gathering) -> None:
        self.config = config
        self.settings = settings
        self.gathering = gathering
        self.baseline: Baseline | None = None
        self._past: list[SavedRun] = []
        """What the run is compared with, where a page is to show it: its file may be overwritten meanwhile."""
        self._compared: list[str] = []
        self._no_baseline: str | None = None
        self._collected: set[str] = set()
        self._ended: SavedRun | None = None
        self._saved: list[Path] = []
        self._lines: list[tuple[str, bool]] = []
        """What the last lines say, and whether it is a failure."""
        self._places: dict[str, tuple[str, int | None]] = {}
        """By perf test: file, and line, counted from 1."""
        self._failures: dict[str, tuple[int | None, str]] = {}
        """By perf test that failed: line, counted from 1, and what it said."""
        refuse_empty(config)
        if settings.compare is not None and not settings.disable:
            self._find_baseline(settings.compare)
        elif not settings.disable:
            refuse_lonely(config)

    def past_of(self, test: "CurrentTest") -> "Callable[[DeviceFacts], BaselineLimit | None]":
        """Return what finds what a test is held against, on a device."""

        def find(facts: "DeviceFacts") -> "BaselineLimit | None":
            if self.baseline is None:
                if test.limits.max_regression is not None and self.settings.compare is None:
                    test.warnings += [UNJUDGED] if UNJUDGED not in test.warnings else []
                return None
            from pytest_gpubench.results.provenance import torch_version
            from pytest_gpubench.verdict.saved_runs import BaselineLimit

            known = test.nodeid, test.source, facts, test.params
            found = self.baseline.find(*known, torch_version(), self._collected)
            if test.limits.max_regression is not None:
                asked = test.limits.max_regression
                return BaselineLimit(found, regression_tolerance(asked), "max_regression", repr(asked))
            if self.settings.compare_fail is not None:
                return BaselineLimit(
                    found, parse_tolerance(self.settings.compare_fail), "compare_fail", self.settings.compare_fail
                )
            return BaselineLimit(found, None)

        return find

    # the saved run

    def _find_baseline(self, which: str) -> None:
        from pytest_gpubench.results.baseline import Baseline
        from pytest_gpubench.results.provenance import minute_text

        if is_worker(self.config):
            text = self.config.workerinput.get(BASELINE)  # type: ignore[attr-defined] # xdist puts it there
            self.baseline = None if text is None else Baseline.decode(text)
            return
        from pytest_gpubench.results.store import Storage, read_run

        storage = Storage(Path(self.settings.storage))
        try:
            storage.runs()  # a storage that cannot be read is no storage without the run
            paths = self._paths(storage, which)
            runs = [(path, read_run(path)) for path in paths]
        except BadFile as error:
            raise BadRequest(f"{flag_name('compare')}={which}: {error}") from None
        if not runs:
            return
        self.baseline = Baseline([(run.name or path.stem, run) for path, run in runs])
        self._compared = [f"{path} of {minute_text(run.datetime)}" for path, run in runs]
        if self.settings.html is not None:
            self._past = [run for _, run in runs]

    def _paths(self, storage: "Storage", which: str) -> list[Path]:
        """Return the files to compare with; none where there is nothing, and that is allowed."""
        tests = BadFile(f"these are tests and no saved run; in front of them, write {flag_name('compare')}=latest")
        try:
            paths = storage.find(which)
        except BadFile as error:
            if os.path.isdir(which) or "::" in which or which.endswith(".py"):
                raise tests from None
            if self.settings.missing_baseline == "fail":
                raise
            self._no_baseline = f"compared with nothing: {error}"
            return []
        if which.endswith(".py") and paths == [Path(which)]:
            raise tests
        return paths

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note which tests there are: none of them is an old name of another."""
        self._collected.add(item.nodeid)

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
        """Note where perf tests are, and what those that fail say."""
        is_perf = hasattr(report, "gpu_bench") or report.nodeid in self.gathering.selected
        if not is_perf or is_worker(self.config):
            return
        path, index, _ = report.location
        line = None if index is None else index + 1
        if report.when == "setup":
            self._failures.pop(report.nodeid, None)  # of a run before, as with --reruns
        self._places.setdefault(report.nodeid, (str(self.config.rootpath / path), line))
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            if crash is not None and Path(crash.path).resolve() == (self.config.rootpath / path).resolve():
                line = crash.lineno
            text = crash.message if crash is not None else str(report.longrepr)
            self._failures.setdefault(report.nodeid, (line, text.removeprefix(OWN_ERRORS)))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what was asked for; what cannot be written fails the run, after all else has been tried."""
        if is_worker(self.config) or is_dry(session.config):
            return
        interrupted = session.exitstatus == pytest.ExitCode.INTERRUPTED
        writes: list[Callable[[], None]] = [self._write_json, lambda: self._save(interrupted)]
        writes += [self._write_html, self._write_markdown, self._write_traces]
        for write in writes:
            try:
                write()
            except Exception as error:  # whatever it is, it must not cost the table or the other files
                known = isinstance(error, (BadFile, BadRequest, OSError))
                self._lines.append((str(error) if known else f"{type(error).__name__}: {error}", True))
                if session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._write_step_summary()

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Say what was compared with nothing and what was written where, and show CI which lines failed."""
        if is_worker(self.config):
            return
        for line in self._uncompared():
            terminalreporter.write_line(f"gpu_bench: {line}", yellow=True)
        for line, failed in self._lines:
            terminalreporter.write_line(f"gpu_bench: {line}", red=failed)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for line in self._annotations():
                terminalreporter.write_line(line)

    def _uncompared(self) -> list[str]:
        """Return, in a line at most, that no test was compared where that was asked for."""
        records = self.gathering.records
        if self.settings.disable or not has_numbers(records):
            return []
        if self._no_baseline is not None:
            return [self._no_baseline] if self.settings.missing_baseline == "warn" else []
        if self.settings.compare is None:
            limit = self.settings.compare_fail
            return [f"compare_fail={limit} was not judged: give {flag_name('compare')} too"] if limit else []
        if any(item.change is not None for record in records for item in record.measurements):
            return []
        names = ", ".join(self.baseline.names if self.baseline is not None else ())
        return [f"compared with {names}: none of {count(len(records), 'test')}"]

    def _run(self) -> "SavedRun":
        """Return the run as it ended: one time and one look at the commit for all that is written."""
        if self._ended is None:
            self._ended = self._look_back()
        return self._ended

    def _look_back(self) -> "SavedRun":
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

    def _save(self, interrupted: bool) -> None:
        if self.settings.save is None and not self.settings.autosave:
            return
        if not has_numbers(self.gathering.records):
            if self.settings.save is not None:
                raise BadFile(f"{flag_name('save')}={self.settings.save}: nothing was measured, so nothing is saved")
            return
        from pytest_gpubench.results.store import Storage

        self._saved = Storage(Path(self.settings.storage)).save_each(self._run(), self.settings.save or "")
        part = f": {count(len(self.gathering.records), 'test')}, as the run was interrupted" if interrupted else ""
        self._lines.append((f"saved as {', '.join(map(str, self._saved))}{part}", False))

    def _write_html(self) -> None:
        if self.settings.html is None:
            return
        from pytest_gpubench.report.html.page import html_page
        from pytest_gpubench.results.files import write_text

        text = html_page(self._run(), joined(self._past), self._history())
        write_text(text, Path(self.settings.html))
        self._lines.append((f"page written to {self.settings.html}", False))

    def _history(self) -> "list[SavedRun]":
        """Return the latest saved runs of the GPUs of this run, without itself."""
        from pytest_gpubench.results.store import Storage, read_run

        storage, past = Storage(Path(self.settings.storage)), []
        models = sorted({record.device.name for record in self._run().records})
        try:
            stored = [one for model in models for one in storage.runs(model)[-HISTORY_RUNS:]]
        except BadFile as error:
            self._lines.append((f"the page shows no history: {error}", False))
            return []
        for one in stored:
            if one.path in self._saved:
                continue
            try:
                past.append(read_run(one.path))
            except BadFile as error:
                self._lines.append((f"left out of the page: {error}", False))
        return past

    def _write_markdown(self) -> None:
        if self.settings.markdown is not None:
            from pytest_gpubench.results.files import write_text

            write_text(self._summary(), Path(self.settings.markdown))
            self._lines.append((f"summary written to {self.settings.markdown}", False))

    def _write_step_summary(self) -> None:
        """Add the summary to that of the step of GitHub Actions; nobody asked for it, so the run can do without."""
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if not path or self.settings.markdown is not None or not (self.gathering.records or self._failures):
            return
        try:
            append(self._summary(), path)
        except Exception as error:
            self._lines.append((f"no summary in GITHUB_STEP_SUMMARY: {error}", False))

    def _summary(self) -> str:
        from pytest_gpubench.report.markdown import markdown_summary

        return markdown_summary(self._run(), {nodeid: text for nodeid, (_, text) in self._failures.items()})

    def _write_traces(self) -> None:
        if self.settings.trace is None or not self.gathering.records:
            return
        from pytest_gpubench.report.trace_summary import write_summary

        write_summary(Path(self.settings.trace), self.gathering.records)
        folder = Path(self.settings.trace)
        number = len(list(folder.rglob("*.json.gz")))
        said = f"{count(number, 'trace')} and a summary are in {folder}" if number else self._no_trace(folder)
        self._lines.append((said, False))

    def _no_trace(self, folder: Path) -> str:
        """Return that no trace was taken, and why as far as it can be told: what first stood in the way."""
        records = self.gathering.records
        told = [text for record in records for text in record.warnings if text.startswith(NO_TRACE)]
        if self.settings.timer == "scripted":
            told.append("the scripted timer runs nothing")
        timings = [item.timing for record in records for item in record.measurements]
        told += [f"{each.label!r} was not measured: {each.unmeasured}" for each in timings if not each.measured]
        return f"no trace was taken{': ' if told else ''}{printable(''.join(told[:1]))}; see {folder}"

    def _annotations(self) -> list[str]:
        from pytest_gpubench.report.annotations import Place, github_lines

        places = [Place(self._places[nodeid][0], line, nodeid, text) for nodeid, (line, text) in self._failures.items()]
        for record in self.gathering.records:
            path, line = self._places.get(record.nodeid, ("", None))
            told = open_sentences(record) if record.nodeid not in self._failures else []
            places += [Place(path, line, record.nodeid, sentence, "warning") for sentence in told]
        return github_lines(places, os.environ.get("GITHUB_WORKSPACE") or str(self.config.rootpath))


def refuse_empty(config: pytest.Config) -> None:
    """Raise BadRequest for an option whose value is empty, as of a variable that is not set: it would guard nothing."""
    for name in ("save", "compare", "compare_fail"):
        if config.getoption(ini_name(name), None) == "":
            raise BadRequest(f"{flag_name(name)} was given an empty value: name one, or leave the option out")


def refuse_lonely(config: pytest.Config) -> None:
    """Raise BadRequest for a tolerance on the command line where there is nothing to hold it against."""
    given = config.getoption(ini_name("compare_fail"), None)
    if given is not None:
        raise BadRequest(f"{flag_name('compare_fail')}={given} compares with nothing: give {flag_name('compare')} too")


def has_numbers(records: "Iterable[TestRecord]") -> bool:
    """Tell whether anything was measured."""
    return any(item.timing.measured for record in records for item in record.measurements)


def open_sentences(record: "TestRecord") -> list[str]:
    """Return what a test's undecided limits say, as far as it warns of them."""
    from pytest_gpubench.results.model import Outcome

    verdicts = [verdict for item in record.measurements for verdict in item.verdicts]
    undecided = [verdict.sentence for verdict in verdicts if verdict.outcome is Outcome.INCONCLUSIVE]
    return [sentence for sentence in undecided if sentence in record.warnings]


def joined(runs: "Sequence[SavedRun]") -> "SavedRun | None":
    """Return the runs on several GPU models as one; None where there are none."""
    if not runs:
        return None
    import msgspec

    return msgspec.structs.replace(runs[0], records=tuple(record for run in runs for record in run.records))


def append(text: str, path: str) -> None:
    """Add a text to a file; raise BadFile where that is impossible."""
    from pytest_gpubench.results.files import explaining_os_errors

    data = text.encode(errors="backslashreplace")
    with explaining_os_errors(Path(path), "written"), open(path, "ab") as file:
        file.write(data)
