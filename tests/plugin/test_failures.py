"""Failures as shown in the terminal, in the debugger and in CI: annotations, the step's summary, JUnit."""

from pathlib import Path

import pytest

from tests.plugin.conftest import HEAD, BenchRun
from tests.plugin.saving import MEASURES

FAILS = """
@pytest.mark.perf(max_time_us=5)
def test_broken(gpu_bench):
    gpu_bench(fast)

@pytest.mark.perf(min_speedup=1)
def test_wrong(gpu_bench):
    gpu_bench.compare({"one": lambda x: x + 1}, lambda x: x + 2, (torch.ones(3),))

def test_bad(gpu_bench):
    gpu_bench.measure(fast, reps=0)

@pytest.mark.perf(max_time_us=5)
def test_silent(gpu_bench): pass
"""


@pytest.mark.parametrize("style", ["auto", "line", "no"])
def test_errors(bench_run: BenchRun, style: str) -> None:
    """They are named without their module, and end with the page that helps.

    The short summary holds the measured value at 80 columns, and a wrong output is said once above it.
    """
    result = bench_run(f"import torch{FAILS}", "--gpu-bench-reps=12", f"--tb={style}", COLUMNS="80")
    result.assert_outcomes(failed=4)
    text = result.stdout.str()
    assert "pytest_gpubench.errors" not in text
    assert "traceback entries are hidden" not in text
    result.stdout.fnmatch_lines(
        [
            "FAILED test_errors.py::test_broken - fast is too slow: median 10.00 us*",
            "FAILED test_errors.py::test_silent - perf(max_time_us=5) was never judged*",
        ]
    )
    if style == "line":
        result.stdout.fnmatch_lines(["/*/test_errors.py:*: perf(max_time_us=5) was never judged*"])
    if style == "auto":
        assert text.count("elements (100 %) differ") == 1
        result.stdout.fnmatch_lines(
            [
                "E       LimitBroken: fast is too slow: median 10.00 us [[]9.900, 10.10], wanted at most 5 us *",
                "E       gpu_bench: see `pytest-gpubench docs limits`",
                "E       WrongResult: one is wrong: *",
                "E       gpu_bench: see `pytest-gpubench docs comparing`",
                "one against <lambda>: not measured",
                "E       BadRequest: measure(reps=...): 0 is not valid, it must be at least 1",
            ]
        )


@pytest.mark.parametrize("indent", ["", "    "], ids=["collected", "run"])
def test_the_traceback_of_a_strategy_ends_at_the_users_line(pytester: pytest.Pytester, indent: str) -> None:
    head = "from pytest_gpubench import strategies as gst\n"
    pytester.makepyfile(f"{head}{'def test_it():' if indent else ''}\n{indent}gst.shapes(dims=-1)")
    result = pytester.runpytest("-p", "no:benchmark")
    result.stdout.fnmatch_lines(["E  *InvalidArgument: *dims*"])
    assert "pytest_gpubench/strategies" not in result.stdout.str()


DEBUGGER = """
import pdb

class Debugger(pdb.Pdb):
    def interaction(self, frame, traceback):
        stack, place = self.get_stack(frame, traceback)
        print("\\nBEGINS IN", stack[place][0].f_code.co_name)
"""


@pytest.mark.parametrize("line", ["gpu_bench(fast)", "gpu_bench.measure(fast, reps=0)", "len(3)"])
def test_the_debugger_begins_in_the_test(pytester: pytest.Pytester, bench_run: BenchRun, line: str) -> None:
    pytester.makepyfile(debugger=DEBUGGER)
    pytester.syspathinsert()
    source = f"@pytest.mark.perf(max_time_us=5)\ndef test_it(gpu_bench):\n    {line}\n"
    result = bench_run(source, "--pdb", "--pdbcls=debugger:Debugger", "-s")
    result.stdout.fnmatch_lines(["BEGINS IN test_it"])


def test_an_undecided_limit_is_a_warning_on_the_line_of_its_test(bench_run: BenchRun) -> None:
    bench_run(MEASURES, "--gpu-bench-save=main")
    lines: list[str] = []
    for policy in ("warn", "pass"):
        options = ("--gpu-bench-compare-fail=median:3%", "--gpu-bench-reps=2", f"--gpu-bench-inconclusive={policy}")
        actions = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(Path.cwd())}
        result = bench_run(MEASURES, "--gpu-bench-compare=main", *options, **actions)
        lines += [line for line in result.stdout.lines if line.startswith("::warning ")]
    (line,) = lines
    (path,) = Path().glob("test_*.py")
    number = 1 + path.read_text().splitlines().index("def test_it(gpu_bench): gpu_bench(candidate)")
    assert line.startswith(f"::warning file={path.name},line={number},title=")
    assert "cannot be compared" in line


def test_every_report_says_what_was_not_judged(bench_run: BenchRun) -> None:
    result = bench_run(
        """
@pytest.mark.perf(max_time_us={"H200": 40})
def test_elsewhere(gpu_bench): gpu_bench(fast)

@pytest.mark.perf(max_time_us=40)
def test_left_out(gpu_bench): pytest.skip("not today")

@pytest.mark.perf(max_time_us=40)
def test_judged(gpu_bench):
    gpu_bench(fast)
    pytest.skip("it has been judged")
""",
        "--gpu-bench-markdown=run.md",
        GITHUB_ACTIONS="true",
    )
    result.stdout.fnmatch_lines(
        [
            "::warning file=*test_elsewhere::fast: no max_time_us for *, only for H200",
            "::warning file=*test_left_out::the limits of the test were not judged: not today",
            "gpu_bench: 1 test with limits skipped or xfailed, not judged: *::test_left_out (not today)",
            "*=== 2 skipped, 1 not judged in *",
        ]
    )
    summary = Path("run.md").read_text(encoding="utf-8")
    assert summary.startswith("## GPU benchmarks: ⚠️ 2 not judged, ✅ 1 passed on ")
    assert summary.count("⚠️ NOT JUDGED |") == 3  # both among what to look at, one among all measurements


def test_ci_is_shown_a_summary_and_the_failing_line_of_a_file_of_the_checkout(bench_run: BenchRun) -> None:
    project = Path("project")
    project.mkdir()
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "test_x.py").write_text(f"{HEAD}\ndef test_it(gpu_bench):\n    gpu_bench(fast)\n    assert 1 == 2\n")
    variables = {"GITHUB_STEP_SUMMARY": f"{Path.cwd()}/summary.md", "GITHUB_WORKSPACE": str(Path.cwd())}
    result = bench_run("", "project", GITHUB_ACTIONS="true", **variables)
    (line,) = [line for line in result.stdout.lines if line.startswith("::error ")]
    number = (project / "test_x.py").read_text().count("\n")
    assert line == f"::error file=project/test_x.py,line={number},title=test_x.py%3A%3Atest_it::assert 1 == 2"
    assert "test_it" in Path("summary.md").read_text(encoding="utf-8")
