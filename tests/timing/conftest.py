import pytest

from tests.timing.fakes import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that what takes reps reads, and sleeps by, instead of the real one."""
    return Clock().read_by_all(monkeypatch)
