"""--gpu-bench-plot: in the terminal, as files, and with nothing to draw."""

from pathlib import Path

import pytest

from tests.plugin.conftest import HEAD, BenchRun

SWEPT = """
@pytest.mark.parametrize("size", [1, 2])
def test_a(gpu_bench, size): gpu_bench(slow if size == 1 else fast)
@pytest.mark.parametrize("n", [64, 128])
def test_b(gpu_bench, n): gpu_bench(fast)
"""


def test_sweeps_are_drawn_as_files(pytester: pytest.Pytester, bench_run: BenchRun) -> None:
    result = bench_run(SWEPT, "--gpu-bench-plot=charts")
    result.stdout.fnmatch_lines(["gpu_bench: 1 sweep drawn in charts"])
    result.stdout.no_fnmatch_line("*over n*")
    (path,) = (pytester.path / "charts").iterdir()
    assert path.name.endswith(".test_b-n.svg")


def test_without_a_sweep_it_says_so(bench_run: BenchRun) -> None:
    result = bench_run("def test_a(gpu_bench): gpu_bench(fast)", "--gpu-bench-plot=charts", "--gpu-bench-quiet")
    result.stdout.fnmatch_lines(["gpu_bench: nothing was drawn, as no test measured at two values*"])
    assert "Median" not in result.stdout.str(), "the table is left out"


@pytest.mark.parametrize("path", ["checks", "checks/test_it.py", "checks/test_it.py::test_b", "-v"])
def test_a_flag_alone_leaves_the_next_word_to_pytest(pytester: pytest.Pytester, path: str) -> None:
    """The run is that of the path, also for the conftest beside it."""
    checks = pytester.mkdir("checks")
    (checks / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--of-checks')\n")
    (checks / "test_it.py").write_text(HEAD + SWEPT)
    (pytester.path / "test_other.py").write_text("assert 0")
    options = ("--gpu-bench-timer=scripted", *(["checks"] if path == "-v" else ["--of-checks=1"]))
    result = pytester.runpytest_inprocess(*options, "--gpu-bench-plot", path)
    result.assert_outcomes(passed=2 if path.endswith("test_b") else 4)
    assert "test_b: time, us over n" in result.stdout.str()


SEES_INTERPRETER = """
import os
def test_it(): print("SEEN", os.environ.get("TRITON_INTERPRET"))
"""


def test_a_flag_alone_leaves_the_other_options_as_they_are(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count when conftests are imported, so that Triton interprets for a device that is the CPU."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr("pytest_gpubench.gpu.visible.has_gpu_driver", lambda: True)
    path = pytester.makepyfile(SEES_INTERPRETER)
    result = pytester.runpytest_inprocess("-s", "--gpu-bench-device=cpu", "--gpu-bench-plot", path)
    result.stdout.fnmatch_lines(["*SEEN 1*"])


@pytest.mark.parametrize(("option", "word"), [("plot", "charts"), ("compare", "main"), ("compare", "base.json")])
def test_a_value_after_a_space_is_refused(bench_run: BenchRun, option: str, word: str) -> None:
    Path("base.json").touch()
    result = bench_run(SWEPT, f"--gpu-bench-{option}", word)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    name = f"--gpu-bench-{option}"
    result.stderr.fnmatch_lines([f"ERROR: {name} takes its value after an equals sign: write {name}={word}"])


@pytest.mark.parametrize("word", ["nosuch/test_x.py", "nosuch.py::test_x"])
def test_a_path_that_is_not_there_is_no_value(bench_run: BenchRun, word: str) -> None:
    result = bench_run(SWEPT, "--gpu-bench-plot", word)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: file or directory not found: {word}"])
