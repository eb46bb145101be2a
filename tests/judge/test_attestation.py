"""The attested time: what is taken off, and when enough calls were released."""

from collections.abc import Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench.judge.attestation import Attestation, Before, measure_blank, measure_replays
from pytest_gpubench.judge.candidate import Released
from pytest_gpubench.judge.conclusion import time_of
from pytest_gpubench.timing.base import Record, Rep


class Candidate:
    """Stands for a candidate; notes how many calls are released together."""

    most_together = 2**10

    def __init__(self, times_us: Iterator[float], queued: bool = True) -> None:
        self.times_us, self.queued = times_us, queued
        self.released: list[int] = []
        self.begun: list[bool] = []

    def begin_case(self, example: object, sets: int, outputs: object, blank: bool = False) -> None:
        self.begun.append(blank)

    def queue(self) -> None:
        self.queued = True

    def release(self, values: list[object]) -> list[Released]:
        self.released.append(len(values))
        return [Released(next(self.times_us), 80.0 * self.queued, torch.zeros(1)) for _ in values]


BEFORE = Before(time_of([100.0] * 16), 50.0, 80.0)
"""The reference takes 100 us, a replay costs 50 us, and the referee itself takes 80 us before it."""


def attestation_of(
    candidate: Candidate, wanted: float | None, before: Before = BEFORE, most_us: float | None = None
) -> Attestation:
    """Return an attestation of a candidate."""
    reference = SimpleNamespace(require=lambda *given: None)
    ready: Any = SimpleNamespace(draw=lambda number: [()] * number, reference=reference)
    return Attestation(candidate, ready, before, wanted, most_us)  # type: ignore[arg-type]


def repeated(*times_us: float) -> Iterator[float]:
    while True:
        yield from times_us


@pytest.mark.parametrize(("before", "each_us"), [(BEFORE, 100.0), (Before(BEFORE.reference), 150.0)])
def test_the_cost_of_a_replay_is_taken_off(before: Before, each_us: float) -> None:
    """Nothing is taken off where the candidate's own process is asked each time."""
    found = attestation_of(Candidate(repeated(150.0), queued=before is BEFORE), None, before)
    found.take(0.05, 10.0)
    assert found.call_us.median_us == each_us
    assert found.call_us.interval == (each_us, each_us)
    assert found.speedup.interval == (100 / each_us, 100 / each_us)


@pytest.mark.parametrize(
    ("call_us", "own_us", "found_us"),
    [(150.0, 80.0, 100.0), (150.0, 105.0, 100.0), (150.0, 106.0, 126.0), (150.0, 9.0, 100.0)],
)
def test_work_beside_the_referees_own_counts(call_us: float, own_us: float, found_us: float) -> None:
    """It would have cost two switches of the GPU, half of a blank call each; less is the cache's doing."""
    assert BEFORE.less_blank(Released(call_us, own_us, None)) == found_us


def test_no_time_is_less_than_nothing() -> None:
    """A candidate that takes less than a blank call has no time, not a negative one."""
    found = attestation_of(Candidate(repeated(10.0)), None)
    found.take(0.05, 10.0)
    assert found.call_us.median_us == 0.01


@pytest.mark.parametrize(
    ("wanted", "times_us", "calls"),
    [
        (0.9, (150.0,), 14),
        (1.1, (150.0,), 14),
        (1.0, (140.0, 160.0), 192),
        (None, (150.0,), 14),
        (None, (90.0, 300.0), 192),
    ],
)
def test_calls_are_released_until_the_limit_is_decided(
    wanted: float | None, times_us: tuple[float, ...], calls: int
) -> None:
    """About 98 to 100 us each; without a limit, until the ratio is known by 5 %. The first two do not count."""
    candidate = Candidate(repeated(*times_us))
    found = attestation_of(candidate, wanted)
    found.take(0.05, 100.0)
    assert len(found.times_us) == calls
    assert candidate.released[0] == 2


@pytest.mark.parametrize(("most_us", "calls"), [(110.0, 14), (109.9, 192), (90.0, 192), (89.9, 14)])
def test_replays_are_released_until_their_records_are_believed_or_not(most_us: float, calls: int) -> None:
    """They take 90 to 110 us."""
    found = attestation_of(Candidate(repeated(140.0, 160.0)), 0.9, most_us=most_us)
    found.take(0.05, 100.0)
    assert len(found.times_us) == calls


def test_no_more_are_released_when_the_time_is_spent() -> None:
    """They are enough for an interval, by the plugin's own alpha."""
    found = attestation_of(Candidate(repeated(140.0, 160.0)), 1.0)
    found.take(0.001, 0.0)
    assert len(found.times_us) == 14
    assert found.speedup.interval is not None


@pytest.mark.parametrize(("most", "together"), [(14, [14]), (5, [5, 5, 4]), (1, [1] * 14)])
def test_calls_are_released_together_as_memory_allows(most: int, together: list[int]) -> None:
    candidate = Candidate(repeated(150.0))
    candidate.most_together = most
    found = attestation_of(candidate, None)
    found.take(0.05, 10.0)
    assert candidate.released[1:] == together


def test_what_is_taken_off_where_the_reference_has_no_replay_is_the_shortest_call_of_a_function_of_ours() -> None:
    """The first two do not count; others that use the GPU make some longer."""
    candidate = Candidate(chain([1.0, 2.0], repeated(900.0, 20.0, 21.0)), queued=False)
    candidate.most_together = 5
    ready: Any = SimpleNamespace(example=(), outputs=[], time_reference=lambda calls: [Rep(7.0)] * calls)
    before = measure_blank(candidate, ready)  # type: ignore[arg-type]
    assert (candidate.begun, candidate.queued) == ([True], True)
    assert (before.blank_us, before.own_us, before.slack_us) == (20.0, 80.0, 8.0)
    assert candidate.released == [5] * 6 + [4]
    assert before.reference.median_us == 7


@pytest.mark.parametrize(
    ("gap_ns", "kernels", "lag_us"),
    [(0, 1, 143.0), (900, 4, 140.9), (100, 4, 143.0), (-250, 4, 143.0 + 7.0 * 3 / 16)],
)
def test_what_is_taken_off_a_replay_is_what_the_references_costs(gap_ns: int, kernels: int, lag_us: float) -> None:
    """By its median, less the gaps between its kernels, to each of which tracing has added 0.2 us, or their overlap."""
    candidate, compared = Candidate(repeated(900.0, 150.0, 1.0), queued=False), []
    starts = [at * (1000 + gap_ns) for at in range(kernels)]
    records = tuple(Record("kernel", "kernel", start, start + 1000) for start in starts)
    ready: Any = SimpleNamespace(example=(), outputs=[], reference=SimpleNamespace())
    ready.reference.require = lambda *given: compared.append(given)
    ready.time_reference = lambda calls, as_graph: [Rep(7.0, records)] * calls if as_graph else []
    before = measure_replays(candidate, ready)  # type: ignore[arg-type]
    assert (round(before.blank_us, 6), before.own_us, before.slack_us) == (lag_us, 80.0, 2.0)
    assert before.reference.median_us == 7
    assert (candidate.begun, candidate.queued, len(compared)) == ([False], True, 1)
