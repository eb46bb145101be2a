"""Other ways to run pytest: interrupts, xdist, collection only, plugins switched off."""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.conftest import BenchRun

THREE = """
def test_a(gpu_bench): gpu_bench(fast)
@pytest.mark.perf(max_time_us=15)
def test_b(gpu_bench): gpu_bench(slow)
def test_c(gpu_bench): gpu_bench(fast); gpu_bench(slow)
"""


@pytest.mark.parametrize(
    "arguments",
    [["-p", "no:cacheprovider"], ["-p", "no:junitxml"], ["-n0"], ["-p", "no:xdist"]],
)
def test_other_plugins_may_come_and_go(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.delenv("PYTEST_PLUGINS")
    result = bench_run(THREE, *arguments)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["gpu_bench: 4 measurements in 3 tests on *"])


def test_without_a_terminal_reporter(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(gpu_bench): pass")
    assert pytester.runpytest("-p", "no:terminal").ret == 0


def test_importing_the_plugin_loads_nothing_heavy() -> None:
    """No package beyond Python's own and pytest's."""
    code = """
import sys, pytest
before = set(sys.modules)
import pytest_gpubench.plugin.hooks
loaded = {name.split(".")[0] for name in set(sys.modules) - before}
print(*loaded - sys.stdlib_module_names - {"typing_extensions"})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pytest_gpubench"]


@pytest.mark.usefixtures("stubbed_torch")
def test_a_perf_test_needs_no_hypothesis() -> None:
    """Only one under @given loads it."""
    code = "import sys, pytest_gpubench.public_call; print('hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


SLEEPER = """
import time

def test_slow(gpu_bench):
    gpu_bench.measure(lambda: time.sleep(0.2), reps=4, warmup=1, cache="hot", label="sleeper")
"""
TWICE = """
import os, sys, pytest
from pytest_gpubench.plugin import terminal

terminal.PATIENCE_S, terminal.INTERVAL_S = 0.0, 0.01
pytest.main(sys.argv[1:])
os.dup2(os.open("pipe", os.O_WRONLY | os.O_CREAT), 1)
pytest.main(sys.argv[1:])
"""


@pytest.mark.usefixtures("forked")
def test_a_terminal_is_told_what_takes_long_though_output_is_captured(pytester: pytest.Pytester) -> None:
    """On a terminal of its own, as a user has it; what is no terminal is told nothing."""
    pytester.makepyfile(test_slow=SLEEPER)  # a short name leaves room on the line
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", TWICE, "--gpu-bench-device=cpu", "test_slow.py"]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, cwd=pytester.path)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # which is how a terminal that was closed reads on Linux
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.wait() == 0
    assert b" sleeper: measuring, " in shown
    assert "sleeper: measuring" not in (piped := Path("pipe").read_text())
    assert "1 passed" in piped
