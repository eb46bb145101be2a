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
    [(12, "failed", ()), (10, "passed", ("-p", "no:cacheprovider", "-W", "error", "--strict-config", "-x"))],
)
def test_a_fail_is_one_in_a_fresh_process_too(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, fresh_us: float, outcome: str, options: tuple[str, ...]
) -> None:
    """The fresh process runs the failed test alone. Here scripted samples stand for times, and differ."""
    monkeypatch.setattr("pytest_gpubench.plugin.lifecycle.SAME_IN_EVERY_PROCESS", ())
    Path("conftest.py").write_text(CONFTEST)
    Path("here").write_text("10")
    bench_run(SPEEDS, "--gpu-bench-save=main", "-k", "[c]").assert_outcomes(passed=1, deselected=1)
    Path("here").write_text("11")
    Path("fresh").write_text(str(fresh_us))
    Path("ran").unlink()
    result = bench_run(SPEEDS, *COMPARED, *options)
    result.assert_outcomes(**{outcome: 1, "passed": 1 + (outcome == "passed")})
    told = "*12.00 us against 10.00 us*; confirmed in a fresh process" if fresh_us == 12 else "*in a fresh process, as*"
    result.stdout.fnmatch_lines([told])
    assert Path("ran").read_text().splitlines() == ["a::b", "[c]", "[c]"]
