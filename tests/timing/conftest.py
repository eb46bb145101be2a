import pytest

from pytest_gpubench.gpu import device, readings
from pytest_gpubench.timing import attempts, comparison, measurement, rounds, warmup
from tests.timing.fakes import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that what takes reps reads, and sleeps by, instead of the real one."""
    clock = Clock()
    for module in (device, readings, attempts, comparison, measurement, rounds, warmup):
        monkeypatch.setattr(module, "time", clock)
    return clock
