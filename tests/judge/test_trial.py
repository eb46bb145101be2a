"""The trial of a candidate, without a process: reps of both arms in turn, and checks of its times."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count, cycle, islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.judgement import Ended, Time, time_of
from pytest_gpubench.judge.trial import Reps, Rules, Trial
from pytest_gpubench.judge.witness import ReplayCost
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.timing.base import Record, Rep, call_of
from pytest_gpubench.verdict.limits import Limits

CALLS = {arm: call_of(arm, lambda: None) for arm in ("reference", "candidate")}


class Arm:
    """Stands for an arm, its runner and its process; notes each rep."""

    device = cpu_device()
    timer = SimpleNamespace(tick_us=0.032)

    def __init__(self, idle_s: float = 0.0, most_together: int = 10_000, times_us: Sequence[float] = (1.0,)) -> None:
        self.idle_s, self.most_together = idle_s, most_together
        self.memory = torch.zeros((), dtype=torch.int64)
        self.runner = self.process = self
        self.taken: list[tuple[object, ...]] = []
        self.approached: list[int] = []
        """The reps before each untimed call."""
        self.visited: list[int] = []
        self.times_us, self.ended, self.sessions = cycle(times_us), 0, 0

    def fill(self, values: tuple[int, ...], index: int) -> None:
        self.filled = values, index

    def approach(self, index: int) -> None:
        self.filled = (), -1
        self.approached.append(len(self.taken))

    def visit(self) -> None:
        self.visited.append(len(self.taken))

    def take(self, index: int, idle_s: float) -> None:
        self.taken.append((*self.filled, index, idle_s))
        self.memory.fill_(self.filled[0][0])

    def output(self) -> torch.Tensor:
        return self.memory.clone()

    def begin(self) -> None:
        self.is_open, self.sessions = True, self.sessions + 1

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
    reps = Reps(candidate, ready_case(reference), sets)  # type: ignore[arg-type]
    found = take(reps, 5)
    assert reps.tick_us == 0.032, "by which intervals are wider"
    assert candidate.taken == [((seed,), index, index, 0.25) for seed, index in enumerate(indices)]
    assert reference.taken == candidate.taken
    assert candidate.approached == reference.approached == [*range(10)], "before each rep"
    assert candidate.visited == [0, 2, 2, 4, 4, 6, 6, 8, 8, 10], "before each of the other arm, without a call"
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


@pytest.mark.parametrize("times_us", [(1.0, 0.0), (1.0, 5e-324), (1.0, 1e308), (1.0, math.nan), ()])
def test_claims_that_are_no_times_are_invalid(times_us: tuple[float, ...]) -> None:
    with pytest.raises(Ended, match=r"the candidate's process has [05] times for 10 calls"):
        take(Reps(Arm(times_us=times_us), ready_case(Arm()), 8), 5)  # type: ignore[arg-type]


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
    trial = Trial(candidate, ready_case(reference := Arm()), rules)  # type: ignore[arg-type]
    trial._time(8)
    assert len(trial.candidate_us.samples_us) == len(candidate.taken) == 2 * rounds
    assert reference.sessions == {6: 1, 384: 7}[rounds], "one for each look"
    found = [each.outcome for each in trial.judges.time.verdicts]
    assert (trial.judges.speedup.outcome, found) == (on_speedup, on_time)
    assert trial.found["kernels"] == (f"1 x {'x' * 500}",) * 20, "names are cut: a candidate's process may send any"


# checks of the times


def trial_of(candidate_us: float, reference_us: float) -> Trial:
    """Return a trial that has found these times."""
    trial: Any = Trial.__new__(Trial)
    trial.device = SimpleNamespace(type="cuda", cache_bytes=400, facts=SimpleNamespace(name="H200"))
    trial.candidate_us, trial.reference_us = time_of([candidate_us] * 8), time_of([reference_us] * 8)
    trial.found, trial.cost = {}, None
    return trial  # type: ignore[no-any-return]


@pytest.mark.parametrize("cost", [None, ReplayCost(1.0, 1.0)])
def test_a_replayed_call_has_the_referees_clock_as_its_witness(
    monkeypatch: pytest.MonkeyPatch, cost: ReplayCost | None
) -> None:
    """It knows the reference's time as one graph, that of a launch, and how often a call launches a kernel."""
    asked: list[object] = []
    found = time_of([11.0])

    def witness(candidate: object, ready: object, cost: object, *times_us: float) -> SimpleNamespace:
        asked.extend(times_us)

        def time(recorded: object, kernels: int, alpha: float, budget_s: float) -> Time:
            asked.append(kernels)
            return found

        return SimpleNamespace(time=time)

    monkeypatch.setattr("pytest_gpubench.judge.trial.Witness", witness)
    ignore = lambda *given, **named: None  # noqa: E731
    launched: list[object] = []
    reference: Any = SimpleNamespace(
        begin_case=ignore, launch=launched.append, whole_us=lambda: 5.0, launch_us=1.0, compared=0
    )
    known: list[object] = []

    @contextmanager
    def alone() -> Iterator[None]:
        known.append("alone")
        yield
        known.append("not alone")

    candidate: Any = SimpleNamespace(begin_case=ignore, first=ignore, alone=alone)
    candidate.process = SimpleNamespace(ask=lambda do, **message: known.append(message.get("known")), allow=ignore)
    reference.runner = SimpleNamespace(taxes=["tax"])
    ready: Any = SimpleNamespace(device=None, reference=reference, example=(), outputs=[], name="", saved=b"call")
    trial: Any = Trial(candidate, ready, Rules(Limits()), cost, "it waits", launches=5)
    trial.candidate_us, trial._sets_for = time_of([10.0] * 8), lambda example: 1
    trial._time, trial._check, trial._find_floor = ignore, ignore, ignore
    judged = trial.judge()
    assert asked == ([] if cost is None else [5.0, 1.0, 5])
    assert launched == [b"call" if cost else b""], "both arms are launched alike"
    own = ["tax"] if cost else ()
    assert known == ["alone", own, "not alone"], "a candidate's own process is told nothing of the reference"
    assert (judged.timed_by, judged.clock_us) == (("candidate", None) if cost is None else ("referee", found))
    assert list(judged.phases_s) == ["checking", "warming up", "timing", "witness"][: 3 + (cost is not None)]


@pytest.mark.parametrize(
    ("times_us", "too_fast"), [((81.0, 101.0), False), ((79.0, 101.0), True), ((79.0, 99.0), False)]
)
def test_a_time_below_what_memory_needs_is_invalid(times_us: tuple[float, float], too_fast: bool) -> None:
    """It moves 500 bytes, 400 of them may be in the cache, at a byte in a microsecond: 80 us are the least.

    A reference below 100 us does not need all of its inputs.
    """
    trial = trial_of(*times_us)
    outputs, example = torch.zeros(65), (torch.zeros(60),)
    trial.candidate = SimpleNamespace(bandwidth=1.0, output=lambda: outputs)  # type: ignore[assignment]
    message = r"faster than memory allows: 79.00 us, and a copy takes 100.0 us"
    with pytest.raises(Ended, match=message) if too_fast else nullcontext():
        trial._find_floor(example)
    assert trial.found["floor_us"] == 100


@pytest.mark.parametrize(("memory_bytes", "sets"), [(2**30, 8), (8 * 8 * 1024 - 1, 7), (8 * 3 * 1024 - 1, 2), (1, 2)])
def test_there_are_as_many_sets_as_memory_has_room_for(memory_bytes: int, sets: int) -> None:
    """Each takes 1024 bytes; eight are used, and take an eighth of the memory, unless two take more."""
    trial = trial_of(10.0, 10.0)
    trial.candidate = SimpleNamespace(process=SimpleNamespace(memory_bytes=memory_bytes))  # type: ignore[assignment]
    assert trial._sets_for((torch.zeros(256),)) == sets


def test_something_else_is_done_in_the_first_call_of_a_candidate() -> None:
    """It may compile then."""
    given: list[object] = []
    candidate: Any = SimpleNamespace(begin_case=lambda *given: None, first=given.append, meanwhile="prepare")
    allowed: list[float] = []
    candidate.process = SimpleNamespace(allow=allowed.append)
    reference = SimpleNamespace(compared=0)
    ready: Any = SimpleNamespace(device=None, reference=reference, example=(), outputs=[], name="")
    trial: Any = Trial(candidate, ready, Rules(Limits(), timeout_s=7.0))
    trial._check = lambda example: None
    assert trial.check().status == "pass"
    assert (given, allowed) == (["prepare"], [7.0])
