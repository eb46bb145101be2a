"""Whole runs by counters: `doctor --counters`, a gate of pytest's, `ab`, and `bisect` over 64 commits."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_gpubench.results.store import read_run
from tests.on_gpu.study.harness import print_head, print_row
from tests.on_gpu.study.neighbour import neighbour

TESTS = Path(__file__).with_name("counted_tests.py")
ROOT = Path(__file__).parents[3]
TOLD = re.compile(
    r"^(?:E +pytest_gpubench\S*: |E +(?=with it)|=+ )|with it:|^gpu_bench: |NOT JUDGED|slower since", re.M
)
"""The lines of a run's output that are shown."""
MOST_SLOWER = 1.05
"""A limit on the time of the same code, over its median."""
COMMITS = 65
FIRST_SLOWER = 60
SOURCE = """
import torch
import triton
import triton.language as tl
from rows import ROWS

@triton.jit
def doubling_kernel(x, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, 2 * tl.load(x + offsets))

def doubled(x):
    out = torch.empty_like(x)
    doubling_kernel[(ROWS,)](x, out, BLOCK=4096)
    return out
"""
TEST = """
import torch
from kernel import doubled

def test_doubled(gpu_bench):
    gpu_bench.measure(doubled, args=(torch.randn(8500, 4096, device=gpu_bench.device),))
"""


def run(title: str, wanted: int, command: Sequence[str], folder: Path, variables: Mapping[str, str] = {}) -> str:
    """Run a command, print what it tells as it does, and its seconds; return its output."""
    began_s = time.monotonic()
    environment = {**os.environ, "COLUMNS": "250", "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    print(f"\n{title}", flush=True)
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**environment, **variables},
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if TOLD.search(line):
                print(f"{time.monotonic() - began_s:5.1f} s  {line.rstrip()}", flush=True)
    status = "as wanted" if process.returncode == wanted else f"WANTED {wanted}"
    print(f"{title}: {time.monotonic() - began_s:.1f} s, exit status {process.returncode}, {status}", flush=True)
    return "".join(lines)


def doctor() -> None:
    """Run the doctor, and print all that it says."""
    with tempfile.TemporaryDirectory() as folder:
        print(run("doctor --counters", 0, ["pytest_gpubench", "doctor", "--counters"], Path(folder)))


def gate() -> None:
    """Save a run, then compare with it: the same code beside more rows and broken limits, and beside a busy process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def pytest_run(title: str, wanted: int, *options: str, **variables: str) -> str:
            common = ["--noconftest", "-p", "no:cacheprovider", "-q", f"--gpu-bench-storage={folder / 'storage'}"]
            return run(title, wanted, ["pytest", str(TESTS), *common, *options], ROOT, variables)

        saved = ("--gpu-bench-save=main", "--gpu-bench-sessions=1", "--gpu-bench-counters=instructions")
        pytest_run("saved", 0, *saved, "-k", "kept or grown")
        past = ("--gpu-bench-compare=main", "--gpu-bench-compare-fail=instructions:0.1%")
        pytest_run("compared, 1 % more rows in one test", 1, *past, "--gpu-bench-counters=on-fail", MORE="1.01")
        (path,) = (folder / "storage").glob("*/*.json")
        softmax, triton = (item.timing for each in read_run(path).records[:2] for item in each.measurements)
        assert softmax.counts is not None
        counted = json.dumps([softmax.counts.median(name) for name in ("instructions", "dram_read_bytes")])
        limits = {"MOST_US": f"{MOST_SLOWER * triton.median_us:.6g}", "COUNTED": counted}
        with neighbour():
            pytest_run("the same code beside a busy process", 1, *past, "-k", "kept or just", **limits)


def make_commits(folder: Path) -> list[str]:
    """Commit a kernel once for each number of rows, which is 2 % larger from one commit on; return the commits."""

    def git(*words: str, text: str | None = None) -> str:
        return subprocess.run(
            ["git", *words], cwd=folder, input=text, capture_output=True, text=True, check=True
        ).stdout

    def blocks() -> Iterator[str]:
        for number in range(COMMITS):
            rows = f"ROWS = {8192 if number < FIRST_SLOWER else 8356}  # {number}\n"
            files = {"rows.py": rows} | ({"kernel.py": SOURCE, "test_kernel.py": TEST} if not number else {})
            yield f"commit refs/heads/main\nmark :{number + 1}\ncommitter A <a@b> {number} +0000\n"
            yield f"data {len(f'Change {number}')}\nChange {number}\n"
            yield from (f"M 100644 inline {name}\ndata {len(text)}\n{text}\n" for name, text in files.items())

    git("init", "--quiet", "--initial-branch=main")
    git("fast-import", "--quiet", text="".join(blocks()))
    git("reset", "--quiet", "--hard", "main")
    return git("rev-list", "--reverse", "main").split()


OF_COUNTERS = ("--", "-q", "-p", "no:cacheprovider", "--gpu-bench-timer=events", "--gpu-bench-resources=limits")


def compare() -> None:
    """Compare the first and the last commit by instructions."""
    with tempfile.TemporaryDirectory() as name:
        commits = make_commits(Path(name))
        command = ["pytest_gpubench", "ab", commits[0], "main", "--metric", "instructions", "--fail-slower", "0.1%"]
        print(run("ab by instructions", 1, [*command, *OF_COUNTERS], Path(name)))


def search(metrics: Sequence[str]) -> None:
    """Find the slower of 64 commits by each metric."""
    exact = ("--metric", "instructions", "--fail-slower", "0.1%")
    how = {"instructions": exact, "time": ("--fail-slower", "1%")}
    options = {"instructions": OF_COUNTERS, "time": OF_COUNTERS[:4]}
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commits = make_commits(folder)
        for metric in metrics:
            began_s = time.monotonic()
            command = ["pytest_gpubench", "bisect", commits[0], "main", *how[metric], *options[metric]]
            output = run(f"bisect by {metric}", 1, command, folder)
            seconds = time.monotonic() - began_s
            right = commits[FIRST_SLOWER][:7] in output.partition("slower since")[2][:40]
            runs = len(re.findall(r"^gpu_bench: run \d+ of ", output, re.M))
            found.append(f"{metric} | {'yes' if right else 'NO'} | {runs} | {seconds:.0f}")
    print_head("bisect by | found | runs | seconds")
    for row in found:
        print_row(row)
