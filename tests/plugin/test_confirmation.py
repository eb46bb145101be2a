"""A FAIL against a saved run, confirmed or not by a fresh process that takes over the GPUs."""

from pathlib import Path

import pytest

from tests.plugin.conftest import BenchRun

SLEEPS = """
import os, time
from pathlib import Path

def sleep(): time.sleep(float(Path(f"sleep-{os.environ.get('FRESH', 'here')}").read_text()))

@pytest.mark.parametrize("case", ["a::b", "[c]"])
def test_it(gpu_bench, case):
    with open("ran", "a") as ran:
        print(case, file=ran)
    gpu_bench.measure(sleep, reps=12)
"""
CONFTEST = """
import os
if "PYTEST_GPUBENCH_SESSION" in os.environ:
    os.environ["FRESH"] = "fresh"
"""


@pytest.mark.parametrize(("fresh_s", "outcome"), [(0.05, "failed"), (0.001, "passed")])
def test_a_fail_is_one_in_a_fresh_process_too(bench_run: BenchRun, fresh_s: float, outcome: str) -> None:
    """The fresh process runs the failed test alone."""
    Path("conftest.py").write_text(CONFTEST)
    Path("sleep-here").write_text("0.001")
    options = ("--gpu-bench-device=cpu", "--gpu-bench-cache=hot", "-k", "[c]")
    bench_run(SLEEPS, "--gpu-bench-save=main", *options, timer="wall").assert_outcomes(passed=1, deselected=1)
    Path("sleep-here").write_text("0.05")
    Path("sleep-fresh").write_text(str(fresh_s))
    Path("ran").unlink()
    options = (*options[:-2], "--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:900%")
    result = bench_run(SLEEPS, *options, "--gpu-bench-missing-baseline=ignore", timer="wall")
    result.assert_outcomes(**{outcome: 1, "passed": 1 + (outcome == "passed")})
    told = "*; confirmed in a fresh process" if outcome == "failed" else "*measured a second time, in a fresh process*"
    result.stdout.fnmatch_lines([told])
    assert Path("ran").read_text().splitlines() == ["a::b", "[c]", "[c]"]
