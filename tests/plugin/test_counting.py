"""Counters in runs of pytest: taken by one ncu for all tests, judged, saved, compared; each refusal a sentence."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench import counted
from pytest_gpubench.counted import groups_of
from pytest_gpubench.counters import raw_metrics
from pytest_gpubench.plugin.counting import ncu_command
from pytest_gpubench.results.model import Counts
from pytest_gpubench.structure import ncu
from pytest_gpubench.structure.ncu import find_ncu
from tests.plugin import fake_ncu
from tests.plugin.conftest import BenchRun, Recorder, RecordRun

pytestmark = pytest.mark.usefixtures("stubbed_torch")

Count = Callable[[Mapping[str, object]], None]
ONE_PASS, SEVERAL = groups_of(["instructions"])[0], groups_of(["atomics"])[0]
LIMITED = "@pytest.mark.perf(max_instructions=1000)\ndef test_it(gpu_bench): gpu_bench(fast)\n"
SLOW = "@pytest.mark.perf(max_time_us=5)\ndef test_it(gpu_bench): gpu_bench(fast)\n"
ALONE = "def test_it(gpu_bench): gpu_bench(fast)\n"
PAIR = "@pytest.mark.perf(min_speedup=1)\ndef test_it(gpu_bench): gpu_bench.compare(slow, fast)\n"
OTHER_WAY = "@pytest.mark.perf(max_instructions=7)\ndef test_other(gpu_bench): gpu_bench.compare(fast, slow)\n"
SAVED = ("--gpu-bench-save=main", "--gpu-bench-sessions=1")
COMPARED = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=instructions:0.1%")


@pytest.fixture
def count(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Count:
    """Let calls be counted: told each function's captures, in turn, each of a kernel and its counts."""

    def command(ncu: str, *others: Any) -> list[str]:
        return [sys.executable, fake_ncu.__file__, *ncu_command(ncu, *others)[1:]]

    monkeypatch.setattr(counted, "why_uncounted", fake_ncu.why_uncounted)
    monkeypatch.setattr(ncu, "find_ncu", lambda: "ncu")
    monkeypatch.setattr("pytest_gpubench.plugin.counting.ncu_command", command)

    def write(rows: Mapping[str, object]) -> None:
        Path("counts.json").write_text(json.dumps(rows))

    return write


def ncu_runs() -> list[list[str]]:
    return [line.split() for line in Path("ncu-runs").read_text().splitlines()] if Path("ncu-runs").exists() else []


def counts_in(found: Recorder) -> list[Counts | None]:
    return [item.timing.counts for record in found.records for item in record.measurements]


def test_one_ncu_takes_the_counters_of_all_tests_that_ask(bench_run: BenchRun, count: Count) -> None:
    """Those of a test without a limit are not taken, nor those of a group that nobody asks for."""
    count({"fast": [["kernel", 1000]], "slow": [["kernel", 999]]})
    other = "@pytest.mark.perf(max_counters={'instructions': 999})\ndef test_other(gpu_bench): gpu_bench(slow)\n"
    bench_run(LIMITED + other + ALONE.replace("it", "without")).assert_outcomes(passed=3)
    assert ncu_runs() == [raw_metrics(ONE_PASS)]


@pytest.mark.parametrize(("captures", "outcome"), [([1000, 1000], "passed"), ([1001, 1001], "failed")])
def test_both_sides_of_a_limit(bench_run: BenchRun, count: Count, captures: list[int], outcome: str) -> None:
    count({"fast": [["kernel", each] for each in captures]})
    result = bench_run(LIMITED)
    result.assert_outcomes(**{outcome: 1})
    number = f"{captures[0]:,}"
    result.stdout.fnmatch_lines([f"*{number} <= 1,000 instructions*"])


def test_all_counters_are_taken_in_two_processes_and_recorded(record_run: RecordRun, count: Count) -> None:
    count({"fast": [["kernel", 7]]})
    found = record_run(ALONE, "--gpu-bench-counters=all")
    assert ncu_runs() == [raw_metrics(ONE_PASS), raw_metrics(SEVERAL)]
    (counts,) = counts_in(found)
    assert counts is not None
    assert set(counts.captures) == {*ONE_PASS, *SEVERAL}
    assert counts.captures["instructions"] == (7.0,) * 3
    assert counts.captures["atomics"] == (10.0,) * 3  # a sum of two metrics


def test_a_test_is_given_the_counters_with_its_timing(bench_run: BenchRun, count: Count) -> None:
    """Under ncu there is neither a time nor a count."""
    count({"fast": [["kernel", 7]]})
    source = """
def test_it(gpu_bench):
    timing = gpu_bench(fast)
    assert timing.median_us == 10
    assert timing.counts.captures["instructions"] == (7, 7, 7)
    assert timing.counts.median("instructions") == 7
"""
    bench_run(source, "--gpu-bench-counters=instructions").assert_outcomes(passed=1)


def test_named_counters_are_taken_with_those_of_their_group(record_run: RecordRun, count: Count) -> None:
    count({"fast": [["kernel", 7]]})
    found = record_run(ALONE, "--gpu-bench-counters=dram_read_bytes,smsp__cycles_active.sum")
    assert ncu_runs() == [raw_metrics(ONE_PASS), ["smsp__cycles_active.sum"]]
    (counts,) = counts_in(found)
    assert counts is not None
    assert set(counts.captures) == {*ONE_PASS, "smsp__cycles_active.sum"}


def test_a_change_since_a_saved_run_fails_once_two_processes_agree(bench_run: BenchRun, count: Count) -> None:
    count({"fast": [["kernel", 1000]]})
    bench_run(ALONE, *SAVED, "--gpu-bench-counters=all").assert_outcomes(passed=1)
    Path("ncu-runs").unlink()
    bench_run(ALONE, *COMPARED).assert_outcomes(passed=1)
    assert len(ncu_runs()) == 1
    count({"fast": [["kernel", 1010]]})
    result = bench_run(ALONE, *COMPARED)
    result.assert_outcomes(failed=1)
    assert len(ncu_runs()) == 3
    told = "fast executes 1,010 instructions against 1,000 in the baseline 'main': 1.010x, wanted at most 1.001x"
    result.stdout.fnmatch_lines([f"*LimitBroken: {told} (6 and 3 captures in 2 processes, each the same)"])


def test_a_limit_of_a_mark_is_saved_and_compared(bench_run: BenchRun, count: Count) -> None:
    marked = f"@pytest.mark.perf(max_regression='instructions:0.1%')\n{ALONE}"
    count({"fast": [["kernel", 1000]]})
    assert bench_run(marked, *SAVED).ret == 0
    bench_run(marked, "--gpu-bench-compare=main").assert_outcomes(passed=1)
    count({"fast": [["kernel", 2000]]})
    bench_run(marked, "--gpu-bench-compare=main").assert_outcomes(failed=1)


def test_a_saved_run_without_counters_is_told(bench_run: BenchRun, count: Count) -> None:
    count({"fast": [["kernel", 1000]]})
    bench_run(ALONE, *SAVED).assert_outcomes(passed=1)
    result = bench_run(ALONE, *COMPARED)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*no counters in the baseline 'main': save a new one with --gpu-bench-counters=all*"])
    bench_run(ALONE, *COMPARED, "--gpu-bench-strict", "--gpu-bench-require=1").assert_outcomes(failed=1)


def test_what_fails_has_reasons_from_counters(bench_run: BenchRun, count: Count) -> None:
    """on-fail takes those of a test that fails. A reference has no limit."""
    count({"fast": [["kernel", 7]], "slow": [["kernel", 14]]})
    result = bench_run(PAIR + OTHER_WAY, "--gpu-bench-counters=on-fail")
    result.assert_outcomes(failed=1, passed=1)
    assert len(ncu_runs()) == 3  # of the test that fails in two processes, of the other in one
    result.stdout.fnmatch_lines(["*with it: executes 2.0x the instructions: 7 -> 14"])


def test_what_became_slower_has_reasons_from_counters(bench_run: BenchRun, count: Count) -> None:
    """They are taken where the saved run has some."""
    source = """
from pathlib import Path
arm = {"fast": fast, "slow": slow}[Path("arm").read_text()]
def test_it(gpu_bench): gpu_bench.measure(arm, label="arm")
"""
    Path("arm").write_text("fast")
    count({"arm": [["kernel", 7]]})
    bench_run(source, *SAVED, "--gpu-bench-counters=all").assert_outcomes(passed=1)
    count({"arm": [["kernel", 14]]})
    Path("arm").write_text("slow")
    compared = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%", "--gpu-bench-counters=on-fail")
    result = bench_run(source, *compared)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*with it: executes 2.0x the instructions: 7 -> 14"])


def test_other_kernels_than_those_timed_are_invalid(bench_run: BenchRun, count: Count) -> None:
    count({"fast": [["another", 7]]})
    result = bench_run(LIMITED)
    result.assert_outcomes(failed=1)
    told = "1 x kernel only when timed; 1 x another only under ncu"
    result.stdout.fnmatch_lines([f"*InvalidResult: fast: max_instructions=1000 cannot be judged: *{told}"])


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            "the driver lets only administrators*run as root*",
        ),
        ("==WARNING== No kernels were profiled.", "ncu took no counters: no kernel ran while it listened*"),
    ],
)
def test_what_ncu_cannot_do_is_told_and_judges_nothing(bench_run: BenchRun, count: Count, says: str, told: str) -> None:
    count({"says": says})
    result = bench_run(LIMITED)
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"*was not judged by max_instructions=1000: {told}"])
    bench_run(LIMITED, "--gpu-bench-strict", "--gpu-bench-require=1").assert_outcomes(failed=1)


def test_what_is_not_permitted_is_tried_once(bench_run: BenchRun, count: Count) -> None:
    count({"says": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"})
    assert bench_run(LIMITED + LIMITED.replace("it", "other"), "--gpu-bench-counters=all").ret == 0
    assert len(ncu_runs()) == 1


def test_without_ncu_it_says_what_to_install(
    bench_run: BenchRun, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "find_ncu", find_ncu)
    monkeypatch.setattr(ncu, "PLACES", ())
    monkeypatch.setenv("PATH", "")
    result = bench_run(LIMITED)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*not judged by max_instructions=1000: ncu is neither*install NVIDIA Nsight Compute*"])


def test_a_test_that_fails_under_ncu_is_told(bench_run: BenchRun, count: Count) -> None:
    count({"fast": [["kernel", 1000]]})
    fails = "def test_it(gpu_bench):\n    import os\n    assert 'UNDER_NCU' not in os.environ\n    gpu_bench(fast)\n"
    result = bench_run(f"@pytest.mark.perf(max_instructions=1000)\n{fails}")
    assert result.ret == 0
    told = "max_instructions=1000: its test fails in a process under ncu: *AssertionError"
    result.stdout.fnmatch_lines([f"*fast was not judged by {told}*"])


def test_a_process_that_dies_costs_its_own_test_the_counters(bench_run: BenchRun, count: Count) -> None:
    """All tests together, then each by itself."""
    count({"fast": [["kernel", 1000]]})
    dies = (
        "def test_dies(gpu_bench):\n    import os\n    if 'UNDER_NCU' in os.environ: os._exit(3)\n    gpu_bench(fast)\n"
    )
    result = bench_run(LIMITED + f"@pytest.mark.perf(max_instructions=1000)\n{dies}")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*was not judged by max_instructions=1000: *"])
    assert len(ncu_runs()) == 3


@pytest.mark.parametrize("marks", ["", "@pytest.mark.perf(counters='all')\n"])
def test_only_the_run_itself_takes_counters(
    bench_run: BenchRun, count: Count, monkeypatch: pytest.MonkeyPatch, marks: str
) -> None:
    """Not its other sessions, nor a run that measures nothing, nor a fresh process."""
    count({"fast": [["kernel", 7]]})
    options = () if marks else ("--gpu-bench-counters=all",)
    bench_run(f"{marks}{ALONE}", "--gpu-bench-save=main", "--gpu-bench-sessions=3", *options).assert_outcomes(passed=1)
    bench_run(f"{marks}{LIMITED}", "--gpu-bench-disable", *options).assert_outcomes(passed=1)
    monkeypatch.setenv("PYTEST_GPUBENCH_SESSION", "results.json")
    bench_run(f"{marks}{ALONE}", *options).assert_outcomes(passed=1)
    assert len(ncu_runs()) == 2


@pytest.mark.parametrize(("source", "outcome"), [(LIMITED, "passed"), (SLOW, "failed")])
def test_somebody_else_on_the_gpu_changes_no_counter(
    bench_run: BenchRun, count: Count, monkeypatch: pytest.MonkeyPatch, source: str, outcome: str
) -> None:
    count({"fast": [["kernel", 7]]})
    monkeypatch.setattr("pytest_gpubench.plugin.gpu_turn.GpuTurns.computing", lambda turns: "somebody came")
    result = bench_run(source)
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines(["*somebody came*"])


def test_tests_taken_by_themselves_have_so_much_time_together(
    bench_run: BenchRun, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    count({"fast": [["kernel", 1000]]})
    monkeypatch.setattr("pytest_gpubench.plugin.counting.MOST_FURTHER_S", 0.0)
    result = bench_run(LIMITED)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*was not judged by *: further processes of this run have taken 0 s"])
    bench_run(LIMITED + LIMITED.replace("it", "other")).assert_outcomes(passed=2)  # together


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        (LIMITED, ("--gpu-bench-counters=no",), "--gpu-bench-counters=no takes no counters"),
        (LIMITED, (), "counters are taken on a GPU, by ncu"),
    ],
)
def test_what_has_no_counters_says_why(bench_run: BenchRun, source: str, options: tuple[str, ...], told: str) -> None:
    result = bench_run(source, *options)
    assert result.ret == 0
    result.stdout.fnmatch_lines([f"*was not judged by max_instructions=1000: {told}*"])


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--gpu-bench-counters=some", "'some' is no counter: use one of instructions, *"),
        ("--gpu-bench-counters=dram__bytes_read.avg", "* is no sum over a call's kernels*"),
        ("--gpu-bench-compare-fail=instructions:5us", "*the counter instructions has no unit of time*"),
    ],
)
def test_an_invalid_option_says_what_to_write(bench_run: BenchRun, option: str, told: str) -> None:
    result = bench_run(ALONE, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{told}"])
