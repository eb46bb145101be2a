"""The trial of a candidate: checks of its times, without a process."""

from types import SimpleNamespace

import pytest

from pytest_gpubench.judge.conclusion import time_of
from pytest_gpubench.judge.trial import Trial


@pytest.mark.parametrize(
    ("device", "worked_us", "had_to_wait"),
    [("cpu", 50.0, True), ("cpu", 221.0, False), ("cuda", 50.0, False)],
)
def test_a_claim_is_not_a_lie_where_the_process_waited(device: str, worked_us: float, had_to_wait: bool) -> None:
    """It claims 100 us: on a CPU twice as much and 20 us more is believed, of the time on processors."""
    trial = Trial.__new__(Trial)
    trial.device = SimpleNamespace(type=device)  # type: ignore[assignment]
    trial.batches = SimpleNamespace(copies=False, worked_each_us=lambda: [worked_us] * 8)  # type: ignore[assignment]
    trial.launches, trial.found = 0, {"claimed_us": time_of([100.0] * 8), "graph": True}
    assert trial._had_to_wait() is had_to_wait
