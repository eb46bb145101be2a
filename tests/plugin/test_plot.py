"""--gpu-bench-plot: in the terminal, as files, and with nothing to draw."""

import pytest

from tests.plugin.conftest import BenchRun

SWEPT = """
@pytest.mark.parametrize("size", [1, 2])
def test_a(gpu_bench, size): gpu_bench(slow if size == 1 else fast)
@pytest.mark.parametrize("n", [64, 128])
def test_b(gpu_bench, n): gpu_bench(fast)
"""


def test_a_sweep_is_drawn_in_the_terminal(bench_run: BenchRun) -> None:
    text = bench_run(SWEPT, "--gpu-bench-plot").stdout.str()
    assert "test_b: time, us over n" in text
    assert "          o fast" in text


def test_sweeps_are_drawn_as_files(pytester: pytest.Pytester, bench_run: BenchRun) -> None:
    result = bench_run(SWEPT, "--gpu-bench-plot=charts")
    result.stdout.fnmatch_lines(["gpu_bench: 1 sweep drawn in charts"])
    result.stdout.no_fnmatch_line("*over n*")
    (path,) = (pytester.path / "charts").iterdir()
    assert path.name.endswith(".test_b-n.svg")


def test_without_a_sweep_it_says_so(bench_run: BenchRun) -> None:
    result = bench_run("def test_a(gpu_bench): gpu_bench(fast)", "--gpu-bench-plot=charts")
    result.stdout.fnmatch_lines(["gpu_bench: nothing was drawn, as no test measured at two values*"])


def test_a_folder_of_tests_is_no_place_for_plots(pytester: pytest.Pytester, bench_run: BenchRun) -> None:
    """As where a path follows the option without a value."""
    (pytester.mkdir("checks") / "test_it.py").touch()
    result = bench_run(SWEPT, "--gpu-bench-plot", "checks")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gpu-bench-plot: 'checks' is not valid, it holds other files than plots: *"])
