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


@pytest.mark.parametrize(
    ("fresh_us", "outcome", "options"),
    [(11.1, "failed", ()), (10, "passed", ("-p", "no:cacheprovider", "--strict-config", "-x"))],
)
def test_a_fail_is_one_of_five_processes(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, fresh_us: float, outcome: str, options: tuple[str, ...]
) -> None:
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
    Path("fresh").write_text(str(fresh_us))
    Path("ran").unlink()
    result = bench_run(SPEEDS, *COMPARED, *options)
    result.assert_outcomes(**{outcome: 1, "passed": 1 + (outcome == "passed")})
    is_slower = outcome == "failed"
    told = "in each of 5 and 5 sessions, 99.9 % interval)" if is_slower else "PASS in a fresh process, after another"
    result.stdout.fnmatch_lines([f"*{told}*"])
    assert Path("ran").read_text().splitlines() == ["a::b", "[c]", *["[c]"] * (4 if is_slower else 2)]
    Path("fresh").write_text("no number")
    result = bench_run(SPEEDS, *COMPARED)
    why = "nothing was measured (exit status 2); it ended with: *1 error in *"
    result.stdout.fnmatch_lines([f"*not measured again in a fresh process: {why}"])
