"""The tests that this run leaves out on purpose: by options, by what the command line names, or as it was stopped."""

import importlib.util
import os
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.plugin.items import is_perf
from pytest_gpubench.plugin.workers import is_distributing, is_worker

LEFT_OUT_KEY = "gpu_bench_left_out"
"""The key under which a worker tells its controller what it deselected and could not collect."""
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
"""The exit statuses of runs that were not interrupted."""


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
            or self._is_ignored(nodeid)
            or not self._is_asked_for(nodeid)
        )

    # hooks

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected."""
        if report.failed:
            self._uncollected.add(report.nodeid)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note the perf tests that were deselected; a test that measures no more is none."""
        self._deselected.update(item.nodeid for item in items if is_perf(item))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which tests are to run; a worker tells its controller what is left out."""
        self._selected.update(item.nodeid for item in session.items)
        if is_worker(self.config):
            output: dict[str, Any] = self.config.workeroutput  # type: ignore[attr-defined] # of xdist
            output[LEFT_OUT_KEY] = [sorted(self._deselected), sorted(self._uncollected)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note which tests are to run."""
        self._selected.update(ids)

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

    def _is_ignored(self, nodeid: str) -> bool:
        """Tell whether --ignore or --ignore-glob leaves out the file of a test."""
        paths = [path := self._file(nodeid), *path.parents]
        ignored = {self._absolute(each) for each in self.config.getoption("ignore", None) or ()}
        globs = [str(self._absolute(each)) for each in self.config.getoption("ignore_glob", None) or ()]
        return any(path in ignored or any(fnmatch(str(path), glob) for glob in globs) for path in paths)

    def _is_asked_for(self, nodeid: str) -> bool:
        """Tell whether the files, folders and node ids of the command line contain a test."""
        if self.config.args_source.name == "TESTPATHS":  # of the ini file, where a folder may be missing too
            return True
        file, (_, _, name) = self._file(nodeid), nodeid.partition("::")
        for argument in self.config.args:
            base, _, inner = argument.partition("::")
            path = self._resolved(base)
            if path in (file, *file.parents) and _is_part(name, inner):
                return True
        return False

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

    def _file(self, nodeid: str) -> Path:
        return Path(os.path.abspath(self.config.rootpath / nodeid.partition("::")[0]))


def _is_part(nodeid: str, whole: str) -> bool:
    """Tell whether a node is another one, or within it: "" and "." are all."""
    return whole in ("", ".", nodeid) or nodeid.startswith((f"{whole}::", f"{whole}/", f"{whole}["))
