"""A test that broke the GPU, in a fresh process whose comparisons begin with calls that have margins.

They name the tensor beyond which a call reads or writes. The process notes, before each call, what it means if that
breaks the GPU: the last note is what is known when it has ended.
"""

import json
import os
import tempfile
import time
from pathlib import Path

import pytest

from pytest_gpubench.gpu.lock import turns_to_hand_over
from pytest_gpubench.plugin.fresh_process import NAMING, start_fresh

NOTES_FILE = "notes"
MOST_NAMING_S = 120.0
"""The time that all such processes of a run, or of an xdist worker, may take: one takes about 10 s."""


class Naming:
    """Runs a test in such a process; in that process, the file of its notes."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.notes = os.environ.pop(NAMING, None)
        """None in other processes."""
        self._left_s = MOST_NAMING_S

    def note(self, sentence: str) -> None:
        """Note what is known if this process ends now; empty for nothing."""
        assert self.notes is not None
        with open(self.notes, "a") as file:
            print(json.dumps(sentence), file=file)

    def find(self, nodeid: str) -> str:
        """Return what a fresh process finds wrong with a test; empty where it finds nothing, or takes too long."""
        if self._left_s <= 0:
            return ""
        began_s = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="gpubench-naming-") as name:
                notes = Path(name) / NOTES_FILE
                others = {NAMING: str(notes)}
                status = start_fresh(
                    self.config, Path(name), [nodeid], turns_to_hand_over(), self._left_s, others=others
                )
                found = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
        except OSError:
            return ""
        finally:
            self._left_s -= time.monotonic() - began_s
        return found[-1] if found and status is not None else ""
