"""Sampling by ranks: a session or rep that one rank cannot use is taken again by all."""

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_gpubench import KernelsDiffer
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks import Job, worker
from pytest_gpubench.timing.ranks.worker import Assignment, RankSampler
from pytest_gpubench.timing.rounds import Sample
from tests.timing.fakes import Clock, FakeTimer, numbered, rep
from tests.timing.ranks.fake_ranks import PLAN, nothing

HOST_BOUND = "host-bound"
GIVEN_UP = r"rank 1: other kernels \(measured 3 times\)"


def sampler_of(timer: Any, others: Callable[[Any], object]) -> RankSampler:
    """Return a sampler of a rank that is never throttled; `others` says what the second rank tells."""
    peers: Any = SimpleNamespace(tell=lambda mine: [mine, others(mine)])
    return RankSampler(timer, make_call(nothing, label="f"), lambda: 0, peers)


@pytest.mark.parametrize("failures", [1, 3])
def test_a_session_that_is_not_complete_for_one_rank_is_taken_again_by_all(clock: Clock, failures: int) -> None:
    """One that never is raises the same everywhere."""
    problems = iter([*[KernelsDiffer("other kernels")] * failures, None])
    timer, sample, expected = FakeTimer(clock), Sample(), pytest.raises(KernelsDiffer, match=GIVEN_UP)
    with expected if failures == 3 else nullcontext():
        taken = sampler_of(timer, lambda mine: (next(problems), *mine[1:])).take_session(4, 0.0, sample)
        assert ([mask for _, mask, _ in taken], sample.remeasured) == ([0] * 4, 1)
    assert timer.sizes == [4] * min(failures + 1, 3)


@pytest.mark.parametrize(("kernels", "is_refused"), [("a", False), ("ab", True)])
def test_a_session_has_the_kernels_of_the_sample_so_far(clock: Clock, kernels: str, is_refused: bool) -> None:
    sampler = sampler_of(FakeTimer(clock, lambda number: rep(100, kernels)), lambda mine: (None, *mine[1:]))
    with pytest.raises(KernelsDiffer, match=r"^rank 0: ") if is_refused else nullcontext():
        sampler.take_session(4, 0.0, Sample([rep(100, "a")]))


CLEAN, THROTTLED, BRAKED, BEHIND = (0, False), (4, False), (8, False), (0, True)
"""What a rank tells of a rep: what throttled its GPU, and whether its host was not ahead."""


@pytest.mark.parametrize(
    ("told", "sizes", "discarded", "throttle_mask"),
    [
        ([[CLEAN, THROTTLED, CLEAN], [CLEAN]], [3, 1], 1, 0),
        ([[CLEAN, BEHIND, CLEAN], [CLEAN]], [3, 1], 1, 0),
        ([[CLEAN, THROTTLED, BRAKED], [THROTTLED, CLEAN], [(2, False)]], [3, 2, 1], 3, 4),
        ([[CLEAN, BEHIND, BEHIND], [BEHIND, THROTTLED], [CLEAN, BEHIND]], [3, 2, 2], 4, 0),
    ],
)
def test_a_rep_that_is_not_clean_on_one_rank_is_taken_again_by_all(
    clock: Clock, told: list[list[tuple[int, bool]]], sizes: list[int], discarded: int, throttle_mask: int
) -> None:
    """Those that never are clean are kept, as they are; what is in the sample already is no part of the batch."""
    columns, timer, sample = iter(told), FakeTimer(clock), Sample([numbered(99)])
    sampler_of(timer, lambda mine: (None, *zip(*next(columns), strict=True))).take_clean(3, 0.0, sample)
    assert timer.sizes == sizes
    assert (len(sample.reps), sample.reps[0]) == (4, numbered(99))
    assert (sample.discarded, sample.throttle_mask) == (discarded, throttle_mask)
    assert clock.slept_s == [0.1, 0.2][: len(sizes) - 1]


@pytest.mark.parametrize(("first", "last", "sizes", "flagged"), [(2, 3, [3, 1], 0), (2, 9, [3, 1], 1), (0, 9, [3], 3)])
def test_a_rep_in_which_this_host_was_not_ahead_is_taken_again(
    clock: Clock, first: int, last: int, sizes: list[int], flagged: int
) -> None:
    """Unless it was ahead in none of its session: those are kept with their flags."""
    timer = FakeTimer(clock, lambda number: replace(rep(100), flags=(HOST_BOUND,) * (first <= number < last)))
    sample = Sample()
    sampler_of(timer, lambda mine: mine).take_clean(3, 0.0, sample)
    assert (timer.sizes, len(sample.reps)) == (sizes, 3)
    assert sum(each.flags == (HOST_BOUND,) for each in sample.reps) == flagged


@pytest.mark.parametrize(("cost_s", "sizes"), [(0.99, [5, 5, 11, 9]), (10.1, [5, 5] + [1] * 20), (0.4, [5, 5, 20])])
def test_no_batch_is_so_long_that_its_ranks_seem_to_hang(clock: Clock, cost_s: float, sizes: list[int]) -> None:
    timer = FakeTimer(clock, cost_s=cost_s)
    peers: Any = SimpleNamespace(tell=lambda mine: [mine])
    sampler = RankSampler(timer, make_call(nothing, label="f"), lambda: 0, peers)
    assert len(sampler.take_sample(PLAN, Pacing(None), lambda text: None).reps) == 20
    assert timer.sizes == sizes


@pytest.mark.parametrize(("max_clock_mhz", "idle_s"), [(1410, 0.0), (1980, 2.9e-3)])
def test_reps_idle_where_the_clock_sinks_below_what_the_process_of_the_test_has_locked(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, max_clock_mhz: float, idle_s: float
) -> None:
    timer = FakeTimer(clock, lambda number: rep(1000.0, sm_clock_mhz=1410.0))
    alone, pipe = SimpleNamespace(tell=lambda mine: [mine], meet=lambda: None), SimpleNamespace(send=lambda what: None)
    monkeypatch.setattr(worker, "Peers", lambda *given: alone)
    monkeypatch.setattr(worker, "_timer_on", lambda *given: timer)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: None)
    assignment = Assignment(0, 1, 1, None, str(tmp_path / "dump"), Pacing(max_clock_mhz))
    worker.run_worker(assignment, pickle.dumps(Job(nothing, PLAN)), cast(Any, pipe))
    _, *later = timer.sessions
    idles_s = [idle for session in later for idle in session.idles_s]
    assert idles_s == [pytest.approx(idle_s)] * len(idles_s) != []
