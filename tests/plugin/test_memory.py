"""Runs that are saved, runs that are held against them, and what CI is shown."""

import json
from pathlib import Path

import pytest

from pytest_gpubench.results.model import Measurement, Outcome, Verdict
from pytest_gpubench.results.store import read_run
from tests.plugin.conftest import HEAD, BenchRun, RecordRun

SPEEDS = """
import os
FACTOR = float(os.environ.get("FACTOR", "1"))
DRIFT = float(os.environ.get("DRIFT", "1"))
SLOW_REPS = int(os.environ.get("SLOW_REPS", "0"))
STEPS = [1 + n / 1000 for n in range(-4, 5)]

@scripted([11.0] * SLOW_REPS + [10.0 * FACTOR * DRIFT * step for step in 100 * STEPS])
def candidate(*args): return 0

@scripted([20.0 * DRIFT * step for step in STEPS])
def reference(*args): return 0
"""
COMPARES = f"{SPEEDS}\ndef test_it(gpu_bench): gpu_bench.compare(candidate, reference)\n"
MEASURES = f"{SPEEDS}\ndef test_it(gpu_bench): gpu_bench(candidate)\n"


@pytest.fixture
def save(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save a run named main."""
    bench_run(COMPARES + MEASURES.replace("test_it", "test_time"), "--gpu-bench-save=main")


def test_a_run_is_saved_and_read_again(bench_run: BenchRun, pytester: pytest.Pytester) -> None:
    result = bench_run(COMPARES, "--gpu-bench-save=main", "--gpu-bench-json=run.json", "--gpu-bench-reps=20")
    result.stdout.fnmatch_lines(
        ["gpu_bench: 1 test written to run.json", "gpu_bench: saved as .gpu_benchmarks/*/0001_*"]
    )
    (path,) = pytester.path.glob(".gpu_benchmarks/*/0001_main.json")
    saved, written = read_run(path), read_run(pytester.path / "run.json")
    assert saved.records == written.records
    assert saved.name == "main"
    assert saved.settings["reps"] == "20"
    assert [item.role for item in saved.records[0].measurements] == ["reference", "candidate"]
    assert json.loads(path.read_text())["benchmarks"][0]["stats"]["median"] == pytest.approx(20e-6, rel=0.01)
    assert (pytester.path / ".gpu_benchmarks" / ".gitignore").read_text() == "*\n"


def test_nothing_measured_is_written_but_not_saved(bench_run: BenchRun, pytester: pytest.Pytester) -> None:
    result = bench_run("def test_it(): pass", "--gpu-bench-json=run.json", "--gpu-bench-autosave")
    assert result.ret == 0
    assert read_run(pytester.path / "run.json").records == ()
    assert not (pytester.path / ".gpu_benchmarks").exists()
    result = bench_run("def test_it(): pass", "--gpu-bench-save=main")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gpu_bench: --gpu-bench-save=main: nothing was measured, so nothing is saved"])


@pytest.mark.usefixtures("save")
@pytest.mark.parametrize(
    ("factor", "drift", "tolerance", "fails"),
    [
        ("1", "1", "median:3%", 0),
        ("1.02", "1", "median:3%", 0),
        ("1.05", "1", "median:3%", 2),
        ("1", "1.05", "median:3%", 2),
        ("1", "1.05", "speedup:3%", 1),  # the test without a reference has nothing to tell drift by
        ("1.05", "1", "speedup:3%", 2),
        ("1.05", "1", "median:2us", 0),
        ("1.05", "1", "median:0.2us", 2),
    ],
)
def test_slower_than_the_saved_run_fails(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, factor: str, drift: str, tolerance: str, fails: int
) -> None:
    monkeypatch.setenv("FACTOR", factor)
    monkeypatch.setenv("DRIFT", drift)
    options = ("--gpu-bench-compare=main", f"--gpu-bench-compare-fail={tolerance}")
    result = bench_run(COMPARES + MEASURES.replace("test_it", "test_time"), *options)
    result.assert_outcomes(passed=2 - fails, failed=fails)
    if fails:
        result.stdout.fnmatch_lines(["E *LimitBroken: candidate is slower *than in the baseline 'main': 1.05*"])


@pytest.mark.usefixtures("save")
@pytest.mark.parametrize(("limit", "fails"), [("0.03", True), ("0.06", False), ("'median:3%'", True)])
def test_the_marker_limits_the_regression(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, limit: str, fails: bool
) -> None:
    monkeypatch.setenv("FACTOR", "1.05")
    source = COMPARES.replace("def test_it", f"@pytest.mark.perf(max_regression={limit})\ndef test_it")
    result = bench_run(source, "--gpu-bench-compare=main", "--junitxml=junit.xml")
    result.assert_outcomes(failed=fails, passed=not fails)
    assert ("<failure" in Path("junit.xml").read_text()) == fails
    again = bench_run(source, "--lf", "--gpu-bench-compare=main")
    assert again.parseoutcomes().get("failed", 0) == fails


@pytest.mark.parametrize(("slow_reps", "fails", "said"), [(0, 0, 0), (20, 0, 1), (40, 1, 0)])
def test_a_slow_moment_is_measured_again(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, slow_reps: int, fails: int, said: int
) -> None:
    bench_run(MEASURES, "--gpu-bench-save=main", "--gpu-bench-reps=20")
    monkeypatch.setenv("SLOW_REPS", str(slow_reps))
    options = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%", "--gpu-bench-reps=20")
    result = bench_run(MEASURES, *options)
    result.assert_outcomes(passed=1 - fails, failed=fails)
    assert ("measured a second time, as the first time it came out otherwise" in result.stdout.str()) == said


def test_a_test_that_has_changed_is_not_called_slower(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    bench_run(COMPARES, "--gpu-bench-save=main")
    monkeypatch.setenv("FACTOR", "2")
    source = COMPARES.replace("gpu_bench.compare", "x = 1; gpu_bench.compare")
    result = bench_run(source, "--gpu-bench-compare=main", "--gpu-bench-compare-fail=speedup:5%")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*the test itself has changed since the baseline 'main'; save a new one"])


@pytest.mark.usefixtures("save")
@pytest.mark.parametrize(
    ("policy", "outcome", "said"),
    [("fail", "failed", True), ("warn", "passed", True), ("ignore", "passed", False)],
)
def test_a_test_that_the_saved_run_lacks(bench_run: BenchRun, policy: str, outcome: str, said: bool) -> None:
    source = MEASURES.replace("test_it", "test_new")
    result = bench_run(source, "--gpu-bench-compare=main", f"--gpu-bench-missing-baseline={policy}")
    result.assert_outcomes(**{outcome: 1})
    assert ("test_new is not in the baseline 'main'" in result.stdout.str()) == said


@pytest.mark.usefixtures("save")
@pytest.mark.parametrize(
    ("policy", "outcome", "said"),
    [("error", "failed", True), ("warn", "passed", True), ("ignore", "passed", False)],
)
def test_times_of_different_kinds_are_never_compared(
    bench_run: BenchRun, policy: str, outcome: str, said: bool
) -> None:
    options = ("--gpu-bench-compare=main", f"--gpu-bench-host-mismatch={policy}", "--gpu-bench-cache=hot")
    result = bench_run(COMPARES, *options)
    result.assert_outcomes(**{outcome: 1})
    assert ("was measured in another way" in result.stdout.str()) == said


def test_the_first_run_has_nothing_to_be_compared_with(bench_run: BenchRun) -> None:
    result = bench_run(COMPARES, "--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["gpu_bench: compared with nothing: there is no saved run*'main'*"])
    result = bench_run(COMPARES, "--gpu-bench-compare=main", "--gpu-bench-missing-baseline=fail")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gpu-bench-compare=main: there is no saved run*"])


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '{"benchmarks": []}'])
def test_a_damaged_run_is_refused_in_one_sentence(bench_run: BenchRun, content: str) -> None:
    Path("old.json").write_text(content)
    result = bench_run(COMPARES, "--gpu-bench-compare=old.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gpu-bench-compare=old.json: *old.json*"])


@pytest.mark.usefixtures("save")
def test_a_change_is_shown_where_nothing_is_demanded(record_run: RecordRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTOR", "1.5")
    recorder = record_run(COMPARES, "--gpu-bench-compare")
    reference, candidate = recorder.records[0].measurements
    assert candidate.change is not None
    assert reference.change is not None
    assert candidate.change.ratio == pytest.approx(1.5, rel=0.01)
    assert (candidate.change.metric, reference.change.metric) == ("speedup", "median")
    assert candidate.verdicts == ()


@pytest.mark.usefixtures("save")
def test_a_baseline_that_guards_nothing_any_more_is_called_stale(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTOR", "0.5")
    result = bench_run(COMPARES, "--gpu-bench-compare", "--gpu-bench-compare-fail=speedup:5%")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["gpu_bench: warning: *baseline stale: candidate is faster than the baseline*"])


@pytest.mark.usefixtures("save")
def test_workers_are_given_what_to_compare_with(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTOR", "1.05")
    options = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:3%", "--gpu-bench-save=second", "-n2")
    result = bench_run(COMPARES + MEASURES.replace("test_it", "test_time"), *options)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["gpu_bench: saved as *0002_second.json"])
    (path,) = Path(".gpu_benchmarks").glob("*/0002_second.json")
    assert len(read_run(path).records) == 2


def test_a_storage_that_cannot_be_written_loses_no_result(bench_run: BenchRun) -> None:
    Path("taken").write_text("a file")
    result = bench_run(COMPARES, "--gpu-bench-storage=taken", "--gpu-bench-save=main", "--gpu-bench-json=run.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*gpu_bench comparisons*", "gpu_bench: 1 test written to run.json", "gpu_bench: *taken*"]
    )
    assert len(read_run(Path("run.json")).records) == 1


def test_an_interrupted_run_is_saved(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEAD + COMPARES + "\ndef test_stop(gpu_bench): raise KeyboardInterrupt\n")
    options = ("-p", "no:benchmark", "--gpu-bench-timer=scripted", "--gpu-bench-json=run.json")
    assert pytester.runpytest_subprocess(*options).ret == pytest.ExitCode.INTERRUPTED
    assert [record.nodeid.partition("::")[2] for record in read_run(Path("run.json")).records] == ["test_it"]


def test_examples_are_held_against_nothing(bench_run: BenchRun) -> None:
    source = f"""{SPEEDS}
from hypothesis import given, settings, strategies as st
@pytest.mark.perf(max_regression=0.05)
@settings(max_examples=3, database=None)
@given(n=st.integers(1, 9))
def test_it(gpu_bench, n): gpu_bench.compare(candidate, reference, (n,))
"""
    bench_run(source, "--gpu-bench-save=main").assert_outcomes(passed=1)
    bench_run(source, "--gpu-bench-compare").assert_outcomes(passed=1)


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


def test_a_page_and_a_summary_are_written(bench_run: BenchRun) -> None:
    pytest.importorskip("plotly")
    result = bench_run(COMPARES, "--gpu-bench-html=page.html", "--gpu-bench-markdown=run.md")
    result.stdout.fnmatch_lines(["gpu_bench: page written to page.html", "gpu_bench: summary written to run.md"])
    assert Path("page.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_verdicts_of_the_past_are_known_by_their_limit() -> None:
    from pytest_gpubench.past import is_of_past
    from pytest_gpubench.results.model import Timing

    verdicts = [
        Verdict(limit=limit, outcome=Outcome.PASS, sentence="") for limit in ("max_regression=0.1", "min_speedup=1")
    ]
    item = Measurement(timing=Timing(label="a", timer="wall", cache="cold", device="b"), verdicts=tuple(verdicts))
    assert [is_of_past(verdict) for verdict in item.verdicts] == [True, False]
