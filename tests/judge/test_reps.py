"""Reps of both arms in turn: their sets of inputs, their values and their idle time."""

from collections.abc import Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.reps import LOOKS, Reps, time_arms
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.speedup import Quad, round_orders
from pytest_gpubench.timing.base import Record, Rep
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement


class Arm:
    """Stands for an arm, its runner and its process; notes each rep."""

    says_us = 1.0

    def __init__(self, idle_s: float, most_together: int = 100) -> None:
        self.idle_s = idle_s
        self.most_together = most_together
        self.memory = torch.zeros((), dtype=torch.int64)
        self.runner = self.process = self
        self.taken: list[tuple[object, ...]] = []
        self.approached: list[int] = []
        """The reps before each untimed call."""

    def fill(self, values: Sequence[tuple[int, ...]], first: int) -> None:
        self.filled = values, first

    def approach(self, index: int) -> None:
        self.filled = (), -1
        self.approached.append(len(self.taken))

    def take(self, index: int, idle_s: float) -> None:
        self.taken.append((*self.filled, index, idle_s))
        if self.filled[0]:
            self.memory.fill_(self.filled[0][0][0])

    def take_last(self) -> None:
        self.take(0, 0.0)

    def output(self) -> torch.Tensor:
        return self.memory.clone()

    def begin(self) -> None:
        pass

    stop = begin

    def end(self) -> list[Rep]:
        return [Rep(1.0, (Record("kernel", "kernel", 0, 1000),))] * len(self.taken)

    def ask(self, do: str) -> SimpleNamespace:
        if do == "take_last":
            self.take_last()
        return SimpleNamespace(samples_us=[self.says_us] * len(self.taken), kernels=[])


def reps_of(candidate: Arm, reference: Arm, sets: int, require: Callable[..., None]) -> Reps:
    """Return reps whose inputs are 0, 1, 2 and so on."""
    seeds = count()
    reference.require = require  # type: ignore[attr-defined]

    def draw(number: int) -> list[tuple[int, ...]]:
        return [(next(seeds),) for _ in range(number)]

    return Reps(candidate, reference, sets, draw)  # type: ignore[arg-type]


ORDER = ("reference", "candidate", "candidate", "reference")


@pytest.mark.parametrize(
    ("sets", "indices"), [(2, [0, 1] * 5), (7, [*range(7), 0, 1, 2]), (8, [*range(8), 0, 1]), (9, [*range(8), 0, 1])]
)
def test_both_arms_take_reps_alike(sets: int, indices: list[int]) -> None:
    """They use the same sets, with the same new values, after the idle time that the reference needs."""
    reference, candidate = Arm(0.25), Arm(0.75)
    reps = reps_of(candidate, reference, sets, lambda *given: None)
    reps.take([ORDER] * 5)
    assert candidate.taken[:-1] == [([(seed,)], index, index, 0.25) for seed, index in enumerate(indices)]
    assert reference.taken[:-1] == candidate.taken[:-1], "the last one is taken after all copies"
    assert candidate.approached[:8] == [0, 0, 1, 2, 2, 2, 3, 4], "before each rep of either arm"
    assert reps.times_us["reference"] == reps.times_us["candidate"] == [1.0] * 10


@pytest.mark.parametrize(
    ("most", "taken_before"), [(7, [7] * 6), (4, [4] * 4 + [7] * 2), (3, [3] * 3 + [6] * 3), (1, [1, 2, 3, 4, 5, 6])]
)
def test_outputs_are_compared_after_the_session_or_where_memory_is_short(most: int, taken_before: list[int]) -> None:
    """Each output, of a process that overwrites it, with its own inputs."""
    candidate = Arm(0.0, most)
    compared: list[tuple[int, ...]] = []

    def require(output: object, values: tuple[int, ...], when: str) -> None:
        assert isinstance(output, torch.Tensor)
        compared.append((int(output), *values, len(candidate.taken)))

    reps_of(candidate, Arm(0.0), 8, require).take([ORDER] * 3)
    assert compared == [(seed, seed, taken) for seed, taken in enumerate(taken_before)]


@pytest.mark.parametrize("says_us", [0.0, -1.0, 5e-324, 1e308, float("inf")])
def test_times_that_no_call_takes_are_none(says_us: float) -> None:
    candidate = Arm(0.0)
    candidate.says_us = says_us
    with pytest.raises(Ended, match="the candidate's process has 0 times for 2 calls"):
        reps_of(candidate, Arm(0.0), 8, lambda *given: None).take([ORDER])


class FakeReps:
    """Rounds in which the candidate's calls take one time and the other in turn, and the reference's 1 us.

    The second call of an arm takes a thousandth longer.
    """

    def __init__(self, candidate_us: tuple[float, float]) -> None:
        self.each_us = {"candidate": candidate_us, "reference": (1.0, 1.0)}
        self.orders: list[Sequence[str]] = []

    def take(self, orders: Sequence[Sequence[str]]) -> None:
        self.orders += orders

    @property
    def times_us(self) -> dict[str, list[float]]:
        return {
            arm: [us[at % 2] * more for at in range(len(self.orders)) for more in (1.0, 1.001)]
            for arm, us in self.each_us.items()
        }


@pytest.mark.parametrize(
    ("candidate_us", "budget_s", "rounds", "outcome"),
    [
        ((0.5, 0.5), 1e9, 6, Outcome.PASS),
        ((2.0, 2.0), 1e9, 6, Outcome.FAIL),
        ((0.5, 2.0), 0.0, 6, Outcome.INCONCLUSIVE),
        ((0.5, 2.0), 1e9, 384, Outcome.INCONCLUSIVE),
    ],
)
def test_rounds_are_added_until_all_is_decided_or_the_time_is_spent(
    candidate_us: tuple[float, float], budget_s: float, rounds: int, outcome: Outcome
) -> None:
    """They go on in one shuffled order."""
    reps: Any = FakeReps(candidate_us)
    judged = SpeedupJudgement("candidate", {"candidate": 1.0}, 0.05, 0.01)
    assert time_arms(reps, judged, 7, budget_s) is judged.latest
    assert judged.outcome is outcome
    assert reps.orders == [*round_orders(("reference", "candidate"), rounds, 7)]


@pytest.mark.parametrize(
    ("speed_us", "decided_at", "rounds"), [(0.5, 0, 6), (0.5, 12, 6), (0.5, 13, 12), (0.5, 999, 384), (2.0, 999, 6)]
)
def test_rounds_are_added_until_the_candidates_own_limits_are_decided(
    speed_us: float, decided_at: int, rounds: int
) -> None:
    """Two calls of it in a round; nothing more is added where its speedup fails."""
    reps: Any = FakeReps((speed_us, speed_us))
    judged = SpeedupJudgement("candidate", {"candidate": 1.0}, 0.05, 0.01)
    time_arms(reps, judged, 7, 1e9, lambda times_us: len(times_us) >= decided_at)
    assert len(reps.orders) == rounds


def test_each_look_leaves_alpha_for_those_to_come() -> None:
    """The last one takes all that is left."""
    plans: list[tuple[int, ...]] = []
    latest = SpeedupJudgement("candidate", {"candidate": 1.0}, 0.05, 0.01)
    first: list[Quad] = []

    def look(quads: Sequence[Quad], plan: tuple[int, ...]) -> None:
        first[:] = quads[:2]
        plans.append(plan)

    judged: Any = SimpleNamespace(latest=latest, failed=False, look=look)
    time_arms(FakeReps((0.5, 2.0)), judged, 7, 1e9)  # type: ignore[arg-type]
    assert first == [((1.0, 1.001), (0.5, 0.5 * 1.001)), ((1.0, 1.001), (2.0, 2.0 * 1.001))]
    assert plans == [*(LOOKS[: number + 1] for number in range(1, len(LOOKS))), LOOKS]
