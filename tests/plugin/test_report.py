from tests.plugin.conftest import BenchRun

TWO = """
@pytest.mark.parametrize("size", [1, 2])
def test_a(gpu_bench, size): gpu_bench(slow if size == 1 else fast)
class TestB:
    def test_b(self, gpu_bench): gpu_bench(fast)
"""


def test_verbose_shows_the_kernels_and_quiet_no_table(bench_run: BenchRun) -> None:
    bench_run(TWO, "--gpu-bench-verbose").stdout.fnmatch_lines(["*20.00 us 100.0 % 1 x kernel"])
    text = bench_run(TWO, "--gpu-bench-quiet").stdout.str()
    assert "Median" not in text
    assert "gpu_bench: 3 measurements in 3 tests on" in text


def test_inconclusive_warns_fails_or_passes(bench_run: BenchRun) -> None:
    source = "@pytest.mark.perf(max_time_us=10.0)\ndef test_it(gpu_bench): gpu_bench(fast)"
    result = bench_run(source, "--gpu-bench-reps=30")
    assert result.parseoutcomes() == {"inconclusive": 1}
    result.stdout.fnmatch_lines(
        [
            "gpu_bench: warning: *::test_it: fast is too close to tell: median 10.00 us*",
            "gpu_bench: limits: 1 inconclusive (raise --gpu-bench-reps, or look for what disturbs the CPU)",
        ]
    )
    bench_run(source, "--gpu-bench-reps=30", "--gpu-bench-inconclusive=fail").assert_outcomes(failed=1)
    result = bench_run(source, "--gpu-bench-reps=30", "--gpu-bench-inconclusive=pass")
    assert "warning" not in result.stdout.str()
    result.assert_outcomes(passed=1)
