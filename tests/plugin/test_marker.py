import re

import pytest

from pytest_gpubench.settings import ROWS
from pytest_gpubench.verdict.limits import NAMES
from tests.plugin.conftest import BenchRun, CheckRows

MIXED = """
@pytest.fixture
def through(gpu_bench): return gpu_bench

def test_uses(gpu_bench): gpu_bench(fast)
def test_uses_through_a_fixture(through): through(fast)
def test_plain(): pass

@pytest.mark.perf(max_time_us=15)
class TestClass:
    def test_in_class(self, gpu_bench): gpu_bench(fast)
"""


@pytest.mark.parametrize(
    ("option", "passed"),
    [("-mperf", 3), ("-mnot perf", 1), ("-mperf or not perf", 4), ("--gpu-bench-only", 3), ("--gpu-bench-skip", 1)],
)
def test_selection_is_exact(bench_run: BenchRun, option: str, passed: int) -> None:
    bench_run(MIXED, option).assert_outcomes(passed=passed, deselected=4 - passed)


def test_the_closest_mark_wins_keyword_by_keyword(bench_run: BenchRun) -> None:
    source = """
pytestmark = pytest.mark.perf(max_time_us=1, max_rel_std=0.0001)

@pytest.mark.perf(max_time_us=12)
class TestClass:
    @pytest.mark.perf(max_rel_std=0.1)
    def test_both_overruled(self, gpu_bench): gpu_bench(fast)

    @pytest.mark.perf(max_rel_std=None)
    def test_limit_taken_back(self, gpu_bench): gpu_bench(fast)

    def test_module_limit_stays(self, gpu_bench): gpu_bench(fast)
"""
    result = bench_run(source)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*fast is unsteady: relative std*wanted at most 0.01 %*"])


BAD_MARKS = {
    "perf(max_time_us=15)": None,
    "perf(max_tim_us=3)": "perf(max_tim_us=...) is not known: did you mean max_time_us=[?]",
    "perf(odd=3)": "perf(odd=...) is not known; legal are the limits max_rel_std, max_time_us, *",
    "perf(max_time=40)": "*: did you mean max_time_us=[?] (the time that a test may measure is budget_s=)",
    "perf(given_budget=9)": "perf(given_budget=...) is not known: did you mean given_budget_s=[?]",
    "perf(3)": "perf() takes keywords only, found 1 positional argument: 3: name the limit, as in perf(*",
    "perf(device='cpu')": "perf(device=...) can only be set for the whole run*",
    "perf(max_time_us='3')": "perf(max_time_us='3'): it must be a number, or one for each of several GPUs, as in *",
    "perf(reps=0)": "perf(reps=...): 0 is not valid, it must be at least 1",
    "perf(reps='3')": "perf(reps=...): '3' is not valid, it must be a number, not a text",
    "perf(timer='sundial')": "perf(timer=...): 'sundial' is not valid, it must be one of *",
}


def test_a_bad_mark_fails_that_test_only(check_rows: CheckRows) -> None:
    tests = [f"@pytest.mark.{mark}\ndef test_it(gpu_bench): gpu_bench(fast)" for mark in BAD_MARKS]
    check_rows("", dict(zip(tests, BAD_MARKS.values(), strict=True)))


def test_a_limit_of_the_class_that_a_test_cannot_keep_says_how_to_drop_it(bench_run: BenchRun) -> None:
    source = """
pytestmark = pytest.mark.perf(max_kernels=3)

@pytest.mark.perf(min_speedup=1.5)
class TestIt:
    @pytest.mark.perf(max_time_us=15)
    def test_measures(self, gpu_bench): gpu_bench(fast)

    @pytest.mark.perf(min_speedup=None, max_time_us=15)
    def test_drops_it(self, gpu_bench): gpu_bench(fast)

    @pytest.mark.perf(min_speedup=2)
    def test_its_own(self, gpu_bench): gpu_bench(fast)

    def test_nothing(self, gpu_bench): pass
"""
    result = bench_run(source)
    result.assert_outcomes(passed=1, failed=3)
    compare = "never judged: the test compared nothing; call gpu_bench.compare(candidate, reference, ...) in it"
    drops = "asks for it: @pytest.mark.perf({}) on the test drops it)"
    result.stdout.fnmatch_lines(
        [
            f"perf(min_speedup=1.5) was {compare} (a mark of the class TestIt {drops.format('min_speedup=None')}",
            f"perf(min_speedup=2) was {compare}",
            f"perf(min_speedup=1.5, max_kernels=3) was {compare} (a mark of the file *.py, class TestIt "
            + drops.format("max_kernels=None, min_speedup=None"),
        ]
    )


def test_markers_and_fixtures_read_well(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    lines = pytester.runpytest("--markers").stdout.lines
    start = lines.index(
        "@pytest.mark.perf(limits and settings): a performance test, as every test is that uses gpu_bench"
    )
    shown = lines[start : lines.index("", start)]
    assert max(map(len, shown)) <= 100
    marked = [*NAMES, *(name for name, row in ROWS.items() if row.in_marker), "gpus"]
    assert [name for name in marked if not re.search(rf"\b{name}\b", "\n".join(shown))] == []
    fixtures = pytester.runpytest("--fixtures").stdout
    fixtures.fnmatch_lines(["gpu_bench [[]session scope[]]*", "*Measure GPU kernel time: ``gpu_bench(fn, *"])
    fixtures.fnmatch_lines(["gpu_bench_device [[]session scope[]]*"])
