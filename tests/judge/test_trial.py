"""The trial of a candidate: checks of its times, without a process."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench.judge.conclusion import time_of
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.trial import Rules, Trial
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.verdict.limits import Limits


def trial_of(claimed_us: float, attested_us: float, reference_us: float, device: str = "cuda") -> Trial:
    """Return a trial that has found these times."""
    trial: Any = Trial.__new__(Trial)
    trial.device = SimpleNamespace(type=device, cache_bytes=400)
    trial.claimed, trial.attested = (
        SimpleNamespace(candidate_us=time_of([time_us] * 8), reference_us=time_of([reference_us] * 8))
        for time_us in (claimed_us, attested_us)
    )
    trial.found = {}
    return trial  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("device", "worked_us", "had_to_wait"),
    [("cpu", 50.0, True), ("cpu", 1021.0, False), ("cuda", 50.0, False)],
)
def test_a_claim_is_not_a_lie_where_the_process_waited(device: str, worked_us: float, had_to_wait: bool) -> None:
    """It claims 100 us: on a CPU ten times as much and 20 us more is believed, of the time on processors."""
    trial = trial_of(100.0, 9000.0, 100.0, device)
    trial.batches = SimpleNamespace(copies=False, graph=True, worked_each_us=lambda: [worked_us] * 8)  # type: ignore[assignment]
    trial.launches = 0
    assert trial._had_to_wait() is had_to_wait


@pytest.mark.parametrize(
    ("claimed_us", "worked_us", "copies", "status"),
    [
        (23.1, 250.0, False, "pass"),  # ten times as much and 20 us more is believed
        (22.9, 250.0, False, "invalid"),
        (22.9, 250.0, True, "inconclusive"),
        (22.9, 248.0, False, "inconclusive"),  # the rest of the time, other processes ran
    ],
)
def test_a_claim_that_is_too_short(claimed_us: float, worked_us: float, copies: bool, status: str) -> None:
    trial = trial_of(claimed_us, 250.0, 250.0, "cpu")
    for arms in (trial.claimed, trial.attested):
        arms.speedup = SpeedupEstimate(1.0, None, 8, 0.001)  # type: ignore[misc]
    trial.batches = SimpleNamespace(copies=copies, overlap="", worked_each_us=lambda: [worked_us] * 8)  # type: ignore[assignment]
    trial.launches, trial.rules = 0, Rules(Limits())
    found, reason = trial._conclude()
    assert found == status
    assert ("its process claims 22.90 us" in reason) == (status != "pass")


@pytest.mark.parametrize(
    ("device", "reference_us", "slower"), [("cuda", 15.9, False), ("cuda", 16.1, True), ("cpu", 99.0, False)]
)
def test_a_reference_that_becomes_slower_is_found(device: str, reference_us: float, slower: bool) -> None:
    """It took 10 us before the candidate was loaded: 1.3 times that and 3 us more are allowed."""
    trial = trial_of(10.0, 10.0, reference_us, device)
    trial.ready = SimpleNamespace(before_us=10.0)  # type: ignore[assignment]
    message = r"takes 16.10 us beside .* and took 10.00 us before"
    with pytest.raises(Ended, match=message) if slower else nullcontext():
        trial._check_reference()


@pytest.mark.parametrize(
    ("times_us", "too_fast"),
    [
        ((81.0, 81.0, 101.0), ""),
        ((79.0, 81.0, 101.0), "claimed_us"),
        ((81.0, 79.0, 101.0), "attested_us"),
        ((79.0, 79.0, 99.0), ""),
    ],
)
def test_a_time_below_what_memory_needs_is_invalid(times_us: tuple[float, float, float], too_fast: str) -> None:
    """It moves 500 bytes, 400 of them may be in the cache, at a byte in a microsecond: 80 us are the least.

    A reference below 100 us does not need all of its inputs.
    """
    trial = trial_of(*times_us)
    outputs, example = torch.zeros(65), (torch.zeros(60),)
    trial.candidate = SimpleNamespace(bandwidth=1.0, output=lambda number: outputs)  # type: ignore[assignment]
    message = rf"faster than memory allows: 79.00 us \({too_fast}\), and a copy takes 100.0 us"
    with pytest.raises(Ended, match=message) if too_fast else nullcontext():
        trial._find_floor(example)
    assert trial.found["floor_us"] == 100


@pytest.mark.parametrize(
    ("device", "call_us", "memory_bytes", "sets"),
    [
        ("cuda", 1e6, 2**30, 8),
        ("cpu", 1e6, 2**30, 3),
        ("cuda", 4000 / 9, 2**30, 9),
        ("cpu", 1000 / 4, 2**30, 4),
        ("cuda", 0.0, 2**30, 64),
        ("cuda", 0.0, 8 * 7 * 1024, 7),
        ("cuda", 1e6, 8 * 3 * 1024 - 1, 2),
        ("cpu", 1e6, 1, 2),
    ],
)
def test_there_are_as_many_sets_as_reps_and_batches_use(
    device: str, call_us: float, memory_bytes: int, sets: int
) -> None:
    """Each takes 1024 bytes; all of them take an eighth of the memory, unless two take more."""
    trial = trial_of(10.0, 10.0, 10.0, device)
    trial.candidate = SimpleNamespace(process=SimpleNamespace(memory_bytes=memory_bytes))  # type: ignore[assignment]
    assert trial._sets_for((torch.zeros(256),), call_us) == sets
