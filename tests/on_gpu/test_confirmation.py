"""A FAIL against a saved run, measured again by fresh processes while the test's own one holds the GPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import os
FRESH = "PYTEST_GPUBENCH_SESSION" in os.environ
"""
TESTS = """
import os
import torch
from conftest import FRESH

SLOW = {"here alone": not FRESH, "everywhere": True, "nowhere": False} if "PLANTED" in os.environ else {}

def test_it(gpu_bench):
    for name in ("here alone", "nowhere", "everywhere"):
        x = torch.randn(9216 if SLOW.get(name) else 8192, 4096, device=gpu_bench.device)
        gpu_bench.measure(x.neg, label=name)
"""


@pytest.mark.slow  # a minute; tests/plugin holds the same with scripted times
@pytest.mark.timeout(600)
def test_a_fail_is_one_of_five_processes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_planted.py").write_text(TESTS)

    def run(*options: str, **variables: str) -> str:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, **variables}
        )
        print(done.stdout, done.stderr)  # shown where this fails
        return done.stdout

    assert "1 passed" in run("--gpu-bench-save=main")
    out = run("--gpu-bench-compare=main", "--gpu-bench-compare-fail=median:5%", PLANTED="1")
    assert "1 failed" in out
    assert re.search("everywhere is slower than .* in each of 5 and 5 sessions", out)
    assert re.findall(r"^(PASS|FAIL) .* (here alone|nowhere|everywhere) ", out, re.MULTILINE) == [
        ("PASS", "here alone"),
        ("PASS", "nowhere"),
        ("FAIL", "everywhere"),
    ]
    assert "not measured again" not in out
    assert "began to compute" not in out
