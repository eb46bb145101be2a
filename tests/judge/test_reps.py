"""Reps of both arms in turn: their sets of inputs, their values and their idle time."""

from collections.abc import Callable, Sequence
from itertools import count, cycle, islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.trial import Reps, Rules, Trial
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.timing.base import Record, Rep, call_of
from pytest_gpubench.verdict.limits import Limits

CALLS = {arm: call_of(arm, lambda: None) for arm in ("reference", "candidate")}


class Arm:
    """Stands for an arm, its runner and its process; notes each rep."""

    device = cpu_device()

    def __init__(self, idle_s: float = 0.0, most_together: int = 10_000, times_us: Sequence[float] = (1.0,)) -> None:
        self.idle_s, self.most_together = idle_s, most_together
        self.memory = torch.zeros((), dtype=torch.int64)
        self.runner = self.process = self
        self.taken: list[tuple[object, ...]] = []
        self.approached: list[int] = []
        """The reps before each untimed call."""
        self.times_us, self.ended = cycle(times_us), 0

    def fill(self, values: tuple[int, ...], index: int) -> None:
        self.filled = values, index

    def approach(self, index: int) -> None:
        self.filled = (), -1
        self.approached.append(len(self.taken))

    def take(self, index: int, idle_s: float) -> None:
        self.taken.append((*self.filled, index, idle_s))
        self.memory.fill_(self.filled[0][0])

    def output(self) -> torch.Tensor:
        return self.memory.clone()

    def begin(self) -> None:
        self.is_open = True

    def stop(self) -> None:
        self.is_open = False

    def end(self) -> list[Rep]:
        number, self.ended = len(self.taken) - self.ended, len(self.taken)
        return [Rep(each, (Record("kernel", "kernel", 0, 1000),)) for each in islice(self.times_us, number)]

    def ask(self, do: str) -> SimpleNamespace:
        samples_us = [each.elapsed_us for each in self.end()] if do == "end" else []
        return SimpleNamespace(samples_us=samples_us, kernels=[("x" * 90_000, 1)] * 30)


def ready_case(reference: Arm, require: Callable[..., None] = lambda *given: None) -> Any:
    """Return a case whose inputs are 0, 1, 2 and so on."""
    seeds = count()
    reference.require, reference.compared = require, 0  # type: ignore[attr-defined]

    def draw(number: int) -> list[tuple[int, ...]]:
        return [(next(seeds),) for _ in range(number)]

    return SimpleNamespace(reference=reference, draw=draw, device=reference.device)


def take(reps: Reps, rounds: int) -> Sequence[Rep]:
    with reps.session():
        for arm in ("reference", "candidate", "candidate", "reference") * rounds:
            reps.take(CALLS[arm], 9.0)
    return reps.reps()


@pytest.mark.parametrize(("sets", "indices"), [(2, [0, 1] * 5), (7, [*range(7), 0, 1, 2])])
def test_both_arms_take_reps_alike(sets: int, indices: list[int]) -> None:
    """They use the same sets, with the same new values, after the idle time that the reference needs."""
    reference, candidate = Arm(0.25, times_us=(1.0, 2.0)), Arm(0.75, times_us=(3.0, 4.0))
    found = take(Reps(candidate, ready_case(reference), sets), 5)  # type: ignore[arg-type]
    assert candidate.taken == [((seed,), index, index, 0.25) for seed, index in enumerate(indices)]
    assert reference.taken == candidate.taken
    assert candidate.approached[:8] == [0, 0, 1, 2, 2, 2, 3, 4], "before each rep of either arm"
    assert found == [Rep(each) for each in (1.0, 3.0, 4.0, 2.0)] * 5


@pytest.mark.parametrize(
    ("most", "taken_before"), [(7, [6] * 6), (4, [4] * 4 + [6] * 2), (3, [3] * 3 + [6] * 3), (1, [1, 2, 3, 4, 5, 6])]
)
def test_outputs_are_compared_after_the_session_or_where_memory_is_short(most: int, taken_before: list[int]) -> None:
    """Each output, of a process that overwrites it, with its own inputs."""
    candidate = Arm(0.0, most)
    compared: list[tuple[int, ...]] = []

    def require(output: object, values: tuple[int, ...], when: str) -> None:
        assert isinstance(output, torch.Tensor)
        compared.append((int(output), *values, len(candidate.taken)))

    take(Reps(candidate, ready_case(Arm(), require), 8), 3)  # type: ignore[arg-type]
    assert compared == [(seed, seed, taken) for seed, taken in enumerate(taken_before)]


@pytest.mark.parametrize("name", ["output", "ask"])
def test_a_session_ends_here_whatever_happens_in_the_candidates_process(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else the next candidate's could not begin."""
    reference, candidate = Arm(), Arm()
    reps = Reps(candidate, ready_case(reference), 8)  # type: ignore[arg-type]

    def fail(*given: object) -> None:
        if given != ("begin",):
            assert reference.is_open
            raise Ended("crash", "it has ended")

    monkeypatch.setattr(candidate, name, fail)
    with pytest.raises(Ended), reps.session():
        reps.take(CALLS["candidate"], 0.0)
    assert not reference.is_open


PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("limits", "candidate_us", "budget_s", "rounds", "on_speedup", "on_time"),
    [
        ({}, (0.5,), 1e9, 6, PASS, []),
        ({}, (2.0,), 1e9, 6, FAIL, []),
        ({}, (0.5, 0.5, 2.0, 2.0), 0.0, 6, INCONCLUSIVE, []),
        ({}, (0.5, 0.5, 2.0, 2.0), 1e9, 384, INCONCLUSIVE, []),
        ({"max_time_us": 0.6}, (0.5,), 1e9, 6, PASS, [PASS]),
        ({"max_time_us": 0.5}, (0.4, 0.6), 1e9, 384, PASS, [INCONCLUSIVE]),
        ({"max_time_us": 0.5}, (0.6, 0.6, 3.0, 3.0), 1e9, 6, INCONCLUSIVE, [FAIL]),
    ],
)
def test_rounds_are_added_until_all_is_decided_or_the_time_is_spent(
    limits: dict[str, float],
    candidate_us: tuple[float, ...],
    budget_s: float,
    rounds: int,
    on_speedup: Outcome,
    on_time: list[Outcome],
) -> None:
    """By the loop of `compare`; the reference takes 1 us."""
    candidate, rules = Arm(times_us=candidate_us), Rules(Limits(min_speedup=1.0, **limits), 0.05, budget_s=budget_s)
    trial = Trial(candidate, ready_case(Arm()), rules)  # type: ignore[arg-type]
    trial._time(8)
    assert len(trial.candidate_us.samples_us) == len(candidate.taken) == 2 * rounds
    found = [each.outcome for each in trial.judges.time.verdicts]
    assert (trial.judges.speedup.outcome, found) == (on_speedup, on_time)
    assert trial.found["kernels"] == (f"1 x {'x' * 80}",) * 20, "names are cut: a candidate's process may send any"
