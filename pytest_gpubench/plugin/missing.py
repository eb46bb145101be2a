"""The perf tests of the saved run that are not in this run, although it did not leave them out on purpose."""

import importlib.util
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.plugin.baseline import ComparedRun
from pytest_gpubench.plugin.containment import ExitStatus
from pytest_gpubench.plugin.items import is_perf
from pytest_gpubench.plugin.results import Results
from pytest_gpubench.plugin.workers import is_distributing, is_dry, is_worker, without_group
from pytest_gpubench.results.baseline import Baseline, is_same_model
from pytest_gpubench.results.model import TestRecord
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import count, first_few

LEFT_OUT_KEY = "gpu_bench_left_out"
"""The key under which a worker tells its controller what it deselected and could not collect."""
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""The exit statuses of runs that were not interrupted."""
MOST_MISSING = 20


@dataclass(eq=False, repr=False)
class MissingTests:
    """The hooks that name what is missing at the end of the run."""

    config: pytest.Config
    settings: Settings
    compared: ComparedRun
    results: Results
    left_out: "LeftOut"
    status: ExitStatus
    found: list[str] = field(default_factory=list)
    """At the end of the run: each test that is missing, or `test: function` for one that measures less."""
    _records: dict[str, TestRecord] = field(default_factory=dict)
    """The record of each test that measured, at the end of the run."""

    def is_gone(self, nodeid: str) -> bool:
        """Tell whether a test neither measured nor failed nor was skipped, and was not left out."""
        if nodeid in self.results.ended:
            return self.results.ended[nodeid] == "passed" and nodeid not in self._records
        return not self.left_out.has(nodeid)

    # hooks

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Find what is missing; fail the run if --gpu-bench-missing says so."""
        self._records = {record.nodeid: record for record in self.results.records}
        baseline, action = self.compared.baseline, self.settings.missing
        if baseline is None or is_worker(self.config) or is_dry(self.config) or action == "ignore":
            return
        self.found = list(dict.fromkeys(self._missing(baseline)))
        if self.found:
            sentence = (
                f"{count(len(self.found), 'test')} of the baseline {', '.join(map(repr, baseline.names))} not in this "
                f"run: {first_few(self.found, MOST_MISSING)}; if that is meant, save a new run, or give "
                "--gpu-bench-missing=ignore"
            )
            if action == "fail":
                self.status.fail(sentence)
            else:
                self.status.say(sentence, yellow=True)

    # what is missing

    def _missing(self, baseline: Baseline) -> Iterator[str]:
        """Yield the tests that are gone, and what others measure no more."""
        here = {record.device for record in self._records.values()}
        for past in baseline.tests():
            if here and not any(is_same_model(past.device, each) for each in here):
                continue
            if self.is_gone(past.nodeid):
                yield past.nodeid
            elif self.results.ended.get(past.nodeid) == "passed":
                record = self._records[past.nodeid]
                if past.source and record.source not in ("", past.source):
                    continue  # a test that was changed is NOT JUDGED for that
                then, now = (
                    Counter(each.timing.label for each in measurements if each.timing.measured and not each.example)
                    for measurements in (past.measurements, record.measurements)
                )
                yield from (f"{past.nodeid}: {label}" for label in (then - now).elements())


class LeftOut:
    """The hooks that note what is deselected, what could not be collected, and whether the run was stopped."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._deselected: set[str] = set()
        self._uncollected: set[str] = set()
        """Files, classes and folders whose collection failed."""
        self._selected: set[str] = set()
        self._stopped = False
        self._is_known = not is_distributing(config)
        """False until a worker has told what it left out."""

    def has(self, nodeid: str) -> bool:
        """Tell whether a test was left out; True for all where no worker has told. Known at the end of the run."""
        return (
            not self._is_known
            or bool(self.config.getoption("lf", False))  # leaves out whole files, and tells nobody
            or nodeid in self._deselected
            or any(_is_part(nodeid, each) for each in self._uncollected)
            or (self._stopped and nodeid in self._selected)
            or not self._is_asked_for(nodeid)
        )

    # hooks

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected."""
        if report.failed:
            self._uncollected.add(report.nodeid)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note the perf tests that were deselected; a test that measures no more is none."""
        self._deselected.update(without_group(item.nodeid) for item in items if is_perf(item))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which tests are to run; a worker tells its controller what is left out."""
        self._selected.update(item.nodeid for item in session.items)
        if is_worker(self.config):
            output: dict[str, Any] = self.config.workeroutput  # type: ignore[attr-defined] # of xdist
            output[LEFT_OUT_KEY] = [sorted(self._deselected), sorted(self._uncollected)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note which tests are to run."""
        self._selected.update(map(without_group, ids))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Read what a worker left out; one that died tells nothing."""
        if told := getattr(node, "workeroutput", {}).get(LEFT_OUT_KEY):
            self._is_known = True
            self._deselected.update(told[0])
            self._uncollected.update(told[1])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Note whether the run was stopped."""
        self._stopped = bool(session.shouldstop or session.shouldfail) or session.exitstatus not in ENDED

    # the command line

    def _is_asked_for(self, nodeid: str) -> bool:
        """Tell whether files, folders and node ids of the command line contain a test that no --ignore leaves out."""
        base, _, name = nodeid.partition("::")
        file = Path(os.path.abspath(self.config.rootpath / base))
        paths = file, *file.parents
        ignored = [self._absolute(each) for each in self.config.getoption("ignore", None) or ()]
        globs = [str(self._absolute(each)) for each in self.config.getoption("ignore_glob", None) or ()]
        if any(path in ignored or any(fnmatch(str(path), glob) for glob in globs) for path in paths):
            return False
        if self.config.args_source.name == "TESTPATHS":  # of the ini file, where a folder may be missing too
            return True
        arguments = (argument.partition("::") for argument in self.config.args)
        return any(self._resolved(base) in paths and _is_part(name, inner) for base, _, inner in arguments)

    def _resolved(self, argument: str) -> Path:
        """Return the path that an argument names, which with --pyargs may be a module."""
        path = self._absolute(argument)
        if not path.exists() and self.config.getoption("pyargs", False):
            with suppress(ImportError, ValueError):
                spec = importlib.util.find_spec(argument)
                places = [] if spec is None else spec.submodule_search_locations or [spec.origin or ""]
                return Path(next(iter(places), path))
        return path

    def _absolute(self, path: str | Path) -> Path:
        return Path(os.path.abspath(self.config.invocation_params.dir / path))


def _is_part(nodeid: str, whole: str) -> bool:
    """Tell whether a node is another one, or within it: "" and "." are all."""
    return whole in ("", ".", nodeid) or nodeid.startswith((f"{whole}::", f"{whole}/", f"{whole}["))
