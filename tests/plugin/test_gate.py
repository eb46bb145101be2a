"""A test in which a limit was broken ends the run red, whatever the test, a fixture or another plugin does."""

import sys
from pathlib import Path

import pytest

from tests.plugin.conftest import HEAD, BenchRun, CheckRows, RunRows

CATCHES = """
@pytest.mark.perf(max_time_us=15)
def test_it(gpu_bench, request):
    try: gpu_bench(slow)
    except Exception: {}
"""
ENDS = {
    "pass": "pass",
    "return in finally": "pass\n    finally: return",
    "skip": "pytest.skip('no')",
    "SkipTest": "raise __import__('unittest').SkipTest('no')",
    "importorskip": "pytest.importorskip('nothing_there')",
    "xfail": "pytest.xfail('no')",
    "xfail mark, late": "request.applymarker(pytest.mark.xfail); raise",
    "xfail mark of the node, late": "request.node.add_marker('xfail'); assert 0",
    "NotMeasured": "raise __import__('pytest_gpubench').NotMeasured('no')",
}
if sys.version_info >= (3, 11):
    ENDS["group of skips"] = "raise BaseExceptionGroup('', [pytest.skip.Exception('no')])"
SAYS = "slow is too slow: median 20.00 us"

SWALLOWS = [
    "with __import__('contextlib').suppress(Exception): gpu_bench(slow)",
    "with pytest.raises(AssertionError): gpu_bench(slow)",
    "import threading; one = threading.Thread(target=suppressed); one.start(); one.join()",
    "from concurrent.futures import ThreadPoolExecutor as Pool; Pool().submit(gpu_bench, slow).exception()",
    "import asyncio; asyncio.run(gathered())",
    "pytest.raises(AssertionError, gpu_bench, slow); gpu_bench(fast)",
    "pytest.raises(AssertionError, gpu_bench.compare, one, slow); gpu_bench(fast)",
    "pytest.raises(RuntimeError, gpu_bench.measure, leaves); gpu_bench(fast)",
]


def test_an_error_that_is_swallowed(check_rows: CheckRows) -> None:
    head = """
@scripted([5.0])
def one(*args): return __import__("torch").ones(1)
@scripted([5.0])
def leaves(): pytest.skip("no")
"""
    test = """
@pytest.mark.perf(max_time_us=15)
def test_it(gpu_bench):
    def suppressed():
        try: gpu_bench(slow)
        except Exception: pass
    async def gathered():
        async def measure(): gpu_bench(slow)
        await __import__("asyncio").gather(measure(), return_exceptions=True)
    {}
"""
    ways = [f"{way}{after}" for way in SWALLOWS for after in ("", "; pytest.skip('no')")]
    told = "gpu_bench raised this, and the test or a thread caught it: let it through*"
    check_rows(head, {test.format(way): told for way in ways})


FIXTURE = """
class Test{number}:
    @pytest.fixture
    def measures(self, gpu_bench):
        try: gpu_bench(slow)
        except Exception: {}
    @pytest.fixture
    def skips(self, measures): {}
    @pytest.mark.perf(max_time_us=15)
    def test_it(self, skips): {}
"""
IN_FIXTURES = [
    ("pytest.skip('no')", "pass", "pass"),
    ("pass", "pytest.skip('no')", "pass"),
    ("pass", "pass", "pass"),
    ("pass", "pass", "pytest.skip('no')"),
]
UNDER_UNITTEST = """
class TestIt{number}(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def given(self, gpu_bench): self.gpu_bench = gpu_bench
    {}
    @pytest.mark.perf(max_time_us=15)
    def test_it(self):
        try: self.gpu_bench(slow)
        except Exception: {}
"""

UNITTEST_ENDS = [("", "self.skipTest('no')"), ("", "pass"), ("@unittest.expectedFailure", "raise")]
GIVEN = """
from hypothesis import assume, given, settings, strategies as st
@pytest.mark.perf(max_time_us=15)
@settings(max_examples=3, database=None)
@given(st.integers(0, 1))
def test_it(gpu_bench, x):
    try: gpu_bench((fast, slow)[x], x)
    except Exception: {}
"""

ALL = [
    *(CATCHES.format(end) for end in ENDS.values()),
    *(FIXTURE.format(*ends, number=at) for at, ends in enumerate(IN_FIXTURES)),
    *(UNDER_UNITTEST.format(above, end, number=at) for at, (above, end) in enumerate(UNITTEST_ENDS)),
    *(GIVEN.format(end) for end in ("pass", "assume(False)", "pytest.skip('no')")),
]


def test_however_it_ends(check_rows: CheckRows) -> None:
    """A mark that it puts on itself is pytest's own only as long as nothing was measured.

    unittest keeps exceptions from pytest's hooks, and expects a failure by no mark of pytest.
    """
    for report in check_rows("import unittest", dict.fromkeys(ALL, f"{SAYS}*")):
        assert not hasattr(report, "wasxfail")


# a mark of its own

XFAIL = "@pytest.mark.xfail({})\n" + CATCHES[1:]
XFAILS = [
    ("", "raise", "xfailed"),
    ("strict=True", "raise", "xfailed"),
    ("raises=AssertionError", "raise", "xfailed"),
    ("raises=ValueError", "raise", "failed"),
    ("False, reason='no'", "raise", "failed"),
    ("", "pass", "xfailed"),
    ("", "pytest.skip('no')", "failed"),
    ("strict=True", "pass", "xfailed"),
    ("strict=True, raises=(KeyError, AssertionError)", "pass", "xfailed"),
    ("raises=ValueError", "pass", "failed"),
]


def test_its_own_xfail_mark_counts(run_rows: RunRows) -> None:
    tests = [XFAIL.format(mark, end) for mark, end, _ in XFAILS]
    found = run_rows("", tests)
    outcomes = ["xfailed" if report.skipped and hasattr(report, "wasxfail") else report.outcome for report in found]
    assert outcomes == [outcome for _, _, outcome in XFAILS]


def test_a_mark_that_a_fixture_gives_counts(bench_run: BenchRun) -> None:
    fixture = "@pytest.fixture(autouse=True)\ndef mark(request): request.applymarker(pytest.mark.xfail)\n"
    result = bench_run(fixture + CATCHES.format("raise"))
    result.assert_outcomes(xfailed=1)
    result.stdout.fnmatch_lines(["gpu_bench: limits: 1 fail (not enforced: expected to fail)"])


# the run


@pytest.mark.parametrize("end", ["os._exit(0)", "raise"])
def test_a_call_in_a_forked_process(bench_run: BenchRun, end: str) -> None:
    """Its measurements are not the test's, and it may leave with any status."""
    result = bench_run(f"""
import os
def test_it(gpu_bench):
    if not os.fork():
        try: gpu_bench(slow)
        except Exception: {end}
        finally: os._exit(1)
    os.wait()
    gpu_bench(fast)
""")
    result.assert_outcomes(failed=1)
    assert "gpu_bench was called in a process that the test forked" in result.stdout.str()


OTHER = "\ndef test_other(gpu_bench): gpu_bench(fast)\n"
REWRITES = {
    "makereport": """
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    if report.when == "call": report.outcome, report.longrepr = "skipped", ("", 0, "Skipped: no")
    return report
""",
    "makereport, outermost": """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item):
    report = yield
    report.outcome, report.longrepr = "passed", None
    return report
""",
    "makereport, xfailed": """
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    if report.when == "call": report.outcome, report.wasxfail = "skipped", "known"
    return report
""",
    "logreport": """
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report): report.outcome = "passed"
""",
    "sessionfinish": """
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session): session.exitstatus = 0
""",
    "call": """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call():
    try: return (yield)
    except Exception: pytest.skip("known")
""",
}


@pytest.mark.parametrize("hook", REWRITES)
@pytest.mark.parametrize("folder", ["", "inner/"], ids=["root", "subfolder"])
def test_a_plugin_that_changes_the_outcome(bench_run: BenchRun, hook: str, folder: str) -> None:
    """The conftest of a subfolder is registered after us, so its hooks can be called last."""
    Path("inner").mkdir()
    Path(folder, "conftest.py").write_text(f"import pytest\n{REWRITES[hook]}")
    Path(folder, "test_one.py").write_text(HEAD + CATCHES.format("raise"))
    result = bench_run("")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert SAYS in result.stdout.str()


SUBTEST = """
@pytest.mark.perf(max_time_us=15)
def test_it(gpu_bench, subtests):
    with subtests.test():
        try: gpu_bench(slow)
        except Exception: {}
"""


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="needs pytest 9, which has subtests")
@pytest.mark.parametrize(("end", "hook"), [("pytest.skip('no')", ""), ("raise", REWRITES["logreport"])])
def test_a_part_that_is_skipped_or_changed(bench_run: BenchRun, end: str, hook: str) -> None:
    Path("conftest.py").write_text(f"import pytest\n{hook}")
    result = bench_run(SUBTEST.format(end))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert SAYS in result.stdout.str()


@pytest.mark.parametrize(
    "exits",
    [
        CATCHES.format("pytest.exit('now', 0)"),
        CATCHES.format("raise") + "def test_other(): pytest.exit('now', 0)",
        CATCHES.format("raise") + "@pytest.fixture(autouse=True)\ndef ends(): yield; pytest.exit('now', 0)",
        FIXTURE.format("pytest.exit('now', 0)", "pass", "pass", number=1),
    ],
    ids=["in the test", "in a later one", "in a teardown", "in a fixture"],
)
def test_an_exit_with_status_0(bench_run: BenchRun, exits: str) -> None:
    result = bench_run(exits, "--junitxml=run.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1)
    assert SAYS in result.stdout.str()
    assert SAYS in Path("run.xml").read_text()


@pytest.mark.usefixtures("stubbed_torch")
def test_in_a_worker(bench_run: BenchRun) -> None:
    result = bench_run(CATCHES.format(ENDS["skip"]) + OTHER, "-n2")
    result.assert_outcomes(failed=1, passed=1)
    result = bench_run(CATCHES.format("pytest.exit('now', 0)") + OTHER, "-n2")
    assert result.ret in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)  # which is xdist's for status 0
