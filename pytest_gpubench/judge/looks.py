"""Rounds of calls of both arms, look by look, until their speedup is decided or the time is spent."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_gpubench.judge.conclusion import time_of
from pytest_gpubench.judge.judgement import Time
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.speedup import Quad, SpeedupEstimate, round_orders
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement

__tracebackhide__ = True

ARMS = ("reference", "candidate")
LOOKS = (6, 12, 24, 48, 96, 192)
"""The numbers of quads after which the trial looks at its intervals."""

Orders = Sequence[Sequence[str]]
"""The arms in the order of their calls, for each round."""
Draw = Callable[[int], Sequence[tuple[Any, ...]]]
"""Returns the inputs of so many calls."""


class Calls(Protocol):
    """Calls of both arms that are timed in one way."""

    def take(self, orders: Orders) -> None:
        """Time calls in these orders."""

    def each_us(self, arm: str) -> list[float]:
        """Return the times so far, two for each round."""


@dataclass(frozen=True)
class TimedArms:
    """The times of both arms, and the speedup that they show."""

    speedup: SpeedupEstimate
    outcome: Outcome
    """By the limit on the speedup; INCONCLUSIVE without one."""
    reference_us: Time
    candidate_us: Time


def time_arms(calls: Calls, judged: SpeedupJudgement, seed: int, budget_s: float) -> TimedArms:
    """Add rounds until all is decided or the time is spent."""
    started_s = time.monotonic()
    done: tuple[int, ...] = ()
    for number, following in zip(LOOKS, [*LOOKS[1:], None], strict=True):
        began_s, orders = time.monotonic(), round_orders(ARMS, number, seed)[done[-1] if done else 0 :]
        calls.take(orders)
        each_s = (time.monotonic() - began_s) / len(orders)
        done = (*done, number)
        left_s = budget_s - (time.monotonic() - started_s)
        if following is not None and each_s * (following - number) > max(left_s, 0.0):
            following = None
        plan = done if following is None else (*done, following)
        if judged.look(_quads(calls), plan) or following is None:
            break
    assert judged.latest is not None, "nothing was looked at"
    return TimedArms(judged.latest, judged.outcome, *(time_of(calls.each_us(arm)) for arm in ARMS))


def _quads(calls: Calls) -> list[Quad]:
    pairs = [_pairs(calls.each_us(arm)) for arm in ARMS]
    return [Quad(*both) for both in zip(*pairs, strict=True)]


def _pairs(times_us: Sequence[float]) -> list[tuple[float, float]]:
    return list(zip(times_us[::2], times_us[1::2], strict=True))
