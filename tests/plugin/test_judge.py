"""`gpu_bench.judge`: a candidate's file, by the limits of the test's mark."""

from typing import Any

import pytest

from pytest_gpubench import InvalidResult, Judgement, MeasurementError, WrongResult
from pytest_gpubench.judge.request import error_of
from tests.plugin.conftest import BenchRun

SOURCE = """
import torch

def double(x):
    return x * 2

def inputs(seed):
    return (torch.randn(1000),)

def judge(gpu_bench, folder, body, trust_claims=True):
    path = folder / "candidate.py"
    wait = "import random, time\\ndef candidate(x):\\n    time.sleep(random.random() / 500)\\n"
    path.write_text(f"{wait}    return {body}\\n")
    return gpu_bench.judge(path, double, inputs, budget_s=1, trust_claims=trust_claims)

@pytest.mark.perf(max_time_us=1e9)
def test_kept(gpu_bench, tmp_path):
    assert judge(gpu_bench, tmp_path, "x + x").cases[0].candidate_us

@pytest.mark.perf(max_time_us=1e9)
def test_not_timed(gpu_bench, tmp_path):
    assert judge(gpu_bench, tmp_path, "x + x", trust_claims=False).status == "inconclusive"

@pytest.mark.perf(max_time_us=1e-3)
def test_broken(gpu_bench, tmp_path):
    judge(gpu_bench, tmp_path, "x + x")

@pytest.mark.perf(max_kernels=1)
def test_unknown(gpu_bench, tmp_path):
    judge(gpu_bench, tmp_path, "x + x")
"""


@pytest.mark.usefixtures("forked")
def test_limits_of_the_mark_apply(bench_run: BenchRun) -> None:
    """A limit that is kept passes; a broken one, one that cannot be judged and invalid arguments fail.

    The candidate takes a random time, so that no rep resembles its neighbours, whatever the host does.

    So does one by which nothing is timed, as only the candidate's own process could, and the test does not trust it.
    """
    result = bench_run(SOURCE, "--gpu-bench-device=cpu", timer="wall")
    outcomes = result.parseoutcomes()
    assert (outcomes["failed"], outcomes["passed"]) == (3, 1)
    result.stdout.fnmatch_lines(
        [
            "*perf(max_time_us=1000000000.0) was never judged: not timed: its call is not replayed *",
            "*LimitBroken: candidate is too slow: median *, wanted at most 0.001 us*",
            "*BadRequest: judge cannot judge max_kernels: it knows min_speedup and max_time_us",
        ]
    )


@pytest.mark.parametrize(
    ("status", "error"), [("wrong", WrongResult), ("invalid", InvalidResult), ("crash", MeasurementError)]
)
def test_a_candidate_without_a_verdict_raises(status: Any, error: type[Exception]) -> None:
    """With its reason, and what it printed as a note."""
    judgement = Judgement(
        status=status, reason="a reason", detail="printed", candidate="a/b.py", spec="s", spec_digest="d"
    )
    raised = error_of(judgement)
    assert type(raised) is error
    assert str(raised) == f"b.py ({status}): a reason"
    assert raised.__notes__ == ["printed"]  # type: ignore[attr-defined] # before Python 3.11
