"""A new repository as working directory, and a fake of pytest."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.ab.faked import FakePytest, Git


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    for name in [name for name in os.environ if name.startswith(("GIT_", "PYTHONPATH"))]:
        monkeypatch.delenv(name)
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    who = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")

    def run(*words: str) -> str:
        return subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True).stdout.strip()

    run("init", "--quiet", "--initial-branch=main")
    return run


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePytest:
    return FakePytest(monkeypatch)
