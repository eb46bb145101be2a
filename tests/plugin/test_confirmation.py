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


@pytest.mark.parametrize(
    ("fresh_s", "outcome", "workers"),
    [(0.05, "failed", ()), (0.001, "passed", ()), pytest.param(0.001, "passed", ("-n1",), marks=pytest.mark.slow)],
)
def test_a_fail_is_one_in_a_fresh_process_too(
    bench_run: BenchRun, fresh_s: float, outcome: str, workers: tuple[str, ...]
) -> None:
    """The fresh process runs the failed test alone."""
    Path("conftest.py").write_text(CONFTEST)
    Path("sleep-here").write_text("0.001")
    options = ("--gpu-bench-device=cpu", "--gpu-bench-cache=hot")
    bench_run(SLEEPS, "--gpu-bench-save=main", *options, "-k", "[c]", timer="wall").assert_outcomes(
        passed=1, deselected=1
    )
    Path("sleep-here").write_text("0.05")
    Path("sleep-fresh").write_text(str(fresh_s))
    Path("ran").unlink()
    compared = (
        "--gpu-bench-compare=main",
        "--gpu-bench-compare-fail=median:900%",
        "--gpu-bench-missing-baseline=ignore",
    )
    result = bench_run(SLEEPS, *options, *compared, *workers, timer="wall")
    result.assert_outcomes(**{outcome: 1, "passed": 1 + (outcome == "passed")})
    told = "*; confirmed in a fresh process" if outcome == "failed" else "*measured a second time, in a fresh process*"
    result.stdout.fnmatch_lines([told])
    assert Path("ran").read_text().splitlines() == ["a::b", "[c]", "[c]"]
