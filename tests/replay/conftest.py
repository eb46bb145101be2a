"""Calls that are captured and replayed on the CPU."""

import pytest

from tests.replay.on_cpu import OnCpu, make_on_cpu
from tests.timing.test_events import FakeGpu, gpu
from tests.timing.test_graph import streams

__all__ = ["gpu", "streams"]  # fixtures


@pytest.fixture
def on_cpu(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> OnCpu:
    return make_on_cpu(streams, monkeypatch)
