"""Runs without a GPU: measurements, refusals and messages."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pytest_gpubench import __version__
from pytest_gpubench.plugin.containment import ExitStatus
from pytest_gpubench.plugin.results import Results, has_remote_workers
from pytest_gpubench.settings import Settings
from tests.plugin.conftest import BenchRun, RecordRun
from tests.plugin.hosts import Host

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")

REAL = """
import torch

@pytest.mark.perf(max_time_us=1e-3, reps=11, warmup=0)
def test_too_slow(gpu_bench):
    x = torch.ones(100, device=gpu_bench.device)
    assert gpu_bench(x.neg).timer == "wall"
"""


def test_on_the_cpu_limits_are_shown_but_not_enforced(bench_run: BenchRun) -> None:
    result = bench_run(REAL, timer="profiler")
    result.stdout.fnmatch_lines(
        [
            "gpu_bench: *, no GPU used: none found, cold cache, wall",
            "(FAIL) * <= 0.001 us*",
            "gpu_bench: 1 measurement in 1 test on the CPU, *: wall timer, cold cache; *",
            "gpu_bench: limits: no GPU was found: 1 would be judged with --gpu-bench-device=cpu, 1 of them would fail",
            "*=== 1 not judged in *",
        ]
    )


def test_on_the_cpu_asked_for_by_name_limits_are_enforced(bench_run: BenchRun) -> None:
    result = bench_run(REAL, "--gpu-bench-device=cpu", timer="profiler")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["gpu_bench: *, no GPU used: the CPU was asked for, *", "*neg is too slow: median *"])


def test_what_is_measured_on_fits_the_terminal(
    bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch, name_cpu: Callable[[str], None]
) -> None:
    name_cpu("several words of " * 4 + "10")
    monkeypatch.setenv("COLUMNS", "50")
    lines = bench_run(REAL, "--gpu-bench-disable", timer="profiler").stdout.lines
    start = lines.index(next(line for line in lines if line.startswith(f"gpu_bench: {__version__}")))
    header = lines[start : lines.index("", start)]
    assert " ".join(map(str.strip, header)).endswith(" of 10, no GPU used: none found, switched off")
    assert max(map(len, header)) <= 50


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--gpu-bench-device=cuda"], "a GPU was asked for, but *: use a machine with one, or, for tests, *=auto"),
        (
            ["--gpu-bench-require-gpu", "--gpu-bench-device=cpu"],
            "*the device is the CPU (--gpu-bench-device=cpu): measure on a GPU, or leave it out",
        ),
    ],
)
def test_a_missing_gpu_fails_every_perf_test_and_no_other(
    bench_run: BenchRun, arguments: list[str], sentence: str
) -> None:
    result = bench_run(f"{REAL}\ndef test_plain(): pass", *arguments, timer="profiler")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([sentence])
    assert "INTERNALERROR" not in result.stdout.str()


INTERPRETED = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

def run(x):
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out

def test_right(gpu_bench):
    x = torch.arange(100.0, device=gpu_bench.device)
    torch.testing.assert_close(run(x), 2 * x)
    assert not gpu_bench(run, x).measured

def test_reads_a_number(gpu_bench):
    assert gpu_bench(run, torch.ones(10)).median_us > 0

@pytest.mark.perf(max_time_us=10)
def test_limit(gpu_bench):
    gpu_bench(run, torch.ones(10))
"""

RUNS = [
    ["-rs"],
    ["-rs", "--gpu-bench-device=cpu", "--gpu-bench-require=1"],
    ["--gpu-bench-device=cpu", "--gpu-bench-require=all", "-k", "right"],
]


@pytest.mark.usefixtures("forked")
def test_triton_runs_in_its_interpreter_and_is_not_timed(pytester: pytest.Pytester) -> None:
    """Triton decides when a kernel is defined: a process of its own shows that the plugin is early enough."""
    pytester.makepyfile("import pytest\n" + INTERPRETED)
    pytester.runpython_c(
        f"import pytest\nfor each in {RUNS}: print('status', int(pytest.main(each)))"
    ).stdout.fnmatch_lines(
        [
            "gpu_bench: not measured: 3 calls, it ran in Triton's interpreter, whose time means nothing",
            "gpu_bench: warning: *::test_limit: its limits were not judged: it ran in Triton's interpreter*",
            "SKIPPED *'run' has no numbers: it ran in Triton's interpreter*",
            "*= 1 passed, 1 skipped*",
            "status 0",
            "perf(max_time_us=10) was never judged: it ran in Triton's interpreter*; without --gpu-bench-device=cpu *",
            "gpu_bench: --gpu-bench-require=1: 0 tests measured on the CPU",
            "*= 1 failed, 1 passed, 1 skipped in *",
            "status 1",
            "gpu_bench: --gpu-bench-require=all: 1 perf test of 1 measured nothing, the first is *",
            "*= 1 passed, 2 deselected in *",
            "status 1",
        ]
    )


def test_the_environment_is_left_as_it_was(bench_run: BenchRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    bench_run("import os\ndef test_it(): assert os.environ['TRITON_INTERPRET'] == '1'").assert_outcomes(passed=1)
    assert "TRITON_INTERPRET" not in os.environ


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(device="cpu", cache="hot"), "no GPU used: the CPU was asked for, hot cache, wall"),
        (Settings(device="cuda"), "cold L2, profiler"),
    ],
)
def test_the_header_of_a_run_with_workers_says_what_is_so(settings: Settings, words: str) -> None:
    config: Any = SimpleNamespace(getoption=lambda name, default=None: ["popen"] if name == "tx" else default)
    header = Results(config, settings, ExitStatus()).pytest_report_header(config)
    assert header is not None
    assert header.startswith(f"gpu_bench: {__version__}, ")
    assert header.endswith(f", {words}")


@pytest.mark.parametrize(
    ("specs", "remote"),
    [
        ([], False),
        (["popen", "2*popen//python=python3"], False),
        (["popen", "ssh=gpu-host"], True),
        (["socket=10.0.0.1:8888"], True),
        (["5*popen//via=proxy"], True),
    ],
)
def test_of_workers_on_other_hosts_nothing_is_claimed(specs: list[str], remote: bool) -> None:
    given = SimpleNamespace(getoption=lambda name, default: specs)
    assert has_remote_workers(cast(Any, given)) is remote


# the timer of what has no number

UNMEASURED = "def test_it(gpu_bench): gpu_bench(fast)"


@pytest.mark.parametrize("timer", ["profiler", "graph", "scripted"])
def test_on_the_cpu_it_is_the_timer_that_stands_in(timer: str, record_run: RecordRun) -> None:
    (record,) = record_run(UNMEASURED, f"--gpu-bench-timer={timer}", "--gpu-bench-disable").records
    assert record.measurements[0].timing.timer == ("scripted" if timer == "scripted" else "wall")


def test_on_a_gpu_it_is_the_timer_that_was_asked_for(tmp_path: Path) -> None:
    host = Host(tmp_path, ["GPU-a"])
    host.write(f"@pytest.mark.perf(timer='graph')\n{UNMEASURED}")
    assert host.run("--gpu-bench-disable")[0] == 0
    assert [record.measurements[0].timing.timer for record in host.records()] == ["graph"]
