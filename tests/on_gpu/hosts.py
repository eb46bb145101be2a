"""Runs of pytest in processes of their own, on the GPUs of this host."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.plugin.hosts import KEEP, Host

ROOT = Path(__file__).parents[2]


def seeing(gpus: Sequence[str]) -> dict[str, str]:
    """Return the environment of a run that sees these GPUs alone."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}


class RealHost(Host):
    """A folder with a test file, locks and saved calls of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "conftest.py").write_text(KEEP)

    def write(self, source: str) -> None:
        (self.folder / "test_it.py").write_text(source)

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "pytest", "-p", "no:benchmark", "-p", "no:cacheprovider", "--tb=short", "-rs"]
        locks = f"--gpu-bench-lock-folder={self.folder / 'locks'}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GPU_B"))}
        environment["PYTHONPATH"] = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        environment |= {"XDG_STATE_HOME": str(self.folder), "COLUMNS": "300"} | variables
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*command, locks, *arguments],
            cwd=self.folder,
            env=environment,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            text=True,
        )
