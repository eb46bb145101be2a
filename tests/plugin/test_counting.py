"""Counters in runs of pytest: taken by one ncu for all tests, judged, saved, compared; each refusal a sentence."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.plugin import fake_ncu
from tests.plugin.conftest import BenchRun, RecordRun

pytestmark = pytest.mark.usefixtures("stubbed_torch")

Rows = Mapping[str, Sequence[Sequence[object]]]
Count = Callable[[Rows], None]

LIMITED = """
@pytest.mark.perf(max_instructions=1000)
def test_it(gpu_bench): gpu_bench(fast)

@pytest.mark.perf(max_counters={"atomics": 0})
def test_other(gpu_bench): gpu_bench(slow)

def test_without(gpu_bench): gpu_bench(fast)
"""
CHANGE = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=instructions:0.1%")


@pytest.fixture
def count(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Count:
    """Let calls be counted; called with the rows of each function: kernel and counts, a row for each capture in turn."""
    tools = pytester.mkdir("tools")
    script = tools / "ncu"
    script.write_text(f"#!{sys.executable}\n{Path(fake_ncu.__file__).read_text()}")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    pytester.makeconftest(fake_ncu.CONFTEST)

    def write(rows: Rows) -> None:
        Path("counts.json").write_text(json.dumps(rows))

    return write


def ncu_runs() -> list[str]:
    return Path("ncu-runs").read_text().splitlines() if Path("ncu-runs").exists() else []


def test_one_ncu_takes_the_counters_of_all_tests_that_ask(bench_run: BenchRun, count: Count) -> None:
    count({"fast": [["kernel", 1000]], "slow": [["kernel", 0]]})
    bench_run(LIMITED).assert_outcomes(passed=3)
    (run,) = ncu_runs()
    assert run.startswith("6 ")
    assert set(run.split()[1:]) == {
        "smsp__inst_executed.sum",
        "smsp__inst_executed_op_global_atom.sum",
        "smsp__inst_executed_op_global_red.sum",
    }
