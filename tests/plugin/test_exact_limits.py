"""Limits on what a call moves, computes and launches, with scripted times."""

import pytest

from pytest_gpubench.results.model import Outcome, decode
from tests.plugin.conftest import BenchRun, RecordRun, RunRows, assert_fails


@pytest.mark.parametrize(("given", "more"), [("", 1), (", bytes=8", 0)])
def test_what_is_moved_is_known_before_the_reps(bench_run: BenchRun, given: str, more: int) -> None:
    """One call is made to see it, where nobody gave it, and it is not one of those that are timed."""
    source = f"""
import torch
calls = []

@scripted([10.0])
def copy(x):
    calls.append(x)
    return x.clone()

@pytest.mark.perf(min_gbps=1e-9)
def test_it(gpu_bench):
    timing = gpu_bench.measure(copy, (torch.ones(1),){given}, reps=30)
    assert timing.moved_bytes == 8
    assert len(calls) == 30 + {more}
"""
    bench_run(source).assert_outcomes(passed=1)


def test_the_operations_are_counted_where_a_limit_asks(record_run: RecordRun) -> None:
    source = """
import torch
a = torch.ones(8, 16)

@scripted([10.0, 10.1, 9.9])
def product(a): return a @ a.T

@pytest.mark.perf(min_tflops=1e-6)
def test_it(gpu_bench): gpu_bench.compare(product, product, (a,), names=("one", "other"))
"""
    recorder = record_run(source, "--gpu-bench-reps=60")
    arms = [item.timing for item in recorder.records[0].measurements]
    assert [arm.flops for arm in arms] == [2 * 8 * 8 * 16] * 2
    assert [arm.moved_bytes for arm in arms] == [4 * (8 * 16 + 8 * 8)] * 2
    assert [verdict.outcome.name for verdict in recorder.records[0].measurements[1].verdicts] == ["PASS"]


def test_a_backward_run_is_prepared_anew_to_be_counted(bench_run: BenchRun) -> None:
    source = """
import torch
x = torch.ones(16, 16, requires_grad=True)
def product(x): return x @ x

@pytest.mark.perf(min_tflops=1e-9, min_gbps=1e-9)
def test_it(gpu_bench): gpu_bench.measure(product, (x,), backward="backward")
"""
    options = ("--gpu-bench-device=cpu", "--gpu-bench-cache=hot", "--gpu-bench-reps=20")
    bench_run(source, *options, timer="wall").assert_outcomes(passed=1)


LATE = """
import sys, torch

x = torch.ones(64)
calls = []
def double(x): return x * 2

def late(x):
    frame = sys._getframe()
    while frame := frame.f_back:
        if frame.f_code.co_name == "is_deterministic": raise ValueError("late")
    return x + x

def second(x):
    calls.append(x)
    if len(calls) == 2: raise ValueError("broken")
    return x + x

@pytest.mark.perf({marks})
def test_it(gpu_bench): gpu_bench.{call}
"""

LATE_CALLS = {
    "measure(late, (x,), reps=20)": [""],
    "compare({'a': double, 'b': late}, double, (x,), reps=20)": ["reference", "candidate", "candidate"],
    "phases({'p': double}, late, (x,), reps=20)": ["", ""],
}


def test_what_raises_after_the_reps_loses_none_of_them(run_rows: RunRows) -> None:
    """What was found of the first function, whose look raised nothing, is kept with it."""
    tests = [LATE.format(marks="deterministic=True, max_time_us=1e9", call=call) for call in LATE_CALLS]
    reports = run_rows("", tests, "--gpu-bench-timer=wall", "--gpu-bench-device=cpu", "--gpu-bench-cache=hot")
    both = ["max_time_us=1000000000.0", "deterministic=True"]
    for report, roles in zip(reports, LATE_CALLS.values(), strict=True):
        assert "ValueError: late" in report.longreprtext
        found = decode(report.gpu_bench).measurements
        assert [item.role for item in found] == roles
        assert [item.timing.reps for item in found] == [20] * len(roles)
        judged = [[each.limit for each in item.verdicts] for item in found if item.role != "reference"]
        assert judged == ([both, both[:1]] if len(roles) > 1 else [both[:1]])


def test_the_work_of_phases_is_counted_before_their_reps(record_run: RecordRun) -> None:
    """The first call is there to see whether it is interpreted."""
    source = LATE.format(marks="min_gbps=1e-12", call="phases({'p': second}, double, (x,), reps=20)")
    recorder = record_run(source, "--gpu-bench-timer=wall", "--gpu-bench-device=cpu", "--gpu-bench-cache=hot")
    report = recorder.call
    assert "raised in the call of 'p' whose work is counted" in report.longreprtext


def test_work_of_phases_that_is_not_known_says_where_to_give_it(record_run: RecordRun) -> None:
    run = record_run("@pytest.mark.perf(min_tflops=1)\ndef test_it(gpu_bench): gpu_bench.phases({'p': fast})")
    sentence = "p: min_tflops=1 cannot be judged, * measure it by itself, with flops="
    assert_fails(run.call, f"E *InvalidResult: {sentence}")


@pytest.mark.parametrize("marks", ["min_gbps=1e9", "min_peak_fraction=0.5"])
def test_the_rate_of_what_moves_no_byte_is_not_judged(bench_run: BenchRun, marks: str) -> None:
    source = f"""
import torch
x = torch.ones(0)
pytestmark = pytest.mark.perf({marks})
def test_measure(gpu_bench): gpu_bench.measure(fast, (x,))
def test_compare(gpu_bench): gpu_bench.compare(fast, slow, (x,))
def test_phases(gpu_bench): gpu_bench.phases({{"p": fast}}, args=(x,))
"""
    result = bench_run(source, "--gpu-bench-reps=20")
    result.stdout.fnmatch_lines(
        ["gpu_bench: warning: 3 times in 3 tests (*), first: fast: *says nothing here, it moves 0 bytes (*"]
    )
    result.stdout.fnmatch_lines(["*limits: 3 not judged", "*3 not judged in *"])


def test_the_largest_numbers_are_measured(bench_run: BenchRun) -> None:
    source = """
@pytest.mark.perf(min_gbps=1e-9, min_tflops=1e-9)
def test_it(gpu_bench): gpu_bench.measure(fast, bytes=2**63, flops=2**63)
def test_phases(gpu_bench): gpu_bench.phases({"p": fast}, elements=2**63)
"""
    bench_run(source).assert_outcomes(passed=2)


BESIDE = """
@scripted([9.9, 10.1])
def close(): return 0

@scripted([20.0, 20.2, 19.8])
def plain(): return 0

@pytest.mark.perf({marks})
def test_it(gpu_bench): gpu_bench.compare({{"close": close, "bad": slow}}, plain{given})
"""

ENDED = [
    "min_speedup={'close': 2.0, 'bad': 1.5}",
    "min_speedup={'close': 2.0}, max_time_us=15",
    "min_speedup={'bad': 1.5}, max_time_us=10.0",
    "min_speedup={'bad': 1.5}, max_time_us=20.0",
    "min_speedup={'close': 2.0}, min_gbps=10**9",
    "max_time_us=10.0, max_rel_std=1e-9",
]


def test_a_comparison_ends_when_a_limit_is_broken(run_rows: RunRows) -> None:
    """At the first look, though what is asked of the other would stay open for all of them."""
    tests = [BESIDE.format(marks=marks, given=", bytes=1000" if "min_gbps" in marks else "") for marks in ENDED]
    for report, marks in zip(run_rows("", tests), ENDED, strict=True):
        measurements = decode(report.gpu_bench).measurements
        assert Outcome.FAIL in [each.outcome for item in measurements for each in item.verdicts]
        first = 6 if marks.count("=") == 1 else 16  # a limit on one arm alone needs more reps
        assert {item.speedup.quads for item in measurements if item.speedup} == {first}, marks
        assert report.failed
