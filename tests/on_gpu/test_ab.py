"""`pytest-gpubench ab` with real commits and kernels: what is slower fails, what is as it was or faster does not."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

BEFORE = """
import torch


def same(x):
    return torch.softmax(x, -1)


def slower(x):
    return torch.softmax(x, -1)


def faster(x):
    return torch.softmax(x.clone(), -1)
"""
AFTER = """
import torch


def same(x):
    # over the last dimension
    return torch.softmax(x, -1)


def slower(x):
    return torch.softmax(torch.cat((x, x[:512])), -1)[: len(x)]


def faster(x):
    return torch.softmax(x, -1)
"""
TESTS = """
import kernel
import pytest
import torch


@pytest.fixture(params=["same", "slower", "faster"])
def function(request):
    return getattr(kernel, request.param)


def test_alone(gpu_bench, function):
    gpu_bench.measure(function, args=(torch.randn(8192, 2048, device=gpu_bench.device),))


def test_against_torch(gpu_bench, function):
    x = torch.randn(8192, 2048, device=gpu_bench.device)
    gpu_bench.compare(function, lambda x: torch.softmax(x, -1), args=(x,))
"""
EXPECTED = {"same": "PASS", "slower": "FAIL", "faster": "PASS"}
MAIN = "from pytest_gpubench.cli import main; raise SystemExit(main())"
WHO = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")

pytestmark = [pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"), pytest.mark.timeout(500)]


def git(folder: Path, *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *WHO, *words], cwd=folder, env=environment, check=True)


def commit(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a change")


def run_ab(folder: Path, *words: str) -> str:
    """Run `ab`, which fails, and return what it prints."""
    quick = ["--rounds", "1", "--fail-slower", "20%"]  # two pairs of runs decide what differs by so much
    command = [sys.executable, "-c", MAIN, "ab", *words, *quick, "--", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)  # shown where this fails
    assert done.returncode == 1
    return done.stdout


def test_two_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(tmp_path, {"kernel.py": BEFORE, "test_kernel.py": TESTS})
    commit(tmp_path, {"kernel.py": AFTER})
    found = run_ab(tmp_path, "HEAD~1", "HEAD")
    said = re.findall(r"^(\w+) .*::test_\w+\[(\w+)\]", found, re.MULTILINE)
    assert sorted(said) == sorted(2 * [(outcome, name) for name, outcome in EXPECTED.items()])
