"""Reps of both arms in turn, each on new inputs: a timer for the loop of `compare`, with a session in each process."""

import math
import secrets
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from pytest_gpubench.bench.comparison import Judges
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.channel import LONGEST_KERNEL, MOST_KERNELS
from pytest_gpubench.judge.conclusion import timing_of
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.reference import Reference
from pytest_gpubench.judge.runner import ROTATED_SETS
from pytest_gpubench.timing.base import Call, Rep, Session, Timer, call_of
from pytest_gpubench.timing.comparison import Match, measure_in_turn
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.rounds import Interleaved

ARMS = ("reference", "candidate")
LOOKS = (6, 12, 24, 48, 96, 192, 384)
"""The numbers of quads after which the trial looks at its intervals: a session of two processes takes time to begin."""
Draw = Callable[[int], Sequence[tuple[Any, ...]]]
"""Returns the inputs of so many calls."""


class Reps(Timer, Session):
    """Sessions of reps; the candidate's times are what its process says. Each process has warmed up its arm."""

    name = "both"
    settles = False
    max_reps = 8 * LOOKS[-1]

    def __init__(self, candidate: Candidate, reference: Reference, sets: int, draw: Draw) -> None:
        self.candidate, self.reference, self._draw = candidate, reference, draw
        self._indices = {arm: cycle(range(min(ROTATED_SETS, sets))) for arm in ARMS}
        self._kept: list[tuple[object, tuple[Any, ...]]] = []
        self.kernels: tuple[str, ...] = ()
        """The kernels of a call and how often it launches each, as the candidate's process says."""

    def session(self) -> "Reps":
        """Return itself: there is one session at a time."""
        return self

    def __enter__(self) -> "Reps":
        """Begin in both processes."""
        self._taken: list[str] = []
        self._values: dict[str, list[tuple[Any, ...]]] = {arm: [] for arm in ARMS}
        self.candidate.process.ask("begin")
        self.reference.runner.begin()
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        if error is not None:
            self.reference.runner.stop()

    def take(self, call: Call, idle_s: float) -> None:
        """Take a rep of an arm: after an untimed call on other inputs, on new ones, which the other arm is given too.

        Both arms idle as long as the reference needs, as the clocks of both are the same.
        """
        arm = call.label
        self._taken.append(arm)
        if not self._values[arm]:
            values = self._draw(2)
            for each in self._values.values():
                each += values
        values, index = [self._values[arm].pop(0)], next(self._indices[arm])
        idle_s = self.reference.runner.idle_s
        if arm == "reference":
            self.reference.runner.approach(index)
            self.reference.fill(values, index)
            self.candidate.approach(index)  # the GPU comes back from another process's context for each rep
            self.reference.runner.take(index, idle_s)
            return
        self.candidate.approach(index)
        self.candidate.fill(values, index)
        self.candidate.take(index, idle_s)
        self._kept.append((self.candidate.output(), values[0]))  # a rep soon after a comparison takes longer
        if len(self._kept) >= self.candidate.most_together:
            self._compare()

    def _compare(self) -> None:
        while self._kept:
            self.reference.require(*self._kept.pop(0), "in a timed call")

    def reps(self) -> Sequence[Rep]:
        """Return the reps of both, without records; raise Ended where an output or a claim is none."""
        reply = self.candidate.process.ask("end")
        reps = self.reference.runner.end()
        self._compare()
        claims = [each for each in reply.samples_us if 0 < each < math.inf]
        if len(claims) != len(reps):
            raise Ended("invalid", f"the candidate's process has {len(claims)} times for {len(reps)} calls")
        self.kernels = tuple(f"{launches} x {name[:LONGEST_KERNEL]}" for name, launches in reply.kernels[:MOST_KERNELS])
        times_us = {"reference": iter([rep.elapsed_us for rep in reps]), "candidate": iter(claims)}
        return [Rep(next(times_us[arm])) for arm in self._taken]


def time_arms(reps: Reps, judges: Judges, budget_s: float) -> Interleaved:
    """Add rounds until all limits are decided, or one is broken, or the time is spent; return them."""
    device = reps.reference.device

    def is_decided(taken: Interleaved, looks: tuple[int, ...]) -> bool:
        timing = timing_of(taken.samples["candidate"].samples_us, device.facts)
        return judges.look(timing, taken.quads(*ARMS), looks, taken.tick_us) or judges.failed

    calls = {arm: call_of(arm, lambda: None) for arm in ARMS}
    match = Match(calls, ARMS[0], secrets.randbelow(2**31), looks=LOOKS, least_more=LOOKS[0])
    plan = Plan("cold", None, None, judges.speedup.precision, budget_s)
    return measure_in_turn(match, reps, device, plan, is_decided, lambda text: None)[0]
