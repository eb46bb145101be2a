"""A run, the content of its file, and the reason why a file is refused."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from pytest_gpubench import BadFile, Timing
from pytest_gpubench.results.model import SavedRun
from pytest_gpubench.results.store import Storage, read_run, write_run
from tests.results.saved import make_run

RUN = make_run(tests=8, reps=12)
replace = msgspec.structs.replace


def content(run: SavedRun = RUN) -> dict[str, Any]:
    """Return a file's content, parsed by what is not msgspec."""
    with TemporaryDirectory() as folder:
        write_run(run, Path(folder, "run.json"))
        found: dict[str, Any] = json.loads(Path(folder, "run.json").read_text())
    return found


def save(storage: Storage, run: SavedRun, name: str = "") -> Path:
    """Save a run, and return the file of its first GPU model."""
    return next(iter(storage.save_each(run, name)))


def refusal(path: Path) -> str:
    """Return why a file is not read: one sentence that begins with its name."""
    with pytest.raises(BadFile) as caught:
        read_run(path)
    sentence = str(caught.value)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    return sentence


def timing_of(run: SavedRun) -> Timing:
    return run.records[0].measurements[0].timing
