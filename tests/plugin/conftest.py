import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

import _pytest.config
import pytest
import torch  # noqa: F401 # before the garbage collector is told to pass over what is imported

from pytest_gpubench.results.model import TestRecord
from tests import fork_server

UNUSED = ("doctest", "faulthandler", "legacypath", "logging", "pastebin", "stepwise")
"""Plugins of pytest's own that no test is about."""

RunResult = pytest.RunResult
BenchRun = Callable[..., RunResult]

HEAD = """
import pytest
from pytest_gpubench import scripted

@scripted([10.0, 10.1, 9.9])
def fast(*args): return 0

@scripted([20.0, 20.2, 19.8])
def slow(*args): return 0
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")  # an empty list of GPUs stays: it hides those of this machine
    monkeypatch.setenv("COLUMNS", "1000")  # no sentence is broken into lines


@pytest.fixture(autouse=True)
def without_autoload(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load our plugin and no other that is installed, and few of pytest's: the rest takes a third of a small run."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_gpubench.plugin.hooks")
    few = tuple(name for name in _pytest.config.default_plugins if name not in UNUSED)
    monkeypatch.setattr(_pytest.config, "default_plugins", few)


@pytest.fixture
def stubbed_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that are started have a torch that is there at once: scripted functions need none."""
    monkeypatch.setattr("subprocess.Popen", fork_server.Popen)
    monkeypatch.setenv("GPU_BENCH_DEVICE", "cpu")


def plugins_for(source: str, arguments: Sequence[str]) -> list[str]:
    """Return the options that load the plugins which a run needs beside ours."""
    needed = ["_hypothesis_pytestplugin"] if "hypothesis" in source else []
    if any(each.startswith("-n") for each in arguments):
        needed.append("xdist")
    return [f"-p{name}" for name in needed]


@pytest.fixture
def bench_run(pytester: pytest.Pytester) -> BenchRun:
    """Run a test file in the current folder whose functions are scripted; `fast` takes 10 us, `slow` 20 us.

    interrupted: a test of it raises KeyboardInterrupt. Other keywords are environment variables.
    """

    def run(source: str, *args: str, timer: str = "scripted", interrupted: bool = False, **variables: str) -> RunResult:
        pytester.makepyfile(HEAD + source)
        arguments = [*plugins_for(source, args), f"--gpu-bench-timer={timer}", *args]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            return pytester.runpytest_inprocess(*arguments, no_reraise_ctrlc=interrupted)

    return run


class Recorder:
    def __init__(self) -> None:
        self.records: list[TestRecord] = []
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        from pytest_gpubench.results.model import decode

        self.reports.append(report)
        text = getattr(report, "gpu_bench", None)
        if text is not None:
            self.records.append(decode(text))

    @property
    def call(self) -> pytest.TestReport:
        (report,) = (report for report in self.reports if report.when == "call")
        return report


RecordRun = Callable[..., Recorder]


@pytest.fixture
def record_run(pytester: pytest.Pytester) -> RecordRun:
    """Run a test file in this process and return what it recorded."""

    def run(source: str, *args: str) -> Recorder:
        pytester.makepyfile(HEAD + source)
        recorder = Recorder()
        arguments = ["--gpu-bench-timer=scripted", *args]
        pytester.inline_run(*plugins_for(source, args), *arguments, plugins=[cast(Any, recorder)])
        return recorder

    return run


RunRows = Callable[..., list[pytest.TestReport]]


@pytest.fixture
def run_rows(record_run: RecordRun) -> RunRows:
    """Run tests that are each named `test_it` as one file; return the report of each one's call, or failed setup."""

    def run(head: str, tests: Iterable[str], *args: str) -> list[pytest.TestReport]:
        named = [test.replace("test_it", f"test_{at}") for at, test in enumerate(tests)]
        reports = record_run("\n".join([head, *named]), *args).reports
        return [each for each in reports if each.when == "call" or (each.when == "setup" and each.failed)]

    return run


def assert_fails(report: pytest.TestReport, *sentences: str) -> None:
    """Assert that a test failed with these lines in its report; * and ? stand for others."""
    assert report.failed, report.nodeid
    for sentence in sentences:
        assert any(fnmatchcase(line, sentence) for line in report.longreprtext.splitlines()), report.longreprtext


CheckRows = Callable[..., list[pytest.TestReport]]


@pytest.fixture
def check_rows(run_rows: RunRows) -> CheckRows:
    """Run tests as one file: each passes where it has None, or fails with a line that ends as its pattern says."""

    def check(head: str, tests: Mapping[str, str | None], *args: str) -> list[pytest.TestReport]:
        reports = run_rows(head, tests, *args)
        for report, line in zip(reports, tests.values(), strict=True):
            if line is None:
                assert report.passed, report.longreprtext
            else:
                assert_fails(report, f"*{line}")
        return reports

    return check
