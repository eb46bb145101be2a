"""A CUDA error that does not go away: it fails the test that caused it, and no other."""

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from pytest_gpubench.errors import NotMeasured
from pytest_gpubench.gpu.context import context_error, may_be_cuda_error
from pytest_gpubench.plugin.containment import failing
from pytest_gpubench.plugin.items import takes_turns
from pytest_gpubench.plugin.workers import is_worker

EXIT_CODE = 70
WITHOUT_XDIST = "the other tests of the GPU are not run; with xdist (-n 1) they would be, in a new process"


class StickyErrors:
    """The hooks that notice a broken CUDA context, and keep it from failing tests that did not break it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.is_worker = is_worker(config)
        self.culprit: str | None = None
        """The test that broke the context of this process."""
        self._culprits: dict[object, str] = {}
        """In the controller: the tests that broke the context of a worker, by its node."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """End a worker with a broken context before its next test: xdist starts another worker, which runs it.

        It ends at once: its reports are sent, and with a dead context an orderly end can hang.
        """
        if self.is_worker and self.culprit is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(EXIT_CODE)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip the tests of a GPU that this process cannot use any more."""
        if self.culprit is not None and takes_turns(item):
            raise NotMeasured(self._not_run())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail the test whose work on the GPU fails after its end, not the next test."""
        result = yield
        if self.culprit is None and takes_turns(item) and (error := context_error()):
            pytest.fail(f"what this test left running on the GPU failed: {error}", pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note which test broke the context, and add the consequences to its report."""
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        with failing(report):
            if self.culprit == item.nodeid or not report.failed or not may_be_cuda_error(error):
                return report
            if self.culprit is not None:
                report.outcome = "skipped"
                report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {self._not_run()}")
            elif broken := context_error():
                self.culprit = item.nodeid
                report.gpu_bench_broke = True  # type: ignore[attr-defined] # pytest carries attributes it does not know
                follows = "this worker was ended, and xdist starts another" if self.is_worker else WITHOUT_XDIST
                report.sections.append(("gpu_bench", f"the CUDA context is broken ({broken}): {follows}"))
        return report

    def _not_run(self) -> str:
        return f"not run: {self.culprit} broke the CUDA context of this process"

    # the controller

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        """Note which worker is about to end; remove the entry that pytest's JUnit file has for an undone report."""
        if getattr(report, "gpu_bench_broke", False):
            self._culprits[getattr(report, "node", None)] = report.nodeid
        result = yield
        if getattr(report, "gpu_bench_undone", False):
            for plugin in self.config.pluginmanager.get_plugins():
                if type(plugin).__name__ == "LogXML":
                    with suppress(Exception):  # one that is not pytest's
                        self._remove_entry(plugin, report)
        return result

    @staticmethod
    def _remove_entry(xml: Any, report: pytest.TestReport) -> None:
        own = xml.node_reporter(report)
        xml.node_reporters = {key: each for key, each in xml.node_reporters.items() if each is not own}
        xml.node_reporters_ordered = [each for each in xml.node_reporters_ordered if each is not own]

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Undo xdist's report of a crash in a test that the ending worker did not begin, and run that test."""
        culprit = self._culprits.get(getattr(report, "node", None))
        if culprit is None:
            return
        try:
            if not hasattr(sched, "workqueue"):  # loadscope and loadfile run again all that was not completed
                sched.mark_test_pending(crashitem)
        except NotImplementedError:
            report.longrepr = f"not run: {culprit} broke the CUDA context of its worker"
        else:
            report.outcome = "passed"
            report.gpu_bench_undone = True  # type: ignore[attr-defined]

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Do not count undone reports."""
        return ("", "", "") if getattr(report, "gpu_bench_undone", False) else None
