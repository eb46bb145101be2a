"""The time of a call, from batches and the clocks around them; and the call before a timed one."""

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.batches import Batches
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.stats.summary import Interval


def batches_of(fixed_us: Interval, more_us: Sequence[float] = (), device: str = "cpu") -> Batches:
    """Return batches of 1 and 3 calls; fixed_us: the times of a batch of one call of a function of ours."""
    more = iter(more_us)
    candidate: Any = SimpleNamespace(fixed_us=fixed_us, worked_us=0.0, run=lambda values: next(more))
    candidate.device, candidate.output = SimpleNamespace(type=device), lambda number: None
    candidate.checked = []
    candidate.check_samples = lambda: candidate.checked.append(None)
    reference: Any = SimpleNamespace(require=lambda *given: None)
    return Batches(candidate, reference, 3, lambda number: [()])


@pytest.mark.parametrize(
    ("alone_us", "larger_us", "worked_us", "each_us"),
    [
        (200.0, 300.0, (100.0, 150.0), 50.0),
        (900.0, 300.0, (100.0, 150.0), 33.333),
        (200.0, 300.0, (100.0, 250.0), 75.0),
        (200.0, 900.0, (100.0, 150.0), 350.0),
    ],
)
def test_a_call_on_a_busy_cpu_takes_at_least_what_its_process_ran_for(
    alone_us: float, larger_us: float, worked_us: tuple[float, float], each_us: float
) -> None:
    """Three calls; a batch of one of ours took 100 us, and may take 100 us more: waiting longer takes nothing off."""
    batches = batches_of(Interval(100.0, 9000.0))
    batches.times_us = {"candidate": {1: [alone_us] * 3, 3: [larger_us] * 3}}
    batches.worked_us = {1: [worked_us[0]] * 3, 3: [worked_us[1]] * 3}
    assert batches.each_us("candidate") == pytest.approx([each_us] * 3, abs=1e-3)


@pytest.mark.parametrize(
    ("alone_us", "more_us", "pauses_s", "latency_us"),
    [
        (1000.0, [], [], 400.0),
        (1000.1, [850.0] * 35 + [620.0], [0.0], 20.0),
        (1000.1, [500.0] * 36, [0.0], 0.0),
        (1000.1, [1050.0] * 71 + [1000.0], [0.0, 1.0], 400.0),
        (1000.1, [1050.0] * 107 + [1000.0], [0.0, 1.0, 2.0], 400.0),
        (1000.1, [1050.0] * 108, [0.0, 1.0, 2.0], 400.1),
        (200_600.0, [200_600.0] * 15, [0.0, 1.0, 2.0], 200_000.0),
    ],
)
def test_calls_that_may_overlap_are_timed_alone_again(
    alone_us: float, more_us: list[float], pauses_s: list[float], latency_us: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of a function of ours took 600 us at least; 400 us more may be late. The shortest of all counts.

    They take a second at most after each pause, and a bit more.
    """
    paused_s: list[float] = []
    monkeypatch.setattr(time, "sleep", paused_s.append)
    batches = batches_of(Interval(600.0, 900.0), more_us, "cuda")
    batches.times_us["candidate"] = {1: [alone_us, 2 * alone_us], 3: [1.0]}
    batches.time_more_calls()
    assert batches.latency_us == pytest.approx(latency_us)
    assert (paused_s, len(batches.more_us)) == (pauses_s, len(more_us))
    assert len(batches.candidate.checked) == len(more_us)  # type: ignore[attr-defined]
    assert batches.times_us["candidate"][1] == [alone_us, 2 * alone_us], "the time of a call in larger batches stays"


def test_reps_are_no_first_calls_on_their_sets() -> None:
    """A function may prepare something for each place of its inputs; on a CPU their pages are mapped."""
    seen: list[int] = []
    Runner(seen.append, [(number,) for number in range(10)], cpu_device(), lambda outputs: None).warm()
    assert set(seen) == {*range(8), 9}, "the last is for the untimed call before a rep on the first"


def test_a_rep_follows_a_call_on_other_inputs() -> None:
    """The first call after another process has run is slower."""
    seen: list[int] = []
    runner = Runner(seen.append, [(1,), (2,), (3,)], cpu_device(), lambda outputs: None)
    runner.begin()
    runner.take(0, 0.0)
    runner.take(1, 0.0)
    assert len(runner.end()) == 2
    assert seen == [3, 1, 1, 2]
