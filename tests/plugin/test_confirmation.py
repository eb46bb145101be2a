"""A FAIL against a saved run, confirmed or not by a fresh process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_gpubench.plugin.fresh_process import Confirmation
from pytest_gpubench.results.model import SavedRun, TestRecord
from tests.plugin.conftest import BenchRun
from tests.report.records import GPU

MOST_S = 300.0

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
    """A fresh process runs the slower test alone. Here scripted samples stand for times, and differ."""
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


def confirmation(monkeypatch: pytest.MonkeyPatch, run: Callable[..., object]) -> Confirmation:
    monkeypatch.setattr("pytest_gpubench.plugin.fresh_process.run_fresh", run)
    return Confirmation(cast(Any, None))


def test_why_there_is_no_fresh_measurement_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("nothing was measured (exit status 7); it ended with:\n    a line\n    the last one")

    found = confirmation(monkeypatch, fail).measure("test_a.py::test_it")
    assert found == "nothing was measured (exit status 7); it ended with: the last one"
    run = SavedRun(records=(TestRecord(nodeid="test_b", device=GPU),), datetime="")
    assert confirmation(monkeypatch, lambda *_: (run, False)).measure("test_a") == "it did not run the test"
    assert confirmation(monkeypatch, lambda *_: (run, False)).measure("test_b") is run.records[0]


@pytest.mark.parametrize(("taken_s", "is_taken"), [(MOST_S - 1, True), (MOST_S, False)])
def test_fresh_processes_have_so_much_time_together(
    monkeypatch: pytest.MonkeyPatch, taken_s: float, is_taken: bool
) -> None:
    now_s = iter([0.0, taken_s, 0.0, 0.0])
    monkeypatch.setattr("pytest_gpubench.plugin.fresh_process.time.monotonic", lambda: next(now_s))
    left_s: list[float] = []

    def run(*arguments: float) -> tuple[SavedRun, bool]:
        left_s.append(arguments[-1])
        return SavedRun(records=(), datetime=""), False

    fresh = confirmation(monkeypatch, run)
    fresh.measure("test_a")
    found = fresh.measure("test_a")
    assert left_s == [MOST_S, 1.0][: 1 + is_taken]
    assert (found == "further processes of this run have taken 300 s") is not is_taken
