"""A fake NVML for all tests of locked clocks: none reaches that of this machine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_gpubench.gpu.clocks.lock import LOCKS, SIGNALS
from tests.gpu.recording_nvml import Recording


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Recording]:
    """Nothing here can reach the NVML of this machine."""
    library = Recording(tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    yield library
    assert LOCKS == []
    assert SIGNALS.handlers == []
