"""What CI is shown: annotations, the step's summary, JUnit's properties."""

import re
from pathlib import Path

import pytest

from tests.plugin.conftest import HEAD, BenchRun
from tests.plugin.saving import COMPARES, MEASURES


def test_ci_is_shown_a_summary_and_the_failing_line(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    source = COMPARES.replace(
        "def test_it(gpu_bench): ", "@pytest.mark.perf(min_speedup=3)\ndef test_it(gpu_bench):\n    "
    )
    result = bench_run(source)
    result.assert_outcomes(failed=1)
    (line,) = [line for line in result.stdout.lines if line.startswith("::error ")]
    (path,) = Path().glob("test_*.py")
    number = 1 + next(n for n, text in enumerate(path.read_text().splitlines()) if "gpu_bench.compare" in text)
    assert f"line={number}," in line
    assert "not fast enough" in line
    assert "test_it" in Path("summary.md").read_text()


def test_an_undecided_limit_is_a_warning_on_the_line_of_its_test(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench_run(MEASURES, "--gpu-bench-save=main")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(Path.cwd()))
    for policy, shown in (("warn", 1), ("pass", 0)):
        options = ("--gpu-bench-compare-fail=median:3%", "--gpu-bench-reps=2", f"--gpu-bench-inconclusive={policy}")
        result = bench_run(MEASURES, "--gpu-bench-compare=main", *options)
        lines = [line for line in result.stdout.lines if line.startswith("::warning ")]
        assert len(lines) == shown
    result = bench_run(MEASURES, "--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:3%", "--gpu-bench-reps=2")
    (line,) = [line for line in result.stdout.lines if line.startswith("::warning ")]
    (path,) = Path().glob("test_*.py")
    number = 1 + path.read_text().splitlines().index("def test_it(gpu_bench): gpu_bench(candidate)")
    assert line.startswith(f"::warning file={path.name},line={number},title=")
    assert "cannot be judged" in line


def test_the_file_of_an_annotation_is_that_of_the_checkout(
    bench_run: BenchRun, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path))
    project = pytester.mkdir("project")
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "test_x.py").write_text(f"{HEAD}\ndef test_it(gpu_bench):\n    gpu_bench(fast)\n    assert 1 == 2\n")
    result = pytester.runpytest("-p", "no:benchmark", "--gpu-bench-timer=scripted", "project")
    (line,) = [line for line in result.stdout.lines if line.startswith("::error ")]
    number = (project / "test_x.py").read_text().count("\n")
    assert line == f"::error file=project/test_x.py,line={number},title=test_x.py%3A%3Atest_it::assert 1 == 2"


def test_junit_has_the_change_and_what_it_is_against(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    bench_run(MEASURES, "--gpu-bench-save=main")
    monkeypatch.setenv("FACTOR", "1.5")
    bench_run(MEASURES, "--gpu-bench-compare=main", "--junitxml=junit.xml", "-o", "junit_family=xunit1")
    found = dict(
        re.findall(r'property name="gpu_bench.candidate.(\w+)" value="([^"]*)"', Path("junit.xml").read_text())
    )
    assert (found["baseline"], found["change"], found["change_of"]) == ("main", "1.5", "median")
    assert float(found["change_low"]) <= 1.5 <= float(found["change_high"])
