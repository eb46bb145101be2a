"""Counters by the ncu of this machine: the same code passes, 1 % more rows fail, and a limit on reads is judged."""

import re
from pathlib import Path

import pytest

from pytest_gpubench.structure.ncu import NeverCounted, find_ncu
from tests.on_gpu.hosts import RealHost

TESTS = """
import os
import pytest
import torch

ROWS = round(8192 * float(os.environ.get("MORE", "1")))

def rows(gpu_bench):
    return torch.randn(ROWS, 8192, device=gpu_bench.device)

def normed(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))

@pytest.mark.perf(max_dram_bytes="1.1x")
def test_softmax(gpu_bench):
    gpu_bench.measure(torch.softmax, (rows(gpu_bench), -1))

@pytest.mark.perf(max_dram_bytes="1.1x")
def test_reads_three_times(gpu_bench):
    gpu_bench.measure(normed, (rows(gpu_bench),))
"""


@pytest.fixture(autouse=True)
def needs_ncu() -> None:
    try:
        find_ncu()
    except NeverCounted as error:
        pytest.skip(str(error))


@pytest.mark.slow  # a minute; tests/plugin holds the same with made-up counters
@pytest.mark.timeout(600)
def test_a_gate_on_instructions(tmp_path: Path) -> None:
    host = RealHost(tmp_path)
    host.write(TESTS)

    def run(*options: str, **variables: str) -> str:
        _, output = host.run("--gpu-bench-reps=12", *options, **variables)
        print(output)  # shown where this fails
        return output

    saved = run("--gpu-bench-save=main", "--gpu-bench-sessions=1", "--gpu-bench-counters=instructions")
    assert "1 failed, 1 passed" in saved
    assert re.search(r"LimitBroken: normed reads [\d.]+ MiB from memory, wanted at most 281\.6 MiB, 1\.1x", saved)
    gate = ("--gpu-bench-compare=main~failed", "--gpu-bench-compare-fail=instructions:0.1%", "-k", "softmax")
    assert "1 passed" in run(*gate)
    more = run(*gate, MORE="1.01")
    assert "1 failed" in more
    told = r"softmax executes [\d,]+ instructions against [\d,]+ in the baseline 'main~failed': 1\.010x"
    assert re.search(rf"LimitBroken: {told}, wanted at most 1\.001x \(6 and 3 captures in 2 processes", more)
