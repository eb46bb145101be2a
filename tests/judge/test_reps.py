"""Reps of both arms in turn: their sets of inputs, their values and their idle time."""

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace

import pytest

from pytest_gpubench.judge.reps import Reps
from pytest_gpubench.timing.base import Rep


class Arm:
    """Stands for an arm, its runner and its process; notes each rep."""

    tax = 0.0

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self.runner = self.process = self
        self.taken: list[tuple[object, ...]] = []

    def fill(self, values: Sequence[tuple[int, ...]], first: int) -> None:
        self.filled = values, first

    def take(self, index: int, idle_s: float) -> None:
        self.taken.append((*self.filled, index, idle_s))

    def begin(self) -> None:
        pass

    stop = begin

    def end(self) -> list[Rep]:
        return [Rep(1.0)] * len(self.taken)

    def ask(self, do: str) -> SimpleNamespace:
        return SimpleNamespace(samples_us=[1.0] * len(self.taken), tax=0.0, kernels=[])


@pytest.mark.parametrize(
    ("sets", "indices"), [(2, [0, 1] * 5), (7, [*range(7), 0, 1, 2]), (8, [*range(8), 0, 1]), (9, [*range(8), 0, 1])]
)
def test_both_arms_take_reps_alike(sets: int, indices: list[int]) -> None:
    """They use the same sets, with the same new values, after the idle time that the reference needs."""
    seeds = count()
    reference, candidate = Arm(0.25), Arm(0.75)
    reps = Reps(
        candidate,  # type: ignore[arg-type]
        reference,  # type: ignore[arg-type]
        sets,
        lambda number: [(next(seeds),) for _ in range(number)],
        lambda *given: None,
    )
    order = ("reference", "candidate", "candidate", "reference")
    reps.take([order] * 5)
    assert candidate.taken == [([(seed,)], index, index, 0.25) for seed, index in enumerate(indices)]
    assert reference.taken[:-1] == candidate.taken, "the last one is taken after all comparisons"
    assert reps.each_us("reference") == reps.each_us("candidate") == [1.0] * 10
