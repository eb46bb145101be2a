"""Calls that are captured and replayed on the CPU."""

import pytest

from tests.replay.on_cpu import OnCpu, make_on_cpu
from tests.timing.fake_gpu import FakeGpu, gpu, streams

__all__ = ["gpu", "streams"]  # fixtures


@pytest.fixture
def on_cpu(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> OnCpu:
    return make_on_cpu(streams, monkeypatch)
