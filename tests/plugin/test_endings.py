"""Ends of a run: each row of the table in docs/ci.md, without and with --gpu-bench-strict."""

import re
from dataclasses import dataclass

import pytest
import torch

from tests.docs.pages import TEXTS
from tests.plugin.conftest import BenchRun
from tests.plugin.saving import COMPARES, MEASURES, SPEEDS

XFAIL = "@pytest.mark.xfail\n"
PLAIN = "\ndef test_plain(gpu_bench): gpu_bench(fast)\n"
REGRESSION = MEASURES.replace("def test_it", "@pytest.mark.perf(max_regression=0.05)\ndef test_it")
COMPARED = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%")
IN_INI = "gpu_bench_compare = main\ngpu_bench_compare_fail = median:5%\n"
GIVEN = f"""{SPEEDS}
from hypothesis import given, settings, strategies as st
{{mark}}
@settings(max_examples=2, database=None)
@given(st.integers(0, 1))
def test_it(gpu_bench, x): gpu_bench(candidate, x)
"""
MEASURES_ONE = f"{SPEEDS}\nONE = candidate\ndef test_it(gpu_bench): gpu_bench(ONE)\n"
COMPARES_ONE = f"{SPEEDS}\nONE = reference\ndef test_it(gpu_bench): gpu_bench.compare(candidate, ONE)\n"
HELPS = f"""{SPEEDS}
def helper(gpu_bench):
    for each in ({{}},): gpu_bench(each)
def test_it(gpu_bench): helper(gpu_bench)
"""


@dataclass(frozen=True)
class Case:
    source: str
    options: tuple[str, ...] = ()
    saved: str = ""
    """The tests whose run is saved as main before; empty for none."""
    ini: str = ""
    device: str = "cpu"


def limited(marks: str, body: str = "gpu_bench(fast)", above: str = "") -> str:
    return f"{above}@pytest.mark.perf({marks})\ndef test_it(gpu_bench):\n    {body}\n"


def compared(source: str, saved: str, *options: str) -> Case:
    return Case(source, (*COMPARED, *options), saved)


CASES = {
    "every limit is kept": [Case(limited("max_time_us=15"))],
    "a limit is broken": [Case(limited("max_time_us=5"))],
    "INVALID: there is no number that can be trusted": [Case(limited("min_gbps=1"))],
    "a limit is INCONCLUSIVE": [Case(limited("max_time_us=10, reps=5"))],
    '`max_time_us={"H200": 40}` on another GPU': [Case(limited("max_time_us={'H200': 40}"))],
    '`min_speedup={"triton": 1.5}` names none of the candidates': [
        Case(limited("min_speedup={'triton': 1.5}", "gpu_bench.compare({'compiled': fast}, slow)"))
    ],
    "a test with a limit measures nothing": [Case(limited("max_time_us=15", "pass"))],
    "a limit is broken or INVALID, and the test catches the error: to pass, to skip, in a thread": [
        Case(limited("min_gbps=1", "with pytest.raises(Exception): gpu_bench(fast)\n    pytest.skip('no')")),
    ],
    'the same, and the test calls `pytest.exit("", 0)`, or a plugin changes the outcome': [
        Case(limited("max_time_us=5", "with pytest.raises(Exception): gpu_bench(fast)\n    pytest.exit('now', 0)"))
    ],
    "a test is skipped before it measures": [
        Case(limited("max_time_us=15", "pytest.skip('today')")),
        Case(limited("max_time_us=15", above="@pytest.mark.skip\n") + PLAIN),
    ],
    "a test is skipped after it has measured, and keeps its limits": [
        Case(limited("max_time_us=15", "gpu_bench(fast)\n    pytest.skip('today')"))
    ],
    "the same, and no measurement could be judged by them": [
        Case(limited("min_speedup=1", "gpu_bench(fast)\n    pytest.skip('today')"))
    ],
    "a test is marked xfail, and breaks its limit": [Case(limited("max_time_us=5", above=XFAIL))],
    "a test is marked xfail, and fails before it measures": [Case(limited("max_time_us=5", "assert 0", XFAIL))],
    "the measured code calls `pytest.skip`, `pytest.xfail`, `pytest.exit`, `os._exit(0)` or `os.execv`": [
        Case(limited("max_time_us=15", "gpu_bench(lambda: __import__('os').execlp('true', 'true'))")),
        Case(limited("max_time_us=15", "gpu_bench(lambda: pytest.exit('no', returncode=0))")),
    ],
    "a test is deselected": [Case(limited("max_time_us=5") + PLAIN, ("-k", "plain"))],
    "no perf test is left to run": [Case(limited("max_time_us=5"), ("-k", "other"))],
    "the xdist worker of a test dies": [Case(limited("max_time_us=15", "__import__('os')._exit(1)"), ("-n1",))],
    "no GPU is found, and the CPU was not asked for": [
        Case(limited("max_time_us=1e9"), ("--gpu-bench-reps=20", "--gpu-bench-cache=hot"), device="auto")
    ],
    "`max_regression` without `--gpu-bench-compare`": [Case(REGRESSION)],
    "`--gpu-bench-compare-fail`, and the run to compare with does not exist": [Case(MEASURES, COMPARED)],
    "the same, named in the ini file or the environment": [Case(MEASURES, ini=IN_INI)],
    "`max_regression`, and the run to compare with does not exist": [Case(REGRESSION, COMPARED[:1])],
    "the same with `--gpu-bench-missing-baseline=ignore`, for a first run": [
        Case(REGRESSION, (COMPARED[0], "--gpu-bench-missing-baseline=ignore"))
    ],
    "the saved run lacks the test: new, renamed or changed": [
        compared(MEASURES.replace("test_it", "test_new"), MEASURES),
        compared(MEASURES.replace("gpu_bench(c", "x = gpu_bench(c"), MEASURES),
    ],
    "this run lacks a test of the saved run, or a measurement of it: it is named": [
        compared(MEASURES, f"{MEASURES}{PLAIN}"),
        compared(HELPS.format("candidate"), HELPS.format("candidate, fast")),
    ],
    "the same, and `-k`, `-m`, a path, `--deselect`, `--lf` or `-x` leaves it out": [
        compared(f"{MEASURES}{PLAIN}", f"{MEASURES}{PLAIN}", "-k", "test_it")
    ],
    "the saved run lacks a measurement, or its reference": [
        compared(MEASURES_ONE.replace("ONE = candidate", "ONE = reference"), MEASURES_ONE),
        compared(COMPARES_ONE.replace("ONE = reference", "ONE = slow"), COMPARES_ONE),
    ],
    "the change since a saved run should be judged, and the test is under `@given`": [
        compared(GIVEN.format(mark=""), MEASURES),
        Case(GIVEN.format(mark="@pytest.mark.perf(max_regression=0.05)"), COMPARED[:1], MEASURES),
    ],
    "the saved run is of another GPU, timer or cache state": [compared(COMPARES, COMPARES, "--gpu-bench-cache=hot")],
    "`--gpu-bench-disable`": [Case(limited("max_time_us=5"), ("--gpu-bench-disable",))],
}
TABLE = TEXTS["ci"].split("| situation |")[1].split("\n\n")[0]
ROWS = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in TABLE.splitlines()[2:]]


def test_every_row_is_run() -> None:
    assert [row[0] for row in ROWS] == list(CASES)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("row", "case"),
    [pytest.param(row, case, id=row[0]) for row in ROWS for case in CASES.get(row[0], ())],
)
def test_a_run_ends_as_its_row_says(bench_run: BenchRun, pytester: pytest.Pytester, row: list[str], case: Case) -> None:
    if case.device == "auto" and torch.cuda.is_available():
        pytest.skip("about machines without a GPU")
    pytester.makeini(f"[pytest]\ngpu_bench_device = {case.device}\n")
    if case.saved:
        bench_run(case.saved, "--gpu-bench-save=main")
    pytester.makeini(f"[pytest]\ngpu_bench_device = {case.device}\n{case.ini}")
    for strict in (False, True):
        counted, status = row[3].split(", ") if strict else (row[1].removesuffix(", with a warning"), row[2])
        options = (*case.options, *(["--gpu-bench-strict"] if strict else []))
        result = bench_run(case.source, *options, timer="wall" if case.device == "auto" else "scripted")
        assert result.ret == int(status)
        counts = [line for line in result.stdout.lines if re.search(r" in \d+\.\d+s", line)]
        assert bool(re.search(rf"\b1 {counted}\b", "".join(counts[-1:]))) != (counted == "-")
        loud = strict or "warning" not in row[1]
        assert loud or re.search("^gpu_bench: (warning|compared with nothing): ", result.stdout.str(), re.MULTILINE)
