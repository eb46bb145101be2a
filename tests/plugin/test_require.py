"""--gpu-bench-require: the tests that count as measured, and the message about the others."""

from pathlib import Path

import pytest
import torch

from tests.plugin.conftest import BenchRun
from tests.plugin.hosts import Host

TWO = """
@pytest.mark.perf(timer="scripted", reps=2)
@pytest.mark.parametrize("number", [1, 2])
def test_measured(gpu_bench, number): gpu_bench(fast)
"""
LAZY = "\ndef test_lazy(gpu_bench): pass\n"
FELL_BACK = (
    "{number} measured on the CPU, which does not count where no GPU was found, the first is {first}: run where there "
    "is a GPU, or ask for the CPU with --gpu-bench-device=cpu"
)
BOTH = FELL_BACK.format(number="2 perf tests", first="*::test_measured[1]")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, [])


needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")


ONE_LAZY = "--gpu-bench-require=all: 1 perf test of 3 measured nothing, the first is *::test_lazy"


@pytest.mark.parametrize(
    ("device", "demand", "source", "sentence"),
    [
        pytest.param("auto", *row, marks=needs_no_gpu)
        for row in (
            ("1", TWO, f"--gpu-bench-require=1: 0 tests measured on a GPU; {BOTH}"),
            ("all", TWO, f"--gpu-bench-require=all: {BOTH}"),
            ("all", TWO + LAZY, f"{ONE_LAZY}; {BOTH}"),
            ("all", "def test_plain(): pass", "--gpu-bench-require=all: there was no perf test to run"),
        )
    ]
    + [
        ("cpu", "1", TWO, None),
        ("cpu", "2", TWO + LAZY, None),
        ("cpu", "3", TWO + LAZY, "--gpu-bench-require=3: 2 tests measured on the CPU"),
        ("cpu", "all", TWO, None),
        ("cpu", "all", TWO + LAZY, ONE_LAZY),
    ],
)
def test_a_cpu_counts_where_it_was_asked_for_by_name(
    bench_run: BenchRun, device: str, demand: str, source: str, sentence: str | None
) -> None:
    result = bench_run(source, f"--gpu-bench-require={demand}", f"--gpu-bench-device={device}", timer="profiler")
    assert result.ret == (pytest.ExitCode.OK if sentence is None else pytest.ExitCode.TESTS_FAILED)
    assert result.parseoutcomes().get("failed", 0) == 0
    if sentence is not None:
        result.stdout.fnmatch_lines([f"gpu_bench: {sentence}".replace("[", "[[]")])
    assert ("gpu-bench-require" in result.stdout.str()) == (sentence is not None)


def test_a_worker_with_and_without_gpus(host: Host) -> None:
    host.write(TWO)
    assert "2 perf tests measured on the CPU, which does not count" in host.output(
        "-n1", "--gpu-bench-require=all", status=1
    )
    host.list_processes({"GPU-a": []})
    status, output = host.run("-n1", "--gpu-bench-require=all")
    assert (status, "--gpu-bench-require" in output) == (0, False), output
