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
from pytest_gpubench.running_test import CurrentTest
from pytest_gpubench.structure import ncu
from pytest_gpubench.structure.ncu import find_ncu
from tests.plugin import fake_ncu
from tests.plugin.conftest import BenchRun, RecordRun

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


def test_one_ncu_takes_the_counters_of_all_tests_that_ask(bench_run: BenchRun, count: Count) -> None:
    """Those of a test without a limit are not taken, nor those of a group that nobody asks for."""
    count({"fast": [["kernel", 1000]], "slow": [["kernel", 1001]]})
    other = "@pytest.mark.perf(max_counters={'instructions': 1000})\ndef test_other(gpu_bench): gpu_bench(slow)\n"
    result = bench_run(LIMITED + other + ALONE.replace("it", "without"))
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines_random(["*1,000 <= 1,000 instructions*", "*1,001 <= 1,000 instructions*"])
    assert ncu_runs() == [raw_metrics(ONE_PASS)]


@pytest.mark.parametrize(
    ("wanted", "processes"),
    [
        ("all", [ONE_PASS, SEVERAL]),
        ("dram_read_bytes,smsp__cycles_active.sum", [ONE_PASS, ["smsp__cycles_active.sum"]]),
    ],
)
def test_counters_that_are_taken_together_have_a_process(
    record_run: RecordRun, count: Count, wanted: str, processes: list[list[str]]
) -> None:
    """A named counter is taken with those of its group."""
    count({"fast": [["kernel", 7]]})
    found = record_run(ALONE, f"--gpu-bench-counters={wanted}")
    assert ncu_runs() == [raw_metrics(each) for each in processes]
    ((counts,),) = ([item.timing.counts for item in record.measurements] for record in found.records)
    assert counts is not None
    assert set(counts.captures) == {name for each in processes for name in each}
    assert counts.captures["instructions"] == (7.0,) * 3
    assert counts.captures.get("atomics", (10.0,) * 3) == (10.0,) * 3  # a sum of two metrics


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


def test_a_change_since_a_saved_run_fails_once_two_processes_agree(bench_run: BenchRun, count: Count) -> None:
    count({"fast": [["kernel", 1000]]})
    marked = f"@pytest.mark.perf(max_regression='instructions:0.1%')\n{ALONE}"
    assert bench_run(marked, *SAVED).ret == 0
    Path("ncu-runs").unlink()
    bench_run(ALONE, *COMPARED).assert_outcomes(passed=1)
    assert len(ncu_runs()) == 1
    count({"fast": [["kernel", 1010]]})
    result = bench_run(ALONE, *COMPARED)
    result.assert_outcomes(failed=1)
    assert len(ncu_runs()) == 3
    told = "fast executes 1,010 instructions against 1,000 in the baseline 'main': 1.010x, wanted at most 1.001x"
    bench_run(marked, "--gpu-bench-compare=main").assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*LimitBroken: {told} (6 and 3 captures in 2 processes, each the same)"])


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


def test_what_ncu_may_not_do_is_tried_once_and_judges_nothing(bench_run: BenchRun, count: Count) -> None:
    count({"says": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"})
    two = LIMITED + LIMITED.replace("it", "other")
    result = bench_run(two, "--gpu-bench-counters=all")
    assert result.ret == 0
    told = "the driver lets only administrators*run as root*"
    result.stdout.fnmatch_lines([f"*was not judged by max_instructions=1000: {told}"])
    assert len(ncu_runs()) == 1
    bench_run(two, "--gpu-bench-strict", "--gpu-bench-require=1").assert_outcomes(failed=2)


def test_without_ncu_it_says_what_to_install(
    bench_run: BenchRun, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "find_ncu", find_ncu)
    monkeypatch.setattr(ncu, "PLACES", ())
    monkeypatch.setenv("PATH", "")
    result = bench_run(LIMITED)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*not judged by max_instructions=1000: ncu is neither*install NVIDIA Nsight Compute*"])


def test_a_test_that_fails_or_dies_under_ncu_costs_itself_the_counters(bench_run: BenchRun, count: Count) -> None:
    """All tests are taken together, then each by itself."""
    count({"fast": [["kernel", 1000]]})
    ends = "@pytest.mark.perf(max_instructions=1000)\ndef test_{}(gpu_bench):\n    {}\n    gpu_bench(fast)\n"
    fails = ends.format("fails", "assert 'UNDER_NCU' not in os.environ")
    dies = ends.format("dies", "if 'UNDER_NCU' in os.environ: os._exit(3)")
    result = bench_run(f"import os\n{LIMITED}{fails}{dies}")
    result.assert_outcomes(passed=1)
    told = "max_instructions=1000: its test fails in a process under ncu: *AssertionError"
    result.stdout.fnmatch_lines([f"*fast was not judged by {told}*", "*::test_dies: fast was not judged by *"])
    assert len(ncu_runs()) == 4


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


def has_company(init: Callable[..., None]) -> Callable[..., None]:
    return lambda test, **given: init(test, **given, computing=lambda: "somebody came")


def test_somebody_else_on_the_gpu_changes_no_counter(
    bench_run: BenchRun, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    count({"fast": [["kernel", 7]]})
    monkeypatch.setattr("pytest_gpubench.running_test.CurrentTest.__init__", has_company(CurrentTest.__init__))
    result = bench_run(LIMITED + SLOW.replace("it", "slow"))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*somebody came*"])


def test_tests_taken_by_themselves_have_so_much_time_together(
    bench_run: BenchRun, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    count({"fast": [["kernel", 1000]]})
    monkeypatch.setattr("pytest_gpubench.plugin.fresh_process.FurtherProcesses.__init__.__defaults__", (0.0,))
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
