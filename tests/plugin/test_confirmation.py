"""A FAIL against a saved run, confirmed or not by a fresh process."""

from pathlib import Path

import pytest

from tests.plugin.conftest import BenchRun

pytestmark = pytest.mark.usefixtures("stubbed_torch")

SPEEDS = """
import os
from pathlib import Path

@scripted([float(Path(os.environ.get("FRESH", "here")).read_text())] * 20)
def candidate(): return 0

@pytest.mark.parametrize("case", ["a::b", "[c]"])
def test_it(gpu_bench, case):
    with open("ran", "a") as ran:
        print(case, file=ran)
    gpu_bench(candidate)
"""
CONFTEST = """
import os
if "PYTEST_GPUBENCH_SESSION" in os.environ:
    os.environ["FRESH"] = "fresh"
"""
COMPARED = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%", "--gpu-bench-missing-baseline=ignore")

FRESH = [
    (11.1, "failed", "in each of 5 and 5 sessions, 99.9 % interval)", 4, ()),
    (10, "passed", "PASS in a fresh process, after another", 2, ("-p", "no:cacheprovider", "--strict-config", "-x")),
]
"""What the slower test takes in a fresh process, what comes of it, and the number of processes."""


def test_a_fail_is_one_of_five_processes(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh process runs the slower test alone. Here scripted samples stand for times, and differ.

    Where none measures, that is said in a line.
    """
    monkeypatch.setattr("pytest_gpubench.plugin.lifecycle.SAME_IN_EVERY_PROCESS", ())
    Path("conftest.py").write_text(CONFTEST)
    for name in ("here", "fresh"):
        Path(name).write_text("10")
    saved = ("--gpu-bench-save=main", "--gpu-bench-sessions=5", "-k", "[c]")
    bench_run(SPEEDS, *saved).assert_outcomes(passed=1, deselected=1)
    Path("here").write_text("11")
    for fresh_us, outcome, told, processes, options in FRESH:
        Path("fresh").write_text(str(fresh_us))
        Path("ran").unlink()
        result = bench_run(SPEEDS, *COMPARED, *options)
        result.assert_outcomes(**{outcome: 1, "passed": 1 + (outcome == "passed")})
        result.stdout.fnmatch_lines([f"*{told}*"])
        assert Path("ran").read_text().splitlines() == ["a::b", "[c]", *["[c]"] * processes]
    Path("fresh").write_text("no number")
    why = "nothing was measured (exit status 2); it ended with: *1 error in *"
    bench_run(SPEEDS, *COMPARED).stdout.fnmatch_lines([f"*not measured again in a fresh process: {why}"])
