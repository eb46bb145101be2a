"""`gpu_bench.judge`: a candidate's file, by the limits of the test's mark."""

from tests.plugin.conftest import BenchRun

SOURCE = """
import torch

def double(x):
    return x * 2

def inputs(seed):
    return (torch.randn(1000),)

def judge(gpu_bench, folder, body):
    path = folder / "candidate.py"
    path.write_text(f"def candidate(x):\\n    return {body}\\n")
    return gpu_bench.judge(path, double, inputs, budget_s=0.05)

@pytest.mark.perf(max_time_us=1e9)
def test_kept(gpu_bench, tmp_path):
    assert judge(gpu_bench, tmp_path, "x + x").passed

@pytest.mark.perf(max_time_us=1e-3)
def test_broken(gpu_bench, tmp_path):
    judge(gpu_bench, tmp_path, "x + x")

def test_wrong(gpu_bench, tmp_path):
    judge(gpu_bench, tmp_path, "x + x + 1")

@pytest.mark.perf(max_kernels=1)
def test_unknown(gpu_bench, tmp_path):
    judge(gpu_bench, tmp_path, "x + x")
"""


def test_limits_of_the_mark_apply(bench_run: BenchRun) -> None:
    """A limit that is kept passes; broken, wrong and not to be judged fail at the user's line."""
    result = bench_run(SOURCE, "--gpu-bench-device=cpu", timer="wall")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*LimitBroken: a call takes * by its own timer, * by the referee's, wanted at most 0.001 us",
            "*WrongResult: candidate.py (wrong): wrong in its first call: out: *",
            "*BadRequest: judge cannot judge max_kernels: it knows min_speedup and max_time_us",
        ]
    )
