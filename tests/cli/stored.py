"""Storages made by hand."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pytest_gpubench.cli import main
from pytest_gpubench.results.model import CommitInfo, SavedRun
from pytest_gpubench.results.store import Storage
from tests.results.saved import make_run

COMMANDS = ("list", "show", "compare", "ab", "bisect", "merge", "history", "replay", "judge", "doctor", "docs")

Command = Callable[..., tuple[int, str, str]]


def dated(run: SavedRun, day: int, commit: str = "") -> SavedRun:
    """Return the run as that of a day in March, and of a commit."""
    info = CommitInfo(id=(commit or f"{day:08x}") * 5, dirty=False)
    return msgspec.structs.replace(run, datetime=f"2026-03-{day:02}T12:30:00+00:00", commit_info=info)


def fill(root: Path, days: int = 3, slower_from: int = 99, tests: int = 7, slower: float = 1.1) -> list[Path]:
    """Save a run for each day, slower from one of them on; return their files."""
    storage = Storage(root)
    runs = [make_run(tests=tests, seed=day, slower=slower if day >= slower_from else 1.0) for day in range(1, days + 1)]
    return [storage.save_each(dated(run, day)).popitem()[0] for day, run in enumerate(runs, 1)]


def commander(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs the command and returns its status, and what it wrote to both streams."""

    def run(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return status, out, err

    return run
