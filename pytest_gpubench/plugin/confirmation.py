"""A FAIL against a saved run is confirmed by a fresh process, whose addresses, clocks and choices are others."""

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.plugin.fresh_process import NotTaken, run_fresh

if TYPE_CHECKING:
    from pytest_gpubench.results.model import TestRecord

MOST_S = 300.0
"""The time that all fresh processes of a run, or of an xdist worker, may take: one takes about 10 s on a GPU."""


class Confirmation:
    """Measures tests in fresh processes, one after the other, as long as there is time for it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._left_s = MOST_S

    def measure(self, nodeid: str) -> "TestRecord | str":
        """Return a test's record from a fresh process, or why there is none."""
        from pytest_gpubench.gpu.lock import turns_to_hand_over

        if self._left_s <= 0:
            return f"those of this run have taken {MOST_S:.0f} s"
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # the same test needs as much memory of the GPU once more
        began_s = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="gpubench-confirm-") as folder:
                run, _ = run_fresh(self.config, Path(folder), [nodeid], turns_to_hand_over(), self._left_s)
        except (NotTaken, OSError) as error:
            lines = str(error).splitlines()
            return " ".join(map(str.strip, [*lines[:1], *lines[1:][-1:]]))
        finally:
            self._left_s -= time.monotonic() - began_s
        return next((each for each in run.records if each.nodeid == nodeid), "it did not run the test")
