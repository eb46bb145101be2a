"""Rounds of both arms, look by look."""

from collections.abc import Sequence

import pytest

from pytest_gpubench.judge.looks import time_arms
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.speedup import round_orders
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement


class FakeCalls:
    """Rounds in which the candidate's calls take one time and the other in turn, and the reference's 1 us."""

    def __init__(self, candidate_us: tuple[float, float]) -> None:
        self.times_us = {"candidate": candidate_us, "reference": (1.0, 1.0)}
        self.orders: list[Sequence[str]] = []

    def take(self, orders: Sequence[Sequence[str]]) -> None:
        self.orders += orders

    def each_us(self, arm: str) -> list[float]:
        return [self.times_us[arm][number % 2] for number in range(len(self.orders)) for _ in range(2)]


@pytest.mark.parametrize(
    ("candidate_us", "budget_s", "rounds", "outcome"),
    [
        ((0.5, 0.5), 1e9, 6, Outcome.PASS),
        ((2.0, 2.0), 1e9, 6, Outcome.FAIL),
        ((0.5, 2.0), 0.0, 6, Outcome.INCONCLUSIVE),
        ((0.5, 2.0), 1e9, 192, Outcome.INCONCLUSIVE),
    ],
)
def test_rounds_are_added_until_all_is_decided_or_the_time_is_spent(
    candidate_us: tuple[float, float], budget_s: float, rounds: int, outcome: Outcome
) -> None:
    """They go on in one shuffled order."""
    calls = FakeCalls(candidate_us)
    found = time_arms(calls, SpeedupJudgement("candidate", {"candidate": 1.0}, 0.05, 0.01), 7, budget_s)
    assert (found.outcome, found.reference_us.median_us) == (outcome, 1.0)
    assert calls.orders == [*round_orders(("reference", "candidate"), rounds, 7)]
