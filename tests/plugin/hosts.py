"""Runs on a host with GPUs that are not there: pytest in processes, real locks, a fake NVML and a stub of torch."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pytest_gpubench.results.model import TestRecord, Turn, decode
from tests import fork_server
from tests.gpu import recording_nvml

HERE = Path(__file__).parent

HEAD = """
import os
import signal
import sys
import time
import pytest
from pytest_gpubench import scripted

pytestmark = pytest.mark.perf(timer="scripted")
SEEN = os.environ.get("CUDA_VISIBLE_DEVICES")  # when the module was imported

@scripted([10.0, 10.1, 9.9])
def fast(*args): return 0

@pytest.fixture(autouse=True)
def note(request):
    if "gpu_bench" in request.fixturenames:
        bench = request.getfixturevalue("gpu_bench")
        bench.extra_info.update(pid=os.getpid(), seen=SEEN, now=os.environ.get("CUDA_VISIBLE_DEVICES"))
"""

KEEP = """
from pathlib import Path

import pytest

def pytest_runtest_logreport(report):
    text = getattr(report, "gpu_bench", None)
    if text is not None and not IN_WORKER:
        with Path(__file__).with_name("records.jsonl").open("a") as file:
            print(text, file=file)

def pytest_configure(config):
    global IN_WORKER
    IN_WORKER = hasattr(config, "workerinput")
"""


class Host:
    """A folder with a test file, a list of GPUs, and a lock folder of its own."""

    def __init__(self, folder: Path, gpus: Sequence[str]) -> None:
        self.folder = folder
        for module in (HERE / "fake_gpus.py", recording_nvml.__file__):
            shutil.copy(module, folder)
        (folder / "conftest.py").write_text(KEEP)
        self.list_processes({uuid: [] for uuid in gpus})

    def list_processes(self, listed: dict[str, list[int]]) -> None:
        (self.folder / "gpus.json").write_text(json.dumps(listed))

    def write(self, source: str) -> None:
        (self.folder / "test_it.py").write_text(HEAD + source)

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        plugins = ["fake_gpus", "no:cacheprovider", "pytest_gpubench.plugin.hooks"]
        if any(each.startswith(("-n", "--dist")) for each in arguments):
            plugins.append("xdist.plugin")
        fixed = [*(f"-p{name}" for name in plugins), "--assert=plain", "--tb=short", "-rs"]
        ours = ["--gpu-bench-startup=lazy", "--gpu-bench-reps=20", f"--gpu-bench-lock-folder={self.folder / 'locks'}"]
        command = [sys.executable, "-m", "pytest", *fixed, *ours, "--gpu-bench-columns=median", *arguments]
        foreign = ("PYTEST_", "GPU_BENCH_", "CUDA_", "FAKE_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | variables  # workers look for them too
        pipe = subprocess.PIPE
        return fork_server.Popen(
            command, cwd=self.folder, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        process = self.start(*arguments, **variables)
        output, _ = process.communicate(timeout=400)
        return process.returncode, output

    def output(self, *arguments: str, status: int = 0, **variables: str) -> str:
        """Return what a run prints that ends with this status."""
        found, output = self.run(*arguments, **variables)
        assert found == status, output
        return output

    def records(self) -> list[TestRecord]:
        path = self.folder / "records.jsonl"
        return [decode(line) for line in path.read_text().splitlines()] if path.exists() else []


def turns_by_gpu(records: Sequence[TestRecord]) -> dict[str, list[Turn]]:
    """Return the turns that were taken at each GPU, in their order."""
    turns: dict[str, list[Turn]] = defaultdict(list)
    for record in records:
        assert record.turn is not None, record.nodeid
        for uuid in record.turn.gpus:
            turns[uuid].append(record.turn)
    return {uuid: sorted(each, key=lambda turn: turn.began_s) for uuid, each in turns.items()}


def overlaps(records: Sequence[TestRecord]) -> list[tuple[str, Turn, Turn]]:
    """Return the turns that were not over when the next began."""
    return [
        (uuid, first, second)
        for uuid, turns in turns_by_gpu(records).items()
        for first, second in itertools.pairwise(turns)
        if second.began_s < first.ended_s
    ]
