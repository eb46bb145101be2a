"""SIGTERM and SIGHUP: what is finished is written, and the process ends."""

import signal
import sys
from pathlib import Path

import pytest

from pytest_gpubench.results.store import read_run
from tests.plugin.conftest import HEAD

pytestmark = pytest.mark.usefixtures("forked")
ONE_FINISHED = """
import ctypes, multiprocessing, os, signal, threading, time
from pytest_gpubench.plugin import end_signals

def test_finished(gpu_bench): gpu_bench(fast)

def test_other(gpu_bench):
    gpu_bench(fast)
    {body}

def test_later(gpu_bench): gpu_bench(fast)
"""
STUCK = "ctypes.CDLL(None).system(b'kill -TERM $PPID; while kill -0 $PPID; do sleep 0.1; done')"
"""Python handles no signal before `system` returns."""


def ended(pytester: pytest.Pytester, body: str, *options: str) -> tuple[int, list[str]]:
    path = pytester.makepyfile(HEAD + ONE_FINISHED.format(body=body))
    all_options = ("--gpu-bench-timer=scripted", "--gpu-bench-device=cpu", "--gpu-bench-json=run.json", *options)
    status = int(pytester.runpytest_subprocess(path, *all_options).ret)
    file = Path("run.json")
    records = read_run(file).records if file.exists() else ()
    return status, [record.nodeid.rpartition("::")[2] for record in records]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_is_finished_is_written_and_saved(pytester: pytest.Pytester, number: signal.Signals) -> None:
    status, tests = ended(pytester, f"signal.raise_signal({int(number)}); time.sleep(60)", "--gpu-bench-save=main")
    assert (status, tests) == (pytest.ExitCode.INTERRUPTED, ["test_finished", "test_other"])
    assert len(list(pytester.path.glob(".gpu_benchmarks/*/0001_main.json"))) == 1


FORK = "process = multiprocessing.get_context('fork').Process(target=time.sleep, args=(30,)); "
SIGNALLED = "process.terminate(); process.join(); assert process.exitcode == -15; time.sleep(0.3)"
IN_CHILD = "import os, signal\nos.register_at_fork(after_in_child=lambda: signal.raise_signal(15))"
HANGUP = "signal.raise_signal(signal.SIGHUP)"
STARTED = "process.start(); "
STARTED_IN_THREAD = "t = threading.Thread(target=process.start); t.start(); t.join(); "


@pytest.mark.parametrize(
    ("conftest", "body", "ends"),
    [
        ("", STUCK, (128 + signal.SIGTERM, 1)),
        ("", f"{FORK}{STARTED}{SIGNALLED}", (0, 3)),
        ("", f"{FORK}{STARTED_IN_THREAD}{SIGNALLED}", (0, 3)),
        (IN_CHILD, f"{FORK}{STARTED}{SIGNALLED}", (0, 3)),
        ("import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)", HANGUP, (0, 3)),
        ("import signal\nsignal.signal(signal.SIGHUP, lambda *_: None)", HANGUP, (0, 3)),
        ("def pytest_sessionfinish(): __import__('time').sleep(1)", HANGUP, (pytest.ExitCode.INTERRUPTED, 2)),
    ],
    ids=[
        "a stuck main thread",
        "forked",
        "forked in a thread",
        "while it is forked",
        "ignored",
        "handled by another",
        "an end that takes long",
    ],
)
def test_how_a_run_ends_and_how_many_tests_are_written(
    pytester: pytest.Pytester, conftest: str, body: str, ends: tuple[int, int]
) -> None:
    """Another thread ends a process that hangs, as in a kernel; the signal of a forked process is its own."""
    pytester.makeconftest(conftest)
    status, tests = ended(pytester, f"end_signals.STUCK_AFTER_S = 0.1; {body}")
    assert (status, len(tests)) == ends


def test_a_run_that_measures_nothing_ends_at_once(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile("import signal\ndef test_it(): signal.raise_signal(signal.SIGTERM)")
    assert pytester.runpytest_subprocess(path).ret == -signal.SIGTERM


def test_signals_are_left_as_they_were(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=HEAD + "def test_it(gpu_bench): gpu_bench(fast)")
    run = "pytest.main(['-q', 'test_it.py', '--gpu-bench-timer=scripted', '--gpu-bench-device=cpu'])"
    left = "print('left', signal.getsignal(15) == signal.getsignal(1) == signal.SIG_DFL, signal.set_wakeup_fd(-1))"
    result = pytester.run(sys.executable, "-c", f"import pytest, signal\n{run}\n{left}")
    result.stdout.fnmatch_lines(["1 passed*", "left True -1"])
