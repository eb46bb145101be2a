"""Limits on what a call moves, computes and launches, with scripted times."""

import pytest

from pytest_gpubench.results.model import Outcome, decode
from tests.plugin.conftest import BenchRun, CheckRows, RunRows

WORK = """
import torch
a = torch.ones(8, 16)
x = torch.ones(16, 16, requires_grad=True)
calls = []

@scripted([10.0])
def copy(x):
    calls.append(x)
    return x.clone()

@scripted([10.0, 10.1, 9.9])
def product(a): return a @ a.T

@pytest.mark.perf(min_gbps=1e-9)
@pytest.mark.parametrize(("given", "more"), [({}, 1), ({"bytes": 8}, 0)])
def test_copy(gpu_bench, given, more):
    calls.clear()
    assert gpu_bench.measure(copy, (torch.ones(1),), **given, reps=30).moved_bytes == 8
    assert len(calls) == 30 + more

@pytest.mark.perf(min_tflops=1e-6, reps=60)
def test_product(gpu_bench):
    found = gpu_bench.compare(product, product, (a,), names=("one", "other"))
    for each in (found.reference, found.timing):
        assert (each.flops, each.moved_bytes) == (2 * 8 * 8 * 16, 4 * (8 * 16 + 8 * 8))
    assert [verdict.outcome for verdict in found.verdicts] == ["pass"]

@pytest.mark.perf(min_tflops=1e-9, min_gbps=1e-9)
def test_backward(gpu_bench): gpu_bench.measure(product, (x,), backward="backward")

@pytest.mark.perf(min_gbps=1e-9, min_tflops=1e-9)
def test_largest(gpu_bench): gpu_bench.measure(fast, bytes=2**63, flops=2**63)
def test_largest_of_phases(gpu_bench): gpu_bench.phases({"p": fast}, elements=2**63)
"""


def test_work_is_known_before_the_reps(bench_run: BenchRun) -> None:
    """One call is made to see it, where nobody gave it, which is none of those timed; a backward run is made anew."""
    bench_run(WORK, "--gpu-bench-device=cpu").assert_outcomes(passed=6)


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


def test_the_work_of_phases_is_counted_before_their_reps_or_says_where_to_give_it(check_rows: CheckRows) -> None:
    """The first call is there to see whether it is interpreted."""
    call = "phases({'p': second}, double, (x,), reps=20)"
    counted = LATE.format(marks="min_gbps=1e-12", call=call)
    unknown = "@pytest.mark.perf(min_tflops=1)\ndef test_it(gpu_bench): gpu_bench.phases({'p': fast})"
    rows = {
        counted: "*raised in the call of 'p' whose work is counted*",
        unknown: "InvalidResult: p: min_tflops=1 cannot be judged, * measure it by itself, with flops=",
    }
    check_rows("", rows, "--gpu-bench-timer=wall", "--gpu-bench-device=cpu", "--gpu-bench-cache=hot")


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
