"""Saved runs of several sessions, each a process of its own."""

from pathlib import Path

import pytest

from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import read_run
from pytest_gpubench.results.store.storage import count_sessions
from tests.plugin.conftest import BenchRun

SAVED_SESSIONS = 5

pytestmark = pytest.mark.usefixtures("stubbed_torch")

COUNTED = """
import os
from pathlib import Path

PROCESSES = Path("processes")
PROCESSES.mkdir(exist_ok=True)
(PROCESSES / str(os.getpid())).touch()
NUMBER = len(list(PROCESSES.iterdir()))

@scripted([10.0 + NUMBER / 100] * 20)
def candidate(*args): return 0

def test_it(gpu_bench):
    gpu_bench(candidate)
"""
"""Each process is 0.1 % slower than the one before."""


def saved_run() -> SavedRun:
    (path,) = Path(".gpu_benchmarks").glob("*/*.json")
    return read_run(path)


def test_sessions_are_taken_in_fresh_processes_and_kept_whole(bench_run: BenchRun) -> None:
    """The run itself is the last one: it decides how the run ends and writes the other files."""
    options = ("--gpu-bench-save=main", "--gpu-bench-sessions=2", "--junitxml=junit.xml")
    result = bench_run(COUNTED + "    assert NUMBER != 2\n", *options)
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    learnt = "times of most tests differ by 0.* % from process to process, so it can decide * % or more"
    result.stdout.fnmatch_lines(
        [
            "gpu_bench: session 1 of 2: 1 test, * s",
            "gpu_bench: saved as .gpu_benchmarks/*/0001_main.json (session 2)",
            f"gpu_bench: .gpu_benchmarks/*/0001_main.json has 2 sessions: {learnt}",
        ]
    )
    run = saved_run()
    timings = [record.measurements[0].timing for record in (*run.earlier, *run.records)]
    assert [timing.median_us for timing in timings] == [10.01, 10.02]
    assert len({timing.reps for timing in timings}) == 1
    assert "assert 2 != 2" in Path("junit.xml").read_text()
    assert "test_it" in Path(".pytest_cache/v/cache/lastfailed").read_text()


def test_five_sessions_are_taken_of_the_perf_tests(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.plugin.sessions.SAME_IN_EVERY_PROCESS", ())
    plain = "\ndef test_plain():\n    with open('plain', 'a') as file: file.write('x')\n"
    bench_run(COUNTED + plain, "--gpu-bench-save=main").assert_outcomes(passed=2)
    assert count_sessions(saved_run()) == SAVED_SESSIONS
    assert Path("plain").read_text() == "x"
    result = bench_run(plain, "--gpu-bench-save=main", "-k", "plain")
    result.stdout.fnmatch_lines(["gpu_bench: session 1 of 5: nothing was measured*"])
    result.stdout.no_fnmatch_line("*session 2*")
    for option in ("--gpu-bench-skip", "--gpu-bench-disable", "--collect-only", "--setup-plan"):
        bench_run(COUNTED, "--gpu-bench-save=other", option).stdout.no_fnmatch_line("*session 1 of*")
    for once in (("--gpu-bench-save=main", "--gpu-bench-sessions=1"), ("--gpu-bench-autosave",)):
        bench_run(COUNTED, *once).stdout.no_fnmatch_line("*session 1 of*")


@pytest.mark.slow
def test_sessions_have_workers_of_their_own(bench_run: BenchRun) -> None:
    result = bench_run(COUNTED, "--gpu-bench-save=main", "--gpu-bench-sessions=2", "-n1")
    result.assert_outcomes(passed=1)
    run = saved_run()
    assert count_sessions(run) == 2
    assert [record.worker for record in (*run.earlier, *run.records)] == ["gw0", "gw0"]
    options = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:0.1%", "--gpu-bench-sessions=2", "-n1")
    bench_run(COUNTED, *options).stdout.fnmatch_lines(["*reps in each of 2 and 2 sessions*"])


def test_a_session_that_cannot_be_taken_fails_the_run_and_loses_nothing(bench_run: BenchRun) -> None:
    source = COUNTED + "\nif NUMBER == 1:\n    print('no more'); os._exit(7)\n"
    result = bench_run(source, "--gpu-bench-save=main", "--gpu-bench-sessions=3")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["gpu_bench: session 1 of 3: nothing was measured (exit status 7); it ended with:*"])
    result.stdout.no_fnmatch_line("*session 2*")
    assert count_sessions(saved_run()) == 1


def test_a_further_session_only_measures(bench_run: BenchRun) -> None:
    variables = {"PYTEST_GPUBENCH_SESSION": "results.json", "GPU_BENCH_AUTOSAVE": "1"}
    options = ["--gpu-bench-save=main", "--gpu-bench-sessions=5", "--gpu-bench-compare=no such run"]
    options += ["--gpu-bench-compare-fail=median:1%", "--gpu-bench-markdown=run.md", "--junitxml=junit.xml"]
    inner = "    assert 'PYTEST_GPUBENCH_SESSION' not in os.environ\n"
    bench_run(COUNTED + inner, *options, "--gpu-bench-json=other.json", **variables).assert_outcomes(passed=1)
    assert len(read_run(Path("results.json")).records) == 1
    for name in (".gpu_benchmarks", "run.md", "junit.xml", "other.json"):
        assert not Path(name).exists()


def test_all_sessions_are_compared_with_all_saved_ones(bench_run: BenchRun) -> None:
    """The run itself, the last of two processes, is 15 % slower: alone it would FAIL. The other is at the limit."""
    Path("conftest.py").write_text("import os\nIS_LAST = 'PYTEST_GPUBENCH_SESSION' not in os.environ\n")
    bench_run(COUNTED, "--gpu-bench-save=main")
    slower = "from conftest import IS_LAST\n" + COUNTED.replace("10.0 + NUMBER / 100", "11.0 + IS_LAST / 2")
    options = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:10%")
    bench_run(slower, *options).assert_outcomes(failed=1)
    result = bench_run(slower, *options, "--gpu-bench-sessions=2")
    told = "*too close to*in each of 2 and 1 sessions, 99.9 % interval*"
    result.stdout.fnmatch_lines(["gpu_bench: session 1 of 2: 1 test,*", told, "*1 inconclusive in*"])
    assert count_sessions(saved_run()) == 1


def test_sessions_of_what_is_neither_saved_nor_compared_are_refused(bench_run: BenchRun) -> None:
    result = bench_run(COUNTED, "--gpu-bench-sessions=2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*takes sessions of a run that is saved or compared: give *save=NAME or *compare=NAME*"]
    )
