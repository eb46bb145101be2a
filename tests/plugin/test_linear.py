"""Large suites: steps grow in proportion to tests and measurements; steps are counted, not timed."""

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from pytest_gpubench.cli.compare import compare_runs
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.stats.tolerance import RegressionTolerance
from tests.plugin.conftest import BenchRun
from tests.plugin.saving import SPEEDS
from tests.results.measured import alone, record, run

OURS = ("pytest_gpubench", "tests")


class Steps:
    def __init__(self) -> None:
        self.by_function: Counter[str] = Counter()

    def __enter__(self) -> "Steps":
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if not any(f"/{name}/" in frame.f_code.co_filename for name in OURS):
            return None
        frame.f_trace_opcodes = True
        return self._traced

    def _traced(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        code = frame.f_code
        self.by_function[f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"] += event == "opcode"
        return self._traced


def assert_linear(work: Callable[[int], object], few: int = 12) -> None:
    """Run a work for so many things, and for four times as many: each function takes about four times the steps."""
    with Steps():  # what is imported, or kept, the first time; Python 3.12 tells of operations from the second time on
        work(few)
    with Steps() as small:
        work(few)
    with Steps() as large:
        work(4 * few)
    assert sum(small.by_function.values()) > few
    for function, number in large.by_function.items():
        assert number < 5 * small.by_function[function] + 1000, function


@pytest.mark.parametrize(
    ("old", "new", "params"),
    [
        ("old.py::test_{}", "new.py::test_{}", False),  # moved
        ("a.py::test_it[{}]", "a.py::test_it[x{}]", True),  # other parameters
        ("a.py::test_it[{}]", "a.py::test_it[{}]", True),
    ],
)
def test_runs_are_compared(old: str, new: str, params: bool) -> None:
    def saved(name: str, number: int) -> SavedRun:
        kept = [{"n": name.format(n)[-9:]} if params else {} for n in range(number)]
        return run(*(record(alone(), nodeid=name.format(n), params=own) for n, own in enumerate(kept)))

    def compare(number: int) -> None:
        compare_runs(saved(old, number), saved(new, number), RegressionTolerance("median", margin=0.05), 0.001)

    assert_linear(compare)


def test_tests_are_left_out(bench_run: BenchRun) -> None:
    source = """
import os
@pytest.mark.parametrize("n", range(int(os.environ["TIMES"])))
class Test:
    def test_plain(self, n): pass
    def test_it(self, n, gpu_bench): pass
"""

    def leave_out(number: int) -> None:
        result = bench_run(source, "--gpu-bench-skip", "-q", TIMES=str(number))
        result.assert_outcomes(passed=number, deselected=number)

    assert_linear(leave_out, few=4)


def test_a_test_measures_often_with_a_baseline(bench_run: BenchRun) -> None:
    source = f"""{SPEEDS}
def test_it(gpu_bench):
    for _ in range(int(os.environ["TIMES"])): gpu_bench(candidate)
"""

    def measure(number: int, option: str = "--gpu-bench-compare=many") -> None:
        options = ("--gpu-bench-reps=1", "--gpu-bench-quiet", "--gpu-bench-json=run.json")
        bench_run(source, option, *options, TIMES=str(number)).assert_outcomes(passed=1)

    measure(16, "--gpu-bench-save=many")
    assert_linear(measure, few=4)
