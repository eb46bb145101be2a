"""What a CUDA error that does not go away takes with it: the test that made it, and nothing else."""

import os
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from pytest_gpubench.errors import NotMeasured
from pytest_gpubench.gpu.context import context_error, may_be_cuda_error

EXIT_CODE = 70


def leave() -> None:
    """End this worker at once: what it has sent is sent, and a dead context can hang whoever ends in order."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)


class Containment:
    """The hooks that notice a broken CUDA context, and keep it from failing tests that did not break it."""

    def __init__(self, is_worker: bool, uses_gpu: Callable[[pytest.Item], bool]) -> None:
        self.is_worker = is_worker
        self.uses_gpu = uses_gpu
        self.culprit: str | None = None
        self._culprits: dict[object, str] = {}
        """In the controller: who broke the context of a worker, by its node."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """End a worker whose context is broken before its next test: xdist starts another, which runs that test."""
        if self.is_worker and self.culprit is not None:
            leave()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Leave out the tests of a GPU that cannot be used any more in this process."""
        if self.culprit is not None and self.uses_gpu(item):
            raise NotMeasured(self._not_run())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail the test whose work on the GPU fails when it is over, not the next one."""
        result = yield
        if self.culprit is None and self.uses_gpu(item) and (error := context_error()):
            pytest.fail(f"what this test left running on the GPU failed: {error}", pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note who broke the context, and in its report what follows."""
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        if self.culprit == item.nodeid or not report.failed or not may_be_cuda_error(error):
            return report
        if self.culprit is not None:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {self._not_run()}")
        elif broken := context_error():
            self.culprit = item.nodeid
            report.gpu_bench_broke = True  # type: ignore[attr-defined] # pytest carries attributes it does not know
            report.sections.append(("gpu_bench", f"the CUDA context is broken ({broken}): {self._what_follows()}"))
        return report

    def _not_run(self) -> str:
        return f"not run: {self.culprit} broke the CUDA context of this process"

    def _what_follows(self) -> str:
        if self.is_worker:
            return "this worker was ended, and xdist starts another"
        return "the other tests of the GPU are not run; with xdist (-n 1) they would be, in a new process"

    # the controller

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whose worker is about to end."""
        if getattr(report, "gpu_bench_broke", False):
            self._culprits[getattr(report, "node", None)] = report.nodeid

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        """Take back xdist's report that a test crashed which a worker did not begin any more, and have it run."""
        culprit = self._culprits.get(getattr(report, "node", None))
        if culprit is None:
            return
        if run_again(sched, crashitem):
            report.outcome = "passed"
            report.gpu_bench_contained = True  # type: ignore[attr-defined]
        else:
            report.longrepr = f"not run: {culprit} broke the CUDA context of its worker"

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Do not count what was taken back."""
        return ("", "", "") if getattr(report, "gpu_bench_contained", False) else None


class JUnitFile:
    """The hook that keeps reports that were taken back out of the JUnit file; after that file's own."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remove the entry that pytest made for a test that has yet to run."""
        if not getattr(report, "gpu_bench_contained", False):
            return
        for plugin in self.config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "LogXML":
                remove_entry(plugin, report)


def run_again(sched: Any, nodeid: str) -> bool:
    """Have one of xdist's schedulers run a test in another worker; return whether it does."""
    if hasattr(sched, "workqueue"):  # loadscope and loadfile do so by themselves with all that was not completed
        return True
    try:
        sched.mark_test_pending(nodeid)
    except NotImplementedError:
        return False
    return True


def remove_entry(xml: Any, report: pytest.TestReport) -> None:
    """Remove the entry that was last begun for a test."""
    entry = xml.node_reporter(report)
    xml.node_reporters = {key: other for key, other in xml.node_reporters.items() if other is not entry}
    xml.node_reporters_ordered = [other for other in xml.node_reporters_ordered if other is not entry]
