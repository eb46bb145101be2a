"""Reps of both arms in turn, each on new inputs, until their speedup is decided or the time is spent."""

import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.reference import Reference
from pytest_gpubench.judge.runner import ROTATED_SETS
from pytest_gpubench.stats.speedup import Quad, SpeedupEstimate, next_look, round_orders
from pytest_gpubench.timing.base import collection_off
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement

ARMS = ("reference", "candidate")
LOOKS = (6, 12, 24, 48, 96, 192, 384)
"""The numbers of quads after which the trial looks at its intervals: a session of two processes takes time to begin."""
LEAST_US, MOST_US = 1e-3, 1e12
"""No call takes less or more: other times have no logarithm, or too many digits."""
Orders = Sequence[Sequence[str]]
"""The arms in the order of their calls, for each round."""
IsDecided = Callable[[Sequence[float]], bool]
Draw = Callable[[int], Sequence[tuple[Any, ...]]]
"""Returns the inputs of so many calls."""


class Reps:
    """Sessions of reps; the candidate's times are what its process says."""

    def __init__(self, candidate: Candidate, reference: Reference, sets: int, draw: Draw) -> None:
        self.candidate, self.reference, self._draw = candidate, reference, draw
        self._indices = {arm: cycle(range(min(ROTATED_SETS, sets))) for arm in ARMS}
        self.times_us: dict[str, list[float]] = {arm: [] for arm in ARMS}
        self._kept: list[tuple[object, tuple[Any, ...]]] = []
        self.kernels: Sequence[tuple[str, int]] = ()
        """The kernels of a call and how often it launches each, as the candidate's process says."""

    def take(self, orders: Orders) -> None:
        """Take a session of reps in these orders."""
        process, runner = self.candidate.process, self.reference.runner
        process.ask("begin")
        with collection_off():
            try:
                runner.begin()
                for order in orders:
                    values = self._draw(2)
                    turns = {arm: iter(values) for arm in ARMS}
                    for arm in order:
                        self._take(arm, next(turns[arm]))
                runner.take_last()
                process.ask("take_last")
                reps = runner.end()[:-1]
            finally:
                runner.stop()
        self._compare()
        reply = process.ask("end")
        reference_us = [rep.elapsed_us for rep in reps]
        times_us = [each for each in reply.samples_us[:-1] if LEAST_US < each < MOST_US]
        if len(times_us) != len(reps):
            raise Ended("invalid", f"the candidate's process has {len(times_us)} times for {len(reps)} calls")
        self.kernels = reply.kernels
        self.times_us["reference"] += reference_us
        self.times_us["candidate"] += times_us

    def _take(self, arm: str, values: tuple[Any, ...]) -> None:
        index, idle_s = next(self._indices[arm]), self.reference.runner.idle_s  # the clocks of both are the same
        if arm == "reference":
            self.reference.runner.approach(index)
            self.reference.fill([values], index)
            self.candidate.approach(index)  # the GPU comes back from another process's context for each rep
            self.reference.runner.take(index, idle_s)
            return
        self.candidate.approach(index)
        self.candidate.fill([values], index)
        self.candidate.take(index, idle_s)
        self._kept.append((self.candidate.output(), values))  # a rep soon after a comparison takes longer
        if len(self._kept) >= self.candidate.most_together:
            self._compare()

    def _compare(self) -> None:
        while self._kept:
            self.reference.require(*self._kept.pop(0), "in a timed call")


def time_arms(
    reps: Reps, judged: SpeedupJudgement, seed: int, budget_s: float, is_decided: IsDecided | None = None
) -> SpeedupEstimate:
    """Add rounds until all is decided or the time is spent, and return the speedup.

    is_decided: tells of the candidate's times whether its limits on them are decided; None for none.
    """
    deadline_s = time.monotonic() + budget_s
    done: tuple[int, ...] = ()
    following: int | None = LOOKS[0]
    while following is not None:
        began_s, orders = time.monotonic(), round_orders(ARMS, following, seed)[len(reps.times_us["reference"]) // 2 :]
        reps.take(orders)
        ended_s, done = time.monotonic(), (*done, following)
        following = next_look(LOOKS, LOOKS[0], done[-1], (ended_s - began_s) / len(orders), deadline_s - ended_s)
        halves = [list(zip(times[::2], times[1::2], strict=True)) for times in map(reps.times_us.__getitem__, ARMS)]
        quads = [Quad(*both) for both in zip(*halves, strict=True)]
        on_speedup = judged.look(quads, done if following is None else (*done, following))
        if judged.failed or (on_speedup and (is_decided is None or is_decided(reps.times_us["candidate"]))):
            break
    assert judged.latest is not None, "nothing was looked at"
    return judged.latest
