"""Runs that are saved, runs that are held against them, and what CI is shown."""

import errno
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_gpubench.results.model import Measurement, Outcome
from pytest_gpubench.results.store import read_run
from tests.plugin.conftest import HEAD, BenchRun, RecordRun
from tests.results.measured import verdict

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
    result.stdout.fnmatch_lines(["gpu_bench", "gpu_bench: 1 test written to run.json", "gpu_bench: *taken*"])
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
    from pytest_gpubench.results.model import Timing

    verdicts = [verdict(limit, Outcome.PASS) for limit in ("max_regression=0.1", "min_speedup=1")]
    item = Measurement(timing=Timing(label="a", timer="wall", cache="cold", device="b"), verdicts=tuple(verdicts))
    assert [verdict.is_of_past for verdict in item.verdicts] == [True, False]


# one command that compares and saves


def test_a_run_is_compared_with_the_one_before_that_has_its_name(
    record_run: RecordRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    for factor, ratio in (("1", None), ("2", 2.0), ("2", 1.0)):
        monkeypatch.setenv("FACTOR", factor)
        recorder = record_run(MEASURES, "--gpu-bench-save=main", "--gpu-bench-compare=main")
        change = recorder.records[0].measurements[0].change
        assert (change and change.ratio) == pytest.approx(ratio)


def test_the_page_shows_the_run_compared_with_and_the_history_without_itself(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = import_module("pytest_gpubench.report.html.page")
    asked: list[Any] = []

    def note(*given: object) -> str:
        asked.append(given)
        return "page"

    monkeypatch.setattr(page, "html_page", note)
    options = ("--gpu-bench-save=main", "--gpu-bench-compare=main", "--gpu-bench-json=run.json")
    for _ in range(2):
        bench_run(MEASURES, *options)
    bench_run(MEASURES, *options, "--gpu-bench-html=new/page.html", "--gpu-bench-compare=run.json")
    ((run, baseline, past),) = asked
    first, second, third = (read_run(path) for path in sorted(Path(".gpu_benchmarks").glob("*/*_main.json")))
    assert [each.datetime for each in past] == [first.datetime, second.datetime]
    assert baseline.datetime == second.datetime  # run.json as it was before this run wrote it
    assert run.datetime == third.datetime == read_run(Path("run.json")).datetime
    assert Path("new/page.html").read_text() == "page"


# what would guard nothing


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gpu-bench-compare="], "--gpu-bench-compare was given an empty value: *"),
        (["--gpu-bench-save="], "--gpu-bench-save was given an empty value: *"),
        (["--gpu-bench-compare", "--gpu-bench-compare-fail="], "--gpu-bench-compare-fail was given an empty value: *"),
        (["--gpu-bench-compare-fail=median:5%"], "*median:5% compares with nothing: give --gpu-bench-compare too"),
        (["--gpu-bench-compare", "folder"], "*these are tests and no saved run; *write --gpu-bench-compare=latest"),
        (["--gpu-bench-compare", "test_a.py::test_it"], "*these are tests and no saved run; *"),
        (["--gpu-bench-compare", "there.py"], "*these are tests and no saved run; *write --gpu-bench-compare=latest"),
        (["--gpu-bench-compare", "gone.py"], "*these are tests and no saved run; *"),
        (["--gpu-bench-compare", "taken"], "*taken is not JSON: name a file that --gpu-bench-save or*"),
        (["--gpu-bench-compare", "--gpu-bench-storage=taken"], "--gpu-bench-compare=latest: taken cannot be read: *"),
    ],
)
def test_a_comparison_that_cannot_be_meant_is_refused(bench_run: BenchRun, options: list[str], said: str) -> None:
    Path("folder").mkdir()
    Path("taken").write_text("a file")
    Path("there.py").write_text("def test_it(): pass")
    result = bench_run(MEASURES, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])


def test_a_limit_that_nothing_is_held_against_is_said_once(bench_run: BenchRun, pytester: pytest.Pytester) -> None:
    marked = "\n@pytest.mark.perf(max_regression=0.05)\ndef test_{}(gpu_bench): gpu_bench(candidate); gpu_bench(fast)\n"
    source = SPEEDS + "".join(marked.format(name) for name in "abcde")
    result = bench_run(source)
    result.assert_outcomes(passed=5)
    (line,) = [line for line in result.stdout.lines if "max_regression" in line]
    assert line.startswith("gpu_bench: warning: in 5 tests (")
    assert line.endswith(
        "and 2 more): max_regression was not judged, as nothing was compared: give --gpu-bench-compare"
    )
    for policy, said in (("warn", 2), ("ignore", 0)):
        lines = bench_run(source, "--gpu-bench-compare", f"--gpu-bench-missing-baseline={policy}").stdout.lines
        assert len([line for line in lines if "compared with nothing" in line]) == said  # in the header, and last
        assert not [line for line in lines if "max_regression was" in line]
    pytester.makeini("[pytest]\ngpu_bench_compare_fail = median:5%\n")
    result = bench_run(MEASURES)
    result.stdout.fnmatch_lines(["gpu_bench: compare_fail=median:5% was not judged: give --gpu-bench-compare too"])
    bench_run(MEASURES, "--gpu-bench-compare-fail=median:5%", "--gpu-bench-disable").assert_outcomes(passed=1)


def test_a_saved_run_of_another_gpu_model_is_no_baseline(bench_run: BenchRun) -> None:
    bench_run(COMPARES, "--gpu-bench-save=main")
    (path,) = Path(".gpu_benchmarks").glob("*/0001_main.json")
    name = read_run(path).records[0].device.name
    Path(".gpu_benchmarks/NVIDIA-X1").mkdir()
    Path(".gpu_benchmarks/NVIDIA-X1/0007_main.json").write_text(path.read_text().replace(name, "NVIDIA X1"))
    assert "changes" not in bench_run(COMPARES, "--gpu-bench-compare=main").stdout.str()
    path.unlink()
    for policy, outcome in (("error", "failed"), ("warn", "passed"), ("ignore", "passed")):
        result = bench_run(COMPARES, "--gpu-bench-compare=main", f"--gpu-bench-host-mismatch={policy}")
        result.assert_outcomes(**{outcome: 1})
        assert ("is in the baseline, only on NVIDIA X1" in result.stdout.str()) == (policy != "ignore")
        result.stdout.fnmatch_lines(["gpu_bench: compared with main: none of 1 test"])


def test_a_test_that_is_still_there_is_no_old_name_of_another(bench_run: BenchRun) -> None:
    bench_run(MEASURES, "--gpu-bench-save=main")
    both = MEASURES + "\ndef test_new(gpu_bench): gpu_bench(candidate)\n"
    result = bench_run(both, "--gpu-bench-compare=main", "-k", "test_new")
    result.stdout.fnmatch_lines(["*test_new is not in the baseline 'main': it is new*"])
    result = bench_run(MEASURES.replace("test_it", "test_new"), "--gpu-bench-compare=main")
    result.stdout.fnmatch_lines(["*test_new is not in the baseline 'main', but the same test is, as *::test_it*"])


# what is kept


def test_failed_tests_are_saved_with_their_numbers(bench_run: BenchRun) -> None:
    source = MEASURES + "\ndef test_bad(gpu_bench): gpu_bench(candidate); assert False\n"
    assert bench_run(source, "--gpu-bench-save=main").ret == pytest.ExitCode.TESTS_FAILED
    (path,) = Path(".gpu_benchmarks").glob("*/0001_main.json")
    assert [record.nodeid.partition("::")[2] for record in read_run(path).records] == ["test_it", "test_bad"]


def test_an_interrupted_run_says_that_it_is_not_whole(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEAD + COMPARES + "\ndef test_stop(gpu_bench): gpu_bench(fast); raise KeyboardInterrupt\n")
    options = ("-p", "no:benchmark", "--gpu-bench-timer=scripted", "--gpu-bench-save=main")
    result = pytester.runpytest_subprocess(*options)
    result.stdout.fnmatch_lines(["gpu_bench: saved as *0001_main.json: 2 tests, as the run was interrupted"])


def test_what_was_not_measured_becomes_nobodys_baseline(bench_run: BenchRun) -> None:
    bench_run(MEASURES, "--gpu-bench-autosave", "--gpu-bench-disable").assert_outcomes(passed=1)
    assert bench_run(MEASURES, "--gpu-bench-save=main", "--gpu-bench-disable").ret == pytest.ExitCode.TESTS_FAILED
    assert not Path(".gpu_benchmarks").exists()


@pytest.mark.parametrize("option", ["json", "markdown", "html"])
@pytest.mark.parametrize("path", ["/dev/full", "taken/file"])
def test_what_cannot_be_written_costs_neither_the_table_nor_the_rest(
    bench_run: BenchRun, option: str, path: str
) -> None:
    if option == "html":
        pytest.importorskip("plotly")
    Path("taken").write_text("a file")
    result = bench_run(COMPARES, f"--gpu-bench-{option}={path}", "--gpu-bench-save=main")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    reason = "No space left on device*" if path == "/dev/full" else "*"
    result.stdout.fnmatch_lines(["gpu_bench"])
    result.stdout.fnmatch_lines([f"gpu_bench: {path} cannot be written: {reason}"])
    assert list(Path(".gpu_benchmarks").glob("*/0001_main.json"))


def test_a_storage_without_room_loses_no_result(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pytest_gpubench.results.files.os.fsync", refuse)
    result = bench_run(COMPARES, "--gpu-bench-autosave")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["gpu_bench", "gpu_bench: *No space left on device; make room there*"])
    assert not list(Path(".gpu_benchmarks").glob("*/*.json"))


def test_an_error_of_our_own_costs_no_table(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    markdown = import_module("pytest_gpubench.report.markdown")
    monkeypatch.setattr(markdown, "markdown_summary", lambda run, failures: 1 / 0)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert bench_run(COMPARES).ret == pytest.ExitCode.OK  # nobody asked for that summary
    result = bench_run(COMPARES, "--gpu-bench-markdown=run.md", "--gpu-bench-json=run.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["gpu_bench", "*written to run.json", "gpu_bench: ZeroDivisionError: division by*"])


def test_two_runs_that_save_at_once_are_both_saved(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(HEAD + MEASURES)
    options = ["-p", "no:benchmark", "-p", "no:cacheprovider", "--gpu-bench-timer=scripted", "--gpu-bench-save=main"]
    command = [sys.executable, "-m", "pytest", *options]
    runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=pytester.path) for _ in range(2)]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    paths = sorted(pytester.path.glob(".gpu_benchmarks/*/*.json"))
    assert [path.name for path in paths] == ["0001_main.json", "0002_main.json"]
    assert all(len(read_run(path).records) == 1 for path in paths)


def test_a_dirty_tree_and_a_missing_git_are_told(
    bench_run: BenchRun, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_git:
        without_git.setenv("PATH", "")
        bench_run(MEASURES, "--gpu-bench-autosave", "--gpu-bench-json=run.json")
    assert read_run(pytester.path / "run.json").commit_info.error == "git is not installed"
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "--git-dir=.git", "--work-tree=.", *words], check=True, cwd=pytester.path)
    bench_run(MEASURES + "\n# changed\n", "--gpu-bench-autosave")
    names = sorted(path.name for path in pytester.path.glob(".gpu_benchmarks/*/*.json"))
    assert [name.endswith("_dirty.json") for name in names] == [False, True]
    assert names[0].startswith("0001_unversioned_")


# workers


def test_a_worker_needs_no_file(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given the run through the controller: here its storage and its folder are none of the controller's."""
    from pytest_gpubench.plugin.baseline import BASELINE, ComparedRun
    from pytest_gpubench.results.baseline import Baseline
    from pytest_gpubench.results.counterpart import PastTest
    from pytest_gpubench.settings import Settings

    bench_run(MEASURES, "--gpu-bench-save=main")
    (path,) = Path(".gpu_benchmarks").glob("*/*.json")
    run = read_run(path)
    path.unlink()

    class Worker:
        def __init__(self, **given: str) -> None:
            self.workerinput = given

        def getoption(self, name: str, default: object) -> object:
            return default

    given = Worker(**{BASELINE: Baseline([("main", run)]).encode()})
    worker = ComparedRun(cast(Any, given), Settings(compare="main", missing_baseline="fail"), cast(Any, None))
    assert worker.baseline is not None
    (record,) = run.records
    assert isinstance(worker.baseline.find(record.nodeid, record.source, record.device, {}), PastTest)
    assert ComparedRun(cast(Any, Worker()), Settings(compare="main"), cast(Any, None)).baseline is None


# CI


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


def test_a_summary_that_is_asked_for_is_written_where_nothing_was_measured(bench_run: BenchRun) -> None:
    Path("run.md").write_text("of the last run")
    bench_run("def test_it(): pass", "--gpu-bench-markdown=run.md")
    assert "of the last run" not in Path("run.md").read_text()


def test_the_table_says_what_became_slower(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"a": "slow", "b": "candidate", "c": "candidate"}
    tests = "".join(f"\ndef test_{name}(gpu_bench): gpu_bench({function})\n" for name, function in names.items())
    bench_run(SPEEDS + tests, "--gpu-bench-save=main")
    monkeypatch.setenv("FACTOR", "1.5")
    new = "\ndef test_new(gpu_bench): gpu_bench(fast, 1)\n"
    options = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%")
    result = bench_run(SPEEDS + tests + new, *options)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*Time against main*"])
    said = "gpu_bench: compared with main: 3 of 4 tests, 2 slower (2 by more than is tolerated)"
    result.stdout.fnmatch_lines(["*test_b * 1.500x [[]1.4*, 1.5*[]]*", said])


def test_a_limit_that_is_broken_the_first_time_is_broken(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second measuring for the saved run's sake does not make up for another limit."""
    source = MEASURES.replace("def test_it", "@pytest.mark.perf(max_time_us=10.5)\ndef test_it")
    bench_run(source, "--gpu-bench-save=main", "--gpu-bench-reps=20")
    monkeypatch.setenv("SLOW_REPS", "20")
    options = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%", "--gpu-bench-reps=20")
    result = bench_run(source, *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *LimitBroken: candidate is too slow: median 11.00 us*"])


def test_examples_say_that_they_are_held_against_nothing(bench_run: BenchRun) -> None:
    source = f"""{SPEEDS}
from hypothesis import given, settings, strategies as st
@pytest.mark.perf(max_regression=0.05)
@settings(max_examples=3, database=None)
@given(n=st.integers(1, 9))
def test_it(gpu_bench, n): gpu_bench.compare(candidate, reference, (n,))
"""
    result = bench_run(source)
    result.stdout.fnmatch_lines(["gpu_bench: warning: *max_regression was not judged: the examples of @given are*"])


def test_a_test_that_is_run_again_begins_anew(bench_run: BenchRun) -> None:
    Path("conftest.py").write_text(
        "from _pytest.runner import runtestprotocol\n"
        "def pytest_runtest_protocol(item, nextitem):\n"
        "    runtestprotocol(item, nextitem=nextitem, log=False)\n"
        "    for report in runtestprotocol(item, nextitem=nextitem, log=False):\n"
        "        item.ihook.pytest_runtest_logreport(report=report)\n"
        "    return True\n"
    )
    source = f"""{SPEEDS}
tries = []
@pytest.mark.perf(max_time_us=100)
def test_it(gpu_bench):
    tries.append(1)
    if len(tries) == 1:
        gpu_bench(candidate)
        raise ValueError("for another reason")
"""
    result = bench_run(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*perf(max_time_us=100) was never judged: the test measured nothing*"])


def test_an_exit_in_the_teardown_keeps_a_test_once(pytester: pytest.Pytester) -> None:
    source = """
@pytest.fixture
def leaving():
    yield
    pytest.exit("enough")

def test_it(gpu_bench, leaving): gpu_bench(fast)
"""
    pytester.makepyfile(HEAD + source)
    options = ("-p", "no:benchmark", "--gpu-bench-timer=scripted", "--gpu-bench-json=run.json")
    pytester.runpytest_subprocess(*options)
    assert len(read_run(Path("run.json")).records) == 1


def test_a_saved_run_may_be_named_like_a_file_of_tests(bench_run: BenchRun) -> None:
    Path("there.py").write_text("def test_it(): pass")
    bench_run(MEASURES, "--gpu-bench-save=there.py").assert_outcomes(passed=1)
    bench_run(MEASURES, "--gpu-bench-compare=there.py").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("timer", "options", "reason"),
    [
        ("scripted", [], "the scripted timer runs nothing"),
        ("events", ["--gpu-bench-disable"], "'fast' was not measured: switched off by --gpu-bench-disable"),
        ("events", [], "there is no trace of 'fast' (ProfilerBusy: a torch profiler is already on*"),
    ],
)
def test_that_no_trace_was_taken_is_told_with_the_reason(
    bench_run: BenchRun, timer: str, options: list[str], reason: str
) -> None:
    source = """
def test_it(gpu_bench):
    import torch
    with torch.profiler.profile():
        gpu_bench(fast)
"""
    result = bench_run(source, "--gpu-bench-trace=traces", "--gpu-bench-reps=2", *options, timer=timer)
    result.stdout.fnmatch_lines([f"gpu_bench: no trace was taken: {reason}; see traces".replace("[", "[[]")])
