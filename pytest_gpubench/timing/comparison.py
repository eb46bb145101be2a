"""Several calls timed in turn, from warm-up to timings: rounds are added until every question is decided."""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pytest_gpubench.errors import BadRequest, IncompleteRecords, annotating
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.results.model import Timing
from pytest_gpubench.stats.speedup import LOOKS, next_look, round_orders
from pytest_gpubench.stats.stopping import is_held_up
from pytest_gpubench.timing.attempts import until_complete
from pytest_gpubench.timing.base import Call, Rep, Timer, collection_off
from pytest_gpubench.timing.measurement import Plan, summarise
from pytest_gpubench.timing.rounds import Arm, Instrument, Interleaved, Sample, check_same_kernels, take_rounds
from pytest_gpubench.timing.warmup import Warmth, warm_up

SESSION_ROUNDS = 3
"""So many calls of each function have to fit into a session: two in a round, or three rounds that do not count."""

Decided = Callable[[Interleaved, tuple[int, ...]], bool]
"""Told the rounds so far and the planned looks, one of which has as many rounds; returns whether all is decided."""


@dataclass(frozen=True)
class Match:
    """The calls that are timed in turn, and how."""

    calls: Mapping[str, Call]
    reference: str
    """The call that the others are compared with; empty where none is."""
    seed: int = 0
    interleave: bool = True
    begin: Callable[[], None] = lambda: None
    """Called when warming up is over."""
    looks: Sequence[int] = LOOKS
    """After how many rounds to look whether all is decided."""
    least_more: int = LOOKS[0] // 2
    """The fewest that are worth another look where time is short."""
    made: int = 0
    """The calls of each that were made before."""

    def orders(self, rounds: int) -> Sequence[tuple[str, ...]]:
        """Return the order of each round: every call twice; a single call has only one order."""
        names = tuple(self.calls)
        return round_orders(names, rounds, self.seed) if len(names) > 1 else (2 * names,) * rounds


def measure_in_turn(
    match: Match, timer: Timer, device: Device, plan: Plan, decided: Decided, say: Callable[[str], None]
) -> tuple[Interleaved, dict[str, Timing]]:
    """Return the rounds taken, and the timing of every call; raise BadRequest for more than a session has room for."""
    if len(match.calls) > (most := timer.max_reps // SESSION_ROUNDS):
        raise BadRequest(f"at most {most} functions can be timed in turn, found {len(match.calls)}: leave some out")
    started_s = time.perf_counter()
    instrument = Instrument.on(device, timer)
    warmths = warm_up(instrument, device, match.calls, plan.warmup, say, match.made)
    say(f"{'comparing' if match.reference else 'measuring'} {', '.join(match.calls)}")
    match.begin()
    taken = _take_looks(match, instrument, plan, warmths, decided)
    for name, call in match.calls.items():
        reps = taken.samples[name].reps
        timer.cross_check(call, reps, instrument.pacing.idle_s(reps))
    share_s = (time.perf_counter() - started_s) / len(match.calls)
    if match.reference:
        plan = replace(plan, reps=2 * len(taken.rounds))  # the ratio has to be precise, not each arm's time
    timings = {
        name: summarise(call, timer, device, plan, warmths[name], taken.samples[name], share_s)
        for name, call in match.calls.items()
    }
    return taken, timings


def _take_looks(
    match: Match, instrument: Instrument, plan: Plan, warmths: Mapping[str, Warmth], decided: Decided
) -> Interleaved:
    """Add rounds, look by look, until all is decided or the time is spent."""
    timer = instrument.timer
    arms = {name: Arm(call, instrument.pacing.idle_s(warmths[name].last)) for name, call in match.calls.items()}
    tick_us = timer.tick_us if match.reference else 0.0
    taken = Interleaved({name: Sample() for name in match.calls}, tick_us, random.Random(match.seed))
    started_s, deadline_s = timer.clock_s(), timer.clock_s() + plan.max_time_s
    looks: tuple[int, ...] = ()
    planned = match.looks if plan.reps is None else (math.ceil(plan.reps / 2),)  # two reps of each call make a round
    following: int | None = planned[0]
    while following is not None:
        orders = match.orders(following)[len(taken.rounds) :]
        began_s = timer.clock_s()
        take_rounds(instrument, arms, orders, taken, deadline_s - began_s, match.interleave)
        ended_s = timer.clock_s()
        looks = (*looks, following)
        if any(is_held_up(each.samples_us) for each in taken.samples.values()):
            deadline_s = max(deadline_s, started_s + plan.held_up_time_s)
        cost_s, left_s = (ended_s - began_s) / len(orders), deadline_s - ended_s
        following = next_look(planned, match.least_more, looks[-1], cost_s, left_s)
        if decided(taken, looks if following is None else (*looks, following)):
            break
    return taken


class UncountedRounds:
    """Rounds of one session that do not count: one call of each of some arms; the calls cannot tell."""

    def __init__(self, match: Match, timer: Timer, taken: Interleaved, names: Sequence[str]) -> None:
        self.timer, self.taken = timer, taken
        self.calls = {name: replace(match.calls[name], prepares_on_device=True) for name in names}
        self.number = 0
        """The rounds so far."""
        self._reps: Sequence[Rep] | None = None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Let rounds be taken; the GPU may do other work between them, though not after the last."""
        with self.timer.session() as self._session:
            yield
        self._reps = None

    def take(self) -> None:
        """Take one more round."""
        with collection_off():
            for name, call in self.calls.items():
                with annotating(lambda: f"gpu_bench: raised in a call of {name!r} that does not count"):  # noqa: B023
                    self._session.take(call, 0.0)
        self.number += 1

    def times_us(self, number: int) -> dict[str, float]:
        """Return the times of a round in microseconds, after the session.

        Raises IncompleteRecords, and KernelsDiffer where a call launches other kernels than in rounds that count.
        """
        if self._reps is None:
            self._reps = self._session.reps()
        reps = self._reps[number * len(self.calls) :]
        times_us = {}
        for (name, call), rep in zip(self.calls.items(), reps, strict=False):
            check_same_kernels(call, [*self.taken.samples[name].reps[:1], rep])
            times_us[name] = rep.elapsed_us
        return times_us


def take_once_more(match: Match, timer: Timer, taken: Interleaved, names: Sequence[str]) -> dict[str, float]:
    """Return the times in microseconds of a round that does not count; raise KernelsDiffer as it does."""

    def take() -> dict[str, float]:
        rounds = UncountedRounds(match, timer, taken, names)
        with rounds.session():
            rounds.take()
        return rounds.times_us(0)

    return until_complete(take, errors=(IncompleteRecords,))
