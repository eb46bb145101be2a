"""Fixed reps under @given: one warning names a number of reps that can decide every example."""

import pytest

from pytest_gpubench.results.model import decode
from tests.plugin.conftest import BenchRun, RunRows
from tests.plugin.test_given import TROUBLE, limited

KERNEL = "add(1000.0 if n > 1 else 10.0)"
MEASURE = f"gpu_bench.measure({KERNEL}, (torch.ones(n),))"
COMPARE = f"gpu_bench.compare({KERNEL}, double, (torch.ones(n),))"
TWICE = f"{MEASURE}; {MEASURE.replace('1000.0', '10.0')}"
CASES = [
    (MEASURE, "max_time_us=20", 31),
    (COMPARE, "min_speedup=1.2, max_time_us=20", 32),
    (TWICE, "max_time_us=20", 33),
]
FEW = (
    "with reps=12 not every example of @given can be judged, as all of them together spend alpha 0.001: take at least "
)
ENOUGH = " reps, enough for max_examples=25 and to shrink what fails, or give no reps"


def test_it_is_said_once(run_rows: RunRows) -> None:
    reports = run_rows("", [limited(body, marks=marks) for body, marks, _ in CASES], "--gpu-bench-reps=12")
    assert [decode(each.gpu_bench).warnings for each in reports] == [(f"{FEW}{least}{ENOUGH}",) for *_, least in CASES]


@pytest.mark.parametrize("policy", ["fail", "pass"])
def test_it_goes_as_asked_for_what_is_open(bench_run: BenchRun, policy: str) -> None:
    body, marks, _ = CASES[0]
    result = bench_run(limited(body, marks=marks), "--gpu-bench-reps=12", f"--gpu-bench-inconclusive={policy}")
    text = result.stdout.str()
    result.assert_outcomes(**{"failed" if policy == "fail" else "passed": 1})
    assert text.count(f"LimitBroken: {FEW}") == (policy == "fail")
    assert not any(word in text for word in TROUBLE)
