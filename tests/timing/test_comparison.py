"""Comparisons: planned and taken looks, orders, timings, and coarse clocks."""

import itertools
import math
import statistics
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench import BadRequest, Timing
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.stats.speedup import LOOKS, critical_ranks, round_orders
from pytest_gpubench.timing.base import Rep, Timer, call_of
from pytest_gpubench.timing.comparison import Match, measure_in_turn
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.rounds import Interleaved
from tests.timing.fakes import ArmsTimer, Clock, rep

ROUND_S = 4 * 0.99e-3
"""What a round of two arms takes with the fake timer."""


def plan(reps: int | None = None, max_time_s: float = 1e9, held_up_time_s: float = 0.0) -> Plan:
    return Plan("cold", reps, None, 0.005, max_time_s, held_up_time_s=held_up_time_s)


def match_of(names: str = "AB", seed: int = 3, interleave: bool = True) -> Match:
    """Return a match of arms named by one letter each, the first of them the reference."""
    calls = {name: call_of(name, lambda: None) for name in names}
    return Match(calls, names[0], seed, interleave)


@dataclass
class Judge:
    """Note what is looked at; decide after so many looks."""

    after: float = math.inf
    looks: list[tuple[int, ...]] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)

    def decide(self, taken: Interleaved, looks: tuple[int, ...]) -> bool:
        self.looks.append(looks)
        self.rounds.append(len(taken.rounds))
        return len(self.looks) >= self.after


def compared(
    timer: Timer, how: Plan, match: Match | None = None, judge: Judge | None = None, said: list[str] | None = None
) -> tuple[Interleaved, dict[str, Timing]]:
    judge, said = judge or Judge(), [] if said is None else said
    return measure_in_turn(match or match_of(), timer, cpu_device(), how, judge.decide, said.append)


# when to look


@pytest.mark.parametrize(("reps", "rounds"), [(1, 1), (40, 20), (41, 21), (900, 450)])
def test_a_number_of_reps_is_one_look(clock: Clock, reps: int, rounds: int) -> None:
    judge = Judge()
    taken, timings = compared(ArmsTimer(clock), plan(reps, max_time_s=1e-9), judge=judge)
    assert (judge.rounds, judge.looks) == ([rounds], [(rounds,)])
    assert len(taken.rounds) == rounds
    assert {timing.reps for timing in timings.values()} == {2 * rounds}


@pytest.mark.parametrize(("max_reps", "is_refused"), [(9, False), (8, True)])
def test_no_more_functions_than_a_session_holds(clock: Clock, max_reps: int, is_refused: bool) -> None:
    said = "^at most 2 functions can be timed in turn, found 3: leave some out$"
    with pytest.raises(BadRequest, match=said) if is_refused else nullcontext():
        compared(ArmsTimer(clock, max_reps=max_reps), plan(2), match_of("ABC"))


OWN = {"looks": (6, 20, 40, 640), "least_more": 6}


@pytest.mark.parametrize(
    ("rounds_of_time", "looks", "planned"),
    [
        (0, (6,), {}),
        (6, (6,), {}),
        (8.5, (6,), {}),
        (9.5, (6, 9), {}),
        (11.5, (6, 9), {}),
        (15.5, (6, 9, 12, 15), {}),
        (16.5, (6, 9, 12, 16), {}),
        (20.5, (6, 9, 12, 16, 20), {}),
        (30.5, (6, 9, 12, 16, 21, 28), {}),  # not worth the alpha
        (31.5, (6, 9, 12, 16, 21, 28, 31), {}),
        (1000, LOOKS, {}),
        (11.5, (6,), OWN),
        (12.5, (6, 12), OWN),
        (25.5, (6, 20), OWN),
        (1000, (6, 20, 40, 640), OWN),
    ],
)
def test_the_plan_ends_with_the_time(
    clock: Clock, rounds_of_time: float, looks: tuple[int, ...], planned: dict[str, Any]
) -> None:
    """In the middle of it, with the quads that there was time for; the last look is told that it is the last."""
    judge, match = Judge(), replace(match_of(), **planned)
    taken, _ = compared(ArmsTimer(clock), plan(max_time_s=rounds_of_time * ROUND_S), match, judge)
    assert judge.rounds == list(looks)
    assert judge.looks == [looks[: number + 1] for number in range(1, len(looks))] + [looks]
    assert len(taken.rounds) == looks[-1]


def test_calls_that_others_hold_up_have_longer(clock: Clock) -> None:
    judge = Judge()
    held_up = ArmsTimer(clock, lambda name, number: rep(1000.0 if number % 2 else 100.0))
    taken, _ = compared(held_up, plan(None, 8.1 * ROUND_S, 40.5 * ROUND_S), judge=judge)
    assert judge.rounds == [6, 9, 12, 16, 21, 28, 37, 40]
    assert len(taken.rounds) == 40


@settings(max_examples=40)  # each takes up to 600 rounds
@given(st.floats(0, 400), st.sampled_from([0.0, 0.5, 5.0]))
def test_looks_spend_alpha_as_they_were_told_to(rounds_of_time: float, unsteady: float) -> None:
    """Each look's rank is that of the plan that was carried out, whatever was still planned at the time."""

    class Slowing(Judge):
        def decide(self, taken: Interleaved, looks: tuple[int, ...]) -> bool:
            timer.cost_s *= 1 + unsteady
            return super().decide(taken, looks)

    clock, judge = Clock(), Slowing()
    timer = ArmsTimer(clock)
    with pytest.MonkeyPatch.context() as patch:
        clock.read_by_all(patch)
        compared(timer, plan(max_time_s=rounds_of_time * ROUND_S), judge=judge)
    carried_out = tuple(judge.rounds)
    ranks = critical_ranks(carried_out, 0.001)
    for number, planned in enumerate(judge.looks):
        assert planned[: number + 1] == carried_out[: number + 1]
        assert critical_ranks(planned, 0.001)[number] == ranks[number]
    assert judge.looks[-1] == carried_out
    assert all(later > look for look, later in itertools.pairwise(carried_out))


# how they are taken


@pytest.mark.parametrize("names", ["AB", "ABC"])
@pytest.mark.parametrize("after", [1, 3])
def test_it_ends_when_all_is_decided(clock: Clock, names: str, after: int) -> None:
    """The orders are those of the seed: look by look they go on where the last one stopped."""
    timer, judge = ArmsTimer(clock), Judge(after)
    taken, timings = compared(timer, plan(), match_of(names, seed=11), judge)
    assert timer.names == [name for order in round_orders(names, LOOKS[after - 1], 11) for name in order]
    assert judge.rounds == list(LOOKS[:after])
    assert {timing.reps for timing in timings.values()} == {2 * len(taken.rounds)}


def test_the_timings_are_of_all_reps_and_not_said_to_be_imprecise(clock: Clock) -> None:
    """It is the ratio that has to be precise."""
    timer = ArmsTimer(clock, lambda name, number: rep(100 + 50 * math.sin(number), kernels="xy"))
    taken, timings = compared(timer, plan(), judge=Judge(after=1))
    assert list(timings) == ["A", "B"]
    for name, timing in timings.items():
        assert (timing.label, timing.cache, timing.timer, timing.flags) == (name, "cold", "fake", ())
        assert timing.samples_us == taken.samples[name].samples_us
        assert [kernel.name for kernel in timing.kernels] == ["x", "y"]
    assert sum(timing.elapsed_s for timing in timings.values()) == pytest.approx(LOOKS[0] * ROUND_S)


# clocks that tick


class Ticking(ArmsTimer):
    tick_us = 0.032


def test_readings_of_a_coarse_clock_are_dithered_for_the_verdict_alone(clock: Clock) -> None:
    """By less than a tick, evenly to both sides, by the seed; the samples stay as they were read."""
    how, play = plan(reps=400), lambda name, number: rep(5.024)
    first, again, other = (
        compared(Ticking(clock, play), how, match_of(seed=seed))[0].quads("A", "B") for seed in (1, 1, 2)
    )
    readings = [reading for quad in first for times in quad for reading in times]
    assert len(set(readings)) == 800
    assert all(4.992 < reading < 5.056 for reading in readings)
    assert statistics.fmean(readings) == pytest.approx(5.024, abs=4 * 0.032 / math.sqrt(6 * 800))
    assert statistics.pstdev(readings) == pytest.approx(0.032 / math.sqrt(6), rel=0.05)
    assert first == again != other
    short = compared(Ticking(clock, lambda name, number: rep(0.03)), how)[0].quads("A", "B")
    assert all(0.015 < reading < 0.045 for quad in short for times in quad for reading in times)
    _, timings = compared(Ticking(clock, play), how)
    assert set(timings["A"].samples_us) == {5.024}


class Settling(ArmsTimer):
    settles = True


@pytest.mark.parametrize("growth", [1.0, 1.05])
def test_long_calls_idle_each_as_it_has_to(clock: Clock, growth: float) -> None:
    """As their warm-up has shown, though it never came to rest: they are throttled else."""

    def play(name: str, number: int) -> Rep:
        return rep({"A": 1000.0 * growth ** timer.names.count("A"), "B": 10.0}[name])

    timer, said = Settling(clock, play), list[str]()
    taken, timings = compared(timer, plan(), judge=Judge(after=1), said=said)
    assert said == ["A: compiling and warming up", "B: compiling and warming up", "comparing A, B"]
    assert all(timing.warmup_calls > 0 for timing in timings.values())
    assert ("unsettled" in timings["A"].flags) is (growth > 1)
    names = timer.names_by_session[-1]
    assert len(names) == 4 * len(taken.rounds)
    idles_s = {
        name: {idle for each, idle in zip(names, timer.sessions[-1].idles_s, strict=True) if each == name}
        for name in "AB"
    }
    assert idles_s["B"] == {0.0}
    (idle_s,) = idles_s["A"]
    assert idle_s == pytest.approx(2.9e-3) if growth == 1 else idle_s > 2.9e-3
