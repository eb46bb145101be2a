"""`pytest-gpubench ab` with real commits and kernels: what is slower fails, what is as it was or faster does not."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.ab.environment import environment

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
OF_PACKAGE = """
import pytest
import torch
from kernels import softmax


def test_softmax(gpu_bench):
    gpu_bench.measure(softmax, args=(torch.randn(8192, 2048, device=gpu_bench.device),))
"""
FAST = "import torch\n\ndef softmax(x): return torch.softmax(x, -1)\n"
SLOW = "import torch\n\ndef softmax(x): return torch.softmax(x.clone(), -1)\n"
EXPECTED = {"same": "PASS", "slower": "FAIL", "faster": "PASS"}
MAIN = "from pytest_gpubench.cli import main; raise SystemExit(main())"
WHO = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.timeout(500),
]


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


@pytest.mark.slow  # tests/cli/ab holds the same with times that are given
def test_one_commit_in_two_environments(tmp_path: Path) -> None:
    """A package of one is slower: that is a FAIL, whose reasons are its copy and its version."""
    pythons = [
        environment(tmp_path / name, ("kernels", version, source))
        for name, version, source in (("fast", "1.0", FAST), ("slow", "1.1", SLOW))
    ]
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, {"test_softmax.py": OF_PACKAGE})
    found = run_ab(folder, "HEAD", "HEAD", "--base-python", pythons[0], "--head-python", pythons[1])
    assert re.search(r"^ *kernels +1\.0 +1\.1$", found, re.MULTILINE)
    assert re.search(r"^FAIL .*::test_softmax", found, re.MULTILINE)
    reasons = re.findall(r"^ +with it: (.*)$", found, re.MULTILINE)
    assert reasons[0].startswith("one more kernel: Memcpy")
    assert reasons[-1] == "kernels 1.0 -> 1.1"
