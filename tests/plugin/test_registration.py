"""Runs that need our hooks have them, and no other run pays for them."""

from pathlib import Path

import pytest

from tests.plugin.conftest import HEAD

ENTRY = """
    bounds counters errors metrics plugin.hooks plugin.items plugin.options settings settings.cache
    settings.parsers spelling stats stats.tolerance units gpu gpu.visible gpu.nvml plugin
"""
"""Our modules in a run without perf tests."""
HEAVY = {"torch", "triton", "pynvml", "msgspec", "rich", "hypothesis"}
SHOW = """
import sys

def pytest_unconfigure(config):
    print("\\nHOOKS", config.pluginmanager.hasplugin("gpu_bench_lifecycle"))
    print("\\nMODULES", *sys.modules)
"""
PLAIN = "def test_plain(): pass\n"
PERF = "def test_perf(gpu_bench): pass\n"
MARKED = "import pytest\n@pytest.mark.{}\ndef test_marked(): pass\n"


def test_a_run_without_perf_tests_imports_the_entry_only(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SHOW)
    pytester.makepyfile(PLAIN)
    lines = pytester.runpytest_subprocess("-p", "no:cacheprovider").stdout.lines
    (modules,) = (line.split()[1:] for line in lines if line.startswith("MODULES"))
    ours = {name.removeprefix("pytest_gpubench.") for name in modules if name.startswith("pytest_gpubench.")}
    assert ours == set(ENTRY.split())
    assert not HEAVY & set(modules)
    assert "HOOKS False" in lines


@pytest.mark.parametrize(
    ("source", "argument", "expected"),
    [
        (PLAIN, "-q", False),
        (PLAIN + PERF, "-q", True),
        (PLAIN + PERF, "-mnot perf", False),
        (MARKED.format("perf"), "-q", True),
        (MARKED.format("gpu_turn"), "-q", True),
        (MARKED.format("skip"), "-q", False),
        (PLAIN, "--gpu-bench-device=cpu", True),
        (PLAIN, "-ogpu_bench_device=cpu", True),
        (PLAIN, "GPU_BENCH_DEVICE", True),
        (PLAIN, "GPU_BENCHES", False),
        (PLAIN, "tox.ini", True),
    ],
)
def test_hooks_are_registered_where_they_are_needed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, source: str, argument: str, expected: bool
) -> None:
    pytester.makeconftest(SHOW)
    pytester.makepyfile(source)
    if argument == "tox.ini":
        pytester.makeini("[pytest]\ngpu_bench_device = cpu")
    elif not argument.startswith("-"):
        monkeypatch.setenv(argument, "cpu")
    lines = pytester.runpytest(*([argument] if argument.startswith("-") else [])).stdout.lines
    assert ("HOOKS True" in lines) is expected


@pytest.mark.usefixtures("forked")
def test_under_xdist_all_processes_have_them_before_tests_are_known(pytester: pytest.Pytester) -> None:
    """The controller collects no tests, and a worker may be told by it which to collect."""
    pytester.makeconftest(
        """
from pathlib import Path

def pytest_sessionstart(session):
    if session.config.pluginmanager.hasplugin("gpu_bench_lifecycle"):
        Path("worker" if hasattr(session.config, "workerinput") else "controller").touch()
"""
    )
    pytester.makepyfile(PLAIN)
    pytester.runpytest_inprocess("-n1", "-p", "xdist").assert_outcomes(passed=1)
    assert Path("controller").exists()
    assert Path("worker").exists()


def test_hooks_that_are_registered_after_the_collection_miss_nothing(pytester: pytest.Pytester) -> None:
    """The marks of a conftest are put on after those of the file, and the last of them decides."""
    pytester.makeconftest(
        """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        if item.name == "test_late":
            item.add_marker(pytest.mark.perf(timer="scripted", max_time_us=15))
"""
    )
    pytester.makepyfile(
        HEAD
        + PLAIN
        + """
@pytest.mark.perf(timer="scripted", max_time_us=15)
def test_fast(gpu_bench): gpu_bench(fast)
def test_late(gpu_bench): gpu_bench(slow)
"""
    )
    result = pytester.runpytest()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["gpu_bench: 0.1.0, *", "*LimitBroken: slow is too slow*", "gpu_bench: limits: 1 pass, 1 fail"]
    )
