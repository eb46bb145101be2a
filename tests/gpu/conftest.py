import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.holding import IMPORTS, Start


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python with IMPORTS and a script; what still runs at the end is killed and waited for."""
    processes: list[subprocess.Popen[str]] = []

    def run(script: str, *arguments: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", IMPORTS + script, *map(str, arguments)]
        processes.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.communicate()
