"""Runs that are compared with a saved run."""

import html
from importlib import metadata
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.results.store import read_run, write_run
from tests.plugin.conftest import BenchRun, RecordRun
from tests.plugin.saving import COMPARES, MEASURES

BOTH = COMPARES + MEASURES.replace("test_it", "test_time")
AT_3_PERCENT = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:3%")


@pytest.fixture
def save(bench_run: BenchRun) -> None:
    bench_run(BOTH, "--gpu-bench-save=main")


@pytest.mark.usefixtures("save")
def test_a_failure_has_its_reasons_everywhere(bench_run: BenchRun) -> None:
    """In pytest's report, JUnit, Markdown, JSON and on the page; the saved run's toolchain is made another one."""
    (path,) = Path(".gpu_benchmarks").rglob("*.json")
    saved = read_run(path)
    write_run(msgspec.structs.replace(saved, machine_info={**saved.machine_info, "torch": "2.5.0"}), path)
    files = {"markdown": "summary.md", "json": "run.json", "html": "page.html"}
    options = [f"--gpu-bench-{name}={file}" for name, file in files.items()]
    result = bench_run(COMPARES, *options, *AT_3_PERCENT, "--junitxml=junit.xml", FACTOR="1.5")
    result.assert_outcomes(failed=1)
    reason = f"torch 2.5.0 -> {metadata.version('torch')}"
    result.stdout.fnmatch_lines(["E *LimitBroken: candidate is slower *", f"E *with it: {reason}"])
    (verdict,) = read_run(Path("run.json")).records[0].measurements[1].verdicts
    assert verdict.reasons == (reason,)
    junit = Path("junit.xml").read_text()
    assert f'<property name="gpu_bench.candidate.reasons" value="{html.escape(reason)}"' in junit
    assert f"<br>with it: {reason.replace('>', '&#62;')} |" in Path("summary.md").read_text()
    assert '"reasons":["with it: torch 2.5.0 ' in Path("page.html").read_text()


def test_a_mistyped_run_ends_the_command_with_what_there_is(bench_run: BenchRun) -> None:
    bench_run(MEASURES, "--gpu-bench-save=main")
    options = ("--gpu-bench-compare=mian", "--gpu-bench-compare-fail=median:5%")
    result = bench_run(MEASURES, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = (
        f"ERROR: --gpu-bench-compare=mian: there is no saved run and no file 'mian'; {Path.cwd()}/.gpu_benchmarks "
        "has 1 run: 0001 (main); did you mean 'main'? (for a first run, --gpu-bench-missing-baseline=ignore goes on "
        "without)"
    )
    assert said in result.stderr.lines
    result = bench_run(MEASURES, *options, "--gpu-bench-missing-baseline=ignore")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["gpu_bench: compared with nothing: there is no saved run*'mian'*"])


def test_a_change_that_is_only_shown_needs_no_run(bench_run: BenchRun) -> None:
    bench_run(COMPARES, "--gpu-bench-compare=main").assert_outcomes(passed=1)
    result = bench_run(COMPARES, "--gpu-bench-compare=main", "--gpu-bench-missing-baseline=fail")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --gpu-bench-compare=main: there is no saved run*=warn goes on without)"])


@pytest.mark.usefixtures("forked", "save")
def test_workers_are_given_what_to_compare_with(bench_run: BenchRun) -> None:
    result = bench_run(BOTH, *AT_3_PERCENT, "--gpu-bench-save=second", "-n1", FACTOR="1.05")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["gpu_bench: saved as *0002_second~failed.json: *"])
    (path,) = Path(".gpu_benchmarks").glob("*/0002_second~failed.json")
    assert len(read_run(path).records) == 2


def test_a_run_is_compared_with_the_one_before_that_has_its_name(
    record_run: RecordRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    for factor, ratio in (("1", None), ("2", 2.0), ("2", 1.0)):
        monkeypatch.setenv("FACTOR", factor)
        recorder = record_run(MEASURES, "--gpu-bench-save=main", "--gpu-bench-compare=main")
        change = recorder.records[0].measurements[0].change
        assert (change and change.ratio) == pytest.approx(ratio)


REFUSED = {
    "GPU_BENCH_COMPARE=": "GPU_BENCH_COMPARE was given an empty value: name one, or leave it out",
    "--gpu-bench-compare=": "--gpu-bench-compare was given an empty value: *",
    "--gpu-bench-save=": "--gpu-bench-save was given an empty value: *",
    "--gpu-bench-save=latest": "*'latest' is not valid, latest means the newest run of any name: choose another*",
    "--gpu-bench-compare-fail=median:5%": "*median:5% compares with nothing: give --gpu-bench-compare too",
    "--gpu-bench-compare=taken": "*taken is damaged, or no saved run: JSON is malformed*",
    "--gpu-bench-compare=taken.py": "*taken.py is Python source, and no saved run: write latest for the newest one*",
    "--gpu-bench-storage=taken": "*: 'taken' is not valid, it must be a folder, and is a file",
}


@pytest.mark.parametrize("option", REFUSED)
def test_a_comparison_that_cannot_be_meant_is_refused(bench_run: BenchRun, option: str) -> None:
    """An empty variable is that of CI whose own is not set: nothing would be compared, and everything would pass."""
    for name in ("taken", "taken.py"):
        Path(name).write_text("a file")
    is_variable = option.startswith("GPU")
    result = bench_run(MEASURES, GPU_BENCH_COMPARE="") if is_variable else bench_run(MEASURES, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {REFUSED[option]}"])


@pytest.mark.parametrize("name", ["main", "there.py"])
def test_a_run_may_be_named_like_a_folder_or_a_file(bench_run: BenchRun, name: str) -> None:
    """A damaged one is told."""
    both = (f"--gpu-bench-save={name}", f"--gpu-bench-compare={name}")
    bench_run(MEASURES, *both).stdout.fnmatch_lines(
        [f"*compared with nothing: there is no saved run and no file '{name}*"]
    )
    (path,) = Path(".gpu_benchmarks").rglob("*.json")
    Path("main").mkdir()
    Path("there.py").write_text("def test_it(): pass")
    bench_run(MEASURES, both[1]).stdout.fnmatch_lines([f"gpu_bench: compared with {name}: 1 of 1 test, *"])
    path.write_bytes(path.read_bytes()[:200])
    result = bench_run(MEASURES, both[1])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: --gpu-bench-compare={name}: *0001_{name}.json is damaged, or no saved run: *"]
    )


def test_a_tolerance_of_the_ini_file_without_a_run_is_said(bench_run: BenchRun) -> None:
    Path("pytest.ini").write_text("[pytest]\ngpu_bench_compare_fail = median:5%\n")
    result = bench_run(MEASURES)
    result.stdout.fnmatch_lines(["gpu_bench: compare_fail=median:5% was not judged: give --gpu-bench-compare too"])
    bench_run(MEASURES, "--gpu-bench-compare-fail=median:5%", "--gpu-bench-disable").assert_outcomes(passed=1)
