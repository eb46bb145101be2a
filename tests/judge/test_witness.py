"""The referee's clock around replayed calls: what is taken off, when enough were released, what is not believed."""

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench.judge.candidate import Released
from pytest_gpubench.judge.judgement import time_of
from pytest_gpubench.judge.witness import ClocksDisagree, ReplayCost, Witness, measure_replays


class Candidate:
    """Stands for a candidate; notes how many calls are released together."""

    most_together = 2**10
    bandwidth = 4.0
    alone = staticmethod(nullcontext)

    def __init__(self, times_us: Iterator[float], own_us: float = 80.0) -> None:
        self.times_us, self.own_us = times_us, own_us
        self.released: list[int] = []
        self.done: list[object] = []

    def begin_case(self, example: object, sets: int, outputs: object, blank: bool = False) -> None:
        self.done.append(("blank" if blank else "case", outputs))

    def first(self) -> None:
        self.done.append("first")

    def release(self, values: list[object]) -> list[Released]:
        self.released.append(len(values))
        return [Released(next(self.times_us), self.own_us, torch.zeros(1)) for _ in values]


COST = ReplayCost(call_us=150.0, own_us=80.0)
"""A replay of the reference takes 150 us, of these the kernels 100 us; the referee itself takes 80 us before it."""


def witness_of(candidate: Candidate, cost: ReplayCost = COST, output_bytes: int = 0) -> Witness:
    reference, device = SimpleNamespace(require=lambda *given: None), SimpleNamespace(cache_bytes=60)
    outputs = [SimpleNamespace(shape=(output_bytes,), stride=(1,), dtype="int8")]
    ready: Any = SimpleNamespace(draw=lambda number: [()] * number, reference=reference, outputs=outputs, device=device)
    return Witness(candidate, ready, cost, 100.0, launch_us=1.0)  # type: ignore[arg-type]


def repeated(*times_us: float) -> Iterator[float]:
    while True:
        yield from times_us


@pytest.mark.parametrize(("own_us", "found_us"), [(80.0, 100.0), (105.0, 100.0), (106.0, 126.0), (9.0, 100.0)])
def test_work_beside_the_referees_own_counts(own_us: float, found_us: float) -> None:
    """It would have cost two switches of the GPU, half of a replay each; less is the cache's doing."""
    witness = witness_of(Candidate(repeated(150.0), own_us))
    assert witness.time(time_of([200.0] * 8), 1, 0.05, 10.0).median_us == found_us


@pytest.mark.parametrize(("output_bytes", "later_us"), [(0, 0.0), (40, 10.0), (60, 15.0), (600, 15.0)])
@pytest.mark.parametrize(("recorded_us", "share"), [(20.0, 0.8), (100.0, 0.0), (200.0, 0.0)])
@pytest.mark.parametrize("beyond_us", [-0.1, 0.1])
def test_a_faster_call_leaves_more_to_be_written(
    output_bytes: int, later_us: float, recorded_us: float, share: float, beyond_us: float
) -> None:
    """Of its outputs, as much as the cache holds."""
    most_us = 1.05 * recorded_us + 2 + share * later_us
    witness = witness_of(Candidate(repeated(50.0 + most_us + beyond_us)), output_bytes=output_bytes)
    with nullcontext() if beyond_us < 0 else pytest.raises(ClocksDisagree):
        witness.time(time_of([recorded_us] * 8), 1, 0.05, 10.0)


@pytest.mark.parametrize(
    ("recorded_us", "times_us", "calls"),
    [
        (108.0 / 1.05, (140.0, 160.0), 14),
        (107.9 / 1.05, (140.0, 160.0), 192),
        (88.0 / 1.05, (140.0, 160.0), 192),
        (1000.0, (90.0, 300.0), 14),
    ],
)
def test_replays_are_released_until_their_records_explain_them_or_not(
    recorded_us: float, times_us: tuple[float, ...], calls: int
) -> None:
    """They take 90 to 110 us. The first two do not count."""
    candidate = Candidate(repeated(*times_us))
    found = witness_of(candidate).time(time_of([recorded_us] * 8), 1, 0.05, 100.0)
    assert len(found.samples_us) == calls
    assert candidate.released[0] == 2


def test_no_more_are_released_when_the_time_is_spent() -> None:
    """They are enough for an interval, by the plugin's own alpha."""
    found = witness_of(Candidate(repeated(140.0, 160.0))).time(time_of([95.0] * 8), 1, 0.001, 0.0)
    assert len(found.samples_us) == 14
    assert found.interval is not None


@pytest.mark.parametrize(("most", "together"), [(14, [14]), (5, [5, 5, 4]), (1, [1] * 14)])
def test_calls_are_released_together_as_memory_allows(most: int, together: list[int]) -> None:
    candidate = Candidate(repeated(150.0))
    candidate.most_together = most
    witness_of(candidate).time(time_of([100.0] * 8), 1, 0.05, 10.0)
    assert candidate.released[1:] == together


@pytest.mark.parametrize(
    ("call_us", "is_blank", "message"),
    [
        (50.0 + 24.0, False, None),
        (50.0 + 24.1, False, "its records say 20.00 us, and the referee's clock 24.10 us"),
        (50.0 - 2.0, False, None),
        (50.0 - 2.1, False, "takes 2.100 us less by the referee's clock than a replay alone cost before"),
        (150.0 + 30.0, True, None),
        (150.0 + 30.1, True, "the referee's clock 30.10 us"),
    ],
)
def test_records_are_believed_as_far_as_the_referees_clock_agrees(
    call_us: float, is_blank: bool, message: str | None
) -> None:
    """It may say 2 us and 5 % more, 8 us beside blank calls, and half a launch for each kernel after the first.

    And 2 us less than nothing.
    """
    witness = witness_of(Candidate(repeated(call_us)), COST._replace(is_blank=is_blank))
    with pytest.raises(ClocksDisagree, match=message) if message else nullcontext():
        witness.time(time_of([20.0] * 8), 3, 0.05, 10.0)


def test_blank_calls_cost_their_shortest() -> None:
    """The first two do not count; others that use the GPU make some longer."""
    candidate = Candidate(chain([1.0, 2.0], repeated(900.0, 20.0, 21.0)))
    ready: Any = SimpleNamespace(example=(), outputs=["output"], saved=b"")
    assert measure_replays(candidate, ready) == ReplayCost(20.0, 80.0, is_blank=True)  # type: ignore[arg-type]
    assert candidate.done == [("blank", ["output"]), "first"]


def test_replays_of_the_reference_cost_their_median() -> None:
    """The first two do not count; the last one's output is compared."""
    candidate, compared = Candidate(chain([1.0, 2.0], repeated(149.0, 151.0))), []
    candidate.most_together = 5
    ready: Any = SimpleNamespace(example=(), outputs=["output"], saved=b"call", reference=SimpleNamespace())
    ready.reference.require = lambda *given: compared.append(given)
    assert measure_replays(candidate, ready) == COST  # type: ignore[arg-type]
    assert (candidate.done, candidate.released, len(compared)) == ([("case", ["output"]), "first"], [5] * 6 + [4], 1)
