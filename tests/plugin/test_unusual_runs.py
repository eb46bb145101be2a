"""Tests with subtests, reruns, marks added while they run, threads and xfail."""

import json
from pathlib import Path

import pytest

from tests.plugin.conftest import BenchRun, CheckRows, RecordRun

ON_CPU = "--gpu-bench-device=cpu"
RUN_TWICE = """
import pytest
from _pytest.runner import runtestprotocol

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for last in (False, True):
        item._initrequest()
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            again = not last and report.when == "call"
            if again:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
            if again:
                break
    return True
"""
BROKEN = "@pytest.mark.perf(max_time_us=15)\n"
SUBTESTS = f"""
{BROKEN}def test_it(gpu_bench, subtests):
    for function in (fast, slow):
        with subtests.test(function=function.__name__): gpu_bench.measure(function)
"""
UNITTEST_SUBTESTS = f"""
import unittest
class TestIt(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def given(self, gpu_bench): self.measure = gpu_bench.measure
    {BROKEN}    def test_it(self):
        for function in (fast, slow):
            with self.subTest(function=function.__name__): self.measure(function)
"""
needs_subtests = pytest.mark.skipif(
    tuple(map(int, pytest.__version__.split(".")[:2])) < (9, 0), reason="needs pytest 9, which has subtests"
)


# in parts


@needs_subtests
def test_subtests_are_parts_of_one_test(record_run: RecordRun) -> None:
    recorder = record_run("""
def test_it(gpu_bench, subtests):
    for n in (1, 2, 3):
        with subtests.test(n=n): gpu_bench.measure(fast, label=f"n{n}")
    gpu_bench.phases({"a": fast})
""")
    (record,) = recorder.records
    assert [item.timing.label for item in record.measurements] == ["n1", "n2", "n3", "a"]
    assert len(record.phases) == 1
    (call,) = (report for report in recorder.reports if report.when == "call" and hasattr(report, "gpu_bench"))
    assert len(call.user_properties) == len(set(call.user_properties)) == 4


@needs_subtests
@pytest.mark.parametrize("source", [SUBTESTS, UNITTEST_SUBTESTS])
def test_a_subtest_that_fails_says_what_it_measured(bench_run: BenchRun, source: str) -> None:
    result = bench_run(source)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = result.stdout.str()
    assert "limits: 1 pass, 1 fail" in text
    assert "caught" not in text
    assert text.count("LimitBroken: slow is too slow") == 1


# again


@pytest.mark.parametrize("logs", ["", "last and "], ids=["each", "last"])
def test_only_the_last_of_two_runs_counts(bench_run: BenchRun, logs: str) -> None:
    """The first is too slow, the second is not, or measures nothing; --reruns reports both, other plugins the last."""
    log = "item.ihook.pytest_runtest_logreport"
    Path("conftest.py").write_text(RUN_TWICE.replace(log, logs + log))
    source = f"""
functions = [slow, fast]
{BROKEN}def test_it(gpu_bench): gpu_bench.measure(functions.pop(0), label="f")
again = []
def test_again(gpu_bench):
    if again: return
    again.append(1)
    gpu_bench.measure(fast)
    assert False
"""
    files = ("--gpu-bench-json=run.json", "--gpu-bench-markdown=run.md", "--junitxml=run.xml")
    result = bench_run(source, *files)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["gpu_bench: warning: *::test_it: it was run 2 times: what is shown and kept is of the last"]
    )
    assert "gpu_bench: limits: 1 pass" in result.stdout.str().splitlines()
    saved = json.loads(Path("run.json").read_text())
    assert [round(1e6 * each["stats"]["median"], 6) for each in saved["benchmarks"]] == [10.0]
    assert "1 passed" in Path("run.md").read_text().splitlines()[0]
    assert Path("run.xml").read_text().count('name="gpu_bench.f.median_us"') == 1
    result = bench_run(source.replace("def test_again", f"{BROKEN}def test_again"))
    result.stdout.fnmatch_lines(["*perf(max_time_us=15) was never judged: the test measured nothing*"])


def test_what_is_reported_and_then_interrupted_is_kept_once(bench_run: BenchRun) -> None:
    """As by --pdb and quit: the results were on their way already."""
    Path("conftest.py").write_text("""
import pytest

@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    if report.when == "call": pytest.exit("enough", returncode=2)
""")
    result = bench_run(f"{BROKEN}def test_it(gpu_bench): gpu_bench.measure(slow)")
    assert "gpu_bench: 1 measurement in 1 test" in result.stdout.str()
    assert "2 times" not in result.stdout.str()


# marked while it runs


def test_a_mark_of_a_fixture_or_the_test_itself_holds(bench_run: BenchRun) -> None:
    result = bench_run("""
pytestmark = pytest.mark.parametrize("us", [21, 19])
@pytest.fixture
def applied(request, us): request.applymarker(pytest.mark.perf(max_time_us=us))
@pytest.fixture
def added(request, us): request.node.add_marker(pytest.mark.perf(max_time_us=us))
def test_applied(applied, gpu_bench): gpu_bench.measure(slow)
@pytest.mark.perf(max_rel_std=0.5)
def test_added(added, gpu_bench): gpu_bench.measure(slow)
def test_itself(request, us, gpu_bench):
    request.applymarker(pytest.mark.perf(max_time_us=us))
    gpu_bench.measure(slow)
""")
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines([f"FAILED *::test_{way}[[]19] - *" for way in ("applied", "added", "itself")])


LATE = """
@pytest.mark.perf(max_rel_std=0.5)
def test_it(request, gpu_bench):
    gpu_bench.measure(fast)
    request.applymarker(pytest.mark.perf({}))
    {}
"""
TOO_LATE = "perf({}) was put on the test after it had measured: put it on before"
LATE_MARKS = {each: TOO_LATE.format(each) for each in ("max_time_us=15", "gpus=2", "reps=7")}
MORE_GPUS = """
def test_it(request, gpu_bench):
    request.applymarker(pytest.mark.perf(gpus=2))
    gpu_bench.measure(fast)
"""


def test_a_mark_that_comes_too_late_is_refused_unless_it_asks_for_nothing(check_rows: CheckRows) -> None:
    """A test that runs gets no more GPUs."""
    marks: dict[str, str | None] = {**LATE_MARKS, "speed=1": "perf(speed=...) is not known*", "": None}
    thens = ("gpu_bench.measure(fast)", "pass")
    tests = {LATE.format(mark, then): sentence for mark, sentence in marks.items() for then in thens}
    check_rows("", tests | {MORE_GPUS: "perf(gpus=2) was put on the running test*decorate it"})


# not to fail


def test_a_thread_that_an_earlier_test_left_costs_no_other_test(bench_run: BenchRun) -> None:
    result = bench_run(f"""
import threading
begin, refused = threading.Event(), []
def measure_later(gpu_bench):
    begin.wait()
    try: gpu_bench.measure(slow)
    except Exception as error: refused.append(error)
left = []
def test_leaving(gpu_bench):
    left.append(threading.Thread(target=measure_later, args=(gpu_bench,)))
    left[0].start()
{BROKEN}def test_it(gpu_bench):
    begin.set()
    left[0].join()
    gpu_bench.measure(fast)
    assert "in a thread that ran before this test began" in str(refused)
""")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["gpu_bench: limits: 1 pass"])


@pytest.mark.parametrize("ends", [True, False])
def test_a_measurement_that_goes_on_in_a_thread_fails_its_own_test(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """The next test measures once it has ended; where it takes too long, that is told whose it is."""
    monkeypatch.setattr("pytest_gpubench.plugin.lifecycle.MOST_LEFT_S", 100.0 if ends else 0.0)
    result = bench_run(
        f"""
import threading, time
begun, may_end = threading.Event(), threading.Event()
def lasting():
    begun.set()
    time.sleep(0.1) if {ends} else may_end.wait()
def test_leaving(gpu_bench):
    threading.Thread(target=gpu_bench.measure, args=(lasting,), kwargs={{"reps": 1}}).start()
    begun.wait()
def test_it(gpu_bench):
    try: gpu_bench.measure(fast)
    finally: may_end.set()
""".replace("def lasting", "@scripted([1.0])\ndef lasting")
    )
    result.assert_outcomes(passed=ends, failed=2 - ends)
    result.stdout.fnmatch_lines(["'lasting' was still being measured when the test ended: join the thread*"])
    if not ends:
        result.stdout.fnmatch_lines(
            ["E *ProfilerBusy: 'fast' cannot be measured while 'lasting' of *::test_leaving is*"]
        )


# not at all


def test_tests_that_are_not_run_need_not_measure(bench_run: BenchRun) -> None:
    options = ("--gpu-bench-save=x", "--gpu-bench-sessions=2", "--gpu-bench-require=all")
    for dry in ("--setup-only", "--setup-plan", "--collect-only", "--fixtures"):
        result = bench_run("def test_it(gpu_bench): gpu_bench.measure(fast)", dry, *options)
        assert result.ret == pytest.ExitCode.OK
        result.stdout.no_fnmatch_line("*session 1 of 2*")
        assert dry != "--collect-only" or "gpu_bench:" not in result.stdout.str()
    assert not list(Path().glob(".gpu_benchmarks/**/*.json"))


def test_without_capturing_there_is_no_terminal_of_its_own(bench_run: BenchRun) -> None:
    bench_run("def test_it(gpu_bench): gpu_bench.measure(fast)", "-p", "no:capture").assert_outcomes(passed=1)


# a GPU that has to be there


BY_NAME = "def test_{}(request): request.getfixturevalue('gpu_bench').measure(fast)\n"


def test_a_fixture_that_is_asked_for_by_name_needs_its_gpu_too(bench_run: BenchRun) -> None:
    source = "@pytest.mark.perf\n" + BY_NAME.format("without_limit") + BROKEN + BY_NAME.format("limited")
    result = bench_run(source, "--gpu-bench-require-gpu", ON_CPU)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["E *--gpu-bench-require-gpu was given, but the device is the CPU (*): measure on a GPU, or leave it out"] * 2
    )
    assert bench_run(source, "--gpu-bench-require=all", ON_CPU).ret == pytest.ExitCode.OK


@pytest.mark.parametrize("beside", ["", "def test_perf(gpu_bench): pass\n"])
def test_a_fixture_that_is_asked_for_by_name_needs_a_mark(pytester: pytest.Pytester, beside: str) -> None:
    """Without one the test would measure beside others, and `-m perf` would leave it out."""
    pytester.makepyfile(beside + BY_NAME.replace("fast", "abs").format("it"))
    result = pytester.runpytest()
    assert result.parseoutcomes().get("failed", 0) + result.parseoutcomes().get("errors", 0) == 1
    result.stdout.fnmatch_lines(["*gpu_bench was asked for while a test ran, *: name gpu_bench among the test's *"])


def test_a_torch_that_cannot_be_imported_costs_perf_tests_only(pytester: pytest.Pytester) -> None:
    """Another process, as torch cannot be imported twice."""
    pytester.makepyfile(torch="raise OSError('libcudart.so.13: cannot open shared object file')")
    pytester.makepyfile("def test_it(gpu_bench): gpu_bench(abs, 1)\ndef test_plain(): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["torch cannot be imported (libcudart.so.13: *): install it, or mend its libraries"])
