"""The trial of a candidate on one case: compare outputs, then time from inside and outside, always on new inputs."""

import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pytest_gpubench.bench.candidates import speedup_limits
from pytest_gpubench.bench.integrity import FLOOR_SHARE
from pytest_gpubench.correctness import moved_bytes
from pytest_gpubench.judge.batches import Batches
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.conclusion import (
    fail_on_cpu,
    is_believable,
    is_below,
    judge_speedup,
    judge_time,
    ratio_words,
    time_of,
    unattested,
    worst_of,
)
from pytest_gpubench.judge.judgement import CaseJudgement, Status, Stopwatch, Time
from pytest_gpubench.judge.layout import describe, place
from pytest_gpubench.judge.looks import Calls, TimedArms, time_arms
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.ready_case import ReadyCase
from pytest_gpubench.judge.reps import Reps
from pytest_gpubench.judge.runner import ROTATED_SETS
from pytest_gpubench.results.model import Outcome, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import format_time
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.speedup import SpeedupJudgement

__tracebackhide__ = True

CHECKS = 3
"""Calls on new inputs that are compared before anything is timed."""
BATCH_US = {"cuda": 4000.0, "cpu": 1000.0}
"""The time that the larger batch should take. On a busy processor a longer one is mostly interrupted: Linux lets a
process run for 3 ms."""
LEAST_CALLS = 3
"""The calls of the larger batch, where there is room for their inputs."""
SLOW = 4.0
"""The factor by which a candidate may be slower than the reference before its batches get fewer calls."""
ATTESTED_BUDGETS = 3
"""The budgets that batches may take while nothing is decided: the referee's clock is noisier than the timer."""
MOST_SETS = 64
INPUT_SHARE = 8
"""The inputs of a batch take at most one part in so many of the candidate's memory."""
ATTESTED_PRECISION = 0.05
"""The width of the attested speedup's interval to either side, relative to it, that ends a trial without a limit."""
OUTPUT_COPIES = 6
"""Memory has room for so many copies of a batch's outputs: in graphs and outside of them; half is left free."""
SLOWED, SLOWED_SLACK_US = 1.3, 3.0
"""The factor and the slack by which the reference may be slower once the candidate is loaded, as clocks may drop."""


@dataclass(frozen=True)
class Rules:
    """The limits on a candidate, and how certain their verdict is."""

    limits: Limits
    alpha: float = Settings.alpha
    precision: float = Settings.precision
    budget_s: float = 1.0
    """For the reps timed from inside; batches timed from outside may take more while nothing is decided."""
    drawn: int = 0
    """Number of cases drawn beside those of the spec, to compare their outputs."""

    @property
    def speedups(self) -> dict[str, float]:
        """The speedup asked of the candidate."""
        return speedup_limits(self.limits, ["candidate"])


@dataclass
class Trial:
    """A candidate on a case, and the findings so far."""

    candidate: Candidate
    ready: ReadyCase
    rules: Rules
    found: dict[str, Any] = field(default_factory=dict)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    seed: int = field(default_factory=lambda: secrets.randbelow(2**31))

    def __post_init__(self) -> None:
        self.device, self.reference = self.ready.device, self.ready.reference
        self._compared_before = self.reference.compared

    def judge(self) -> CaseJudgement:
        """Return the judgement of this case, whatever the candidate does."""
        return self._judged(self._judge)

    def check(self) -> CaseJudgement:
        """Return the judgement of this case by its outputs alone."""

        def checked() -> tuple[Status, str]:
            self.candidate.begin_case(self.ready.example, 1)
            self._check(self.ready.example)
            return "pass", "its outputs are right"

        return self._judged(checked)

    def _judged(self, judge: Callable[[], tuple[Status, str]]) -> CaseJudgement:
        try:
            status, reason = judge()
        except Ended as error:
            status, reason = error.status, error.reason
        return CaseJudgement(
            case=self.ready.name,
            status=status,
            reason=reason,
            compared=self.reference.compared - self._compared_before,
            phases_s=self.stopwatch.laps_s,
            **self.found,
        )

    def _judge(self) -> tuple[Status, str]:
        example = self.ready.example
        sets = self._sets_for(example, self.ready.before_us)
        self.reference.begin_case(example, sets)
        self.candidate.begin_case(example, sets)
        self._check(example)
        self.stopwatch.lap("checking")
        self.candidate.process.ask("warm")
        self.candidate.forget()
        self.stopwatch.lap("warming up")
        self._time_inside(sets)
        self.stopwatch.lap("inside")
        self._time_outside(sets)
        self.stopwatch.lap("outside")
        self._check_reference()
        self._find_floor(example)
        return self._conclude()

    def _sets_for(self, example: tuple[Any, ...], call_us: float) -> int:
        size = max(place(describe(example, "the inputs")[1]).size, 1)
        room = max(2, self.candidate.process.memory_bytes // (INPUT_SHARE * size))
        least = ROTATED_SETS if self.device.type == "cuda" else 0  # their place matters little on a CPU
        return min(max(self._calls_in(call_us), least), MOST_SETS, room)

    def _calls_in(self, call_us: float) -> int:
        """Return how many calls of this length the larger batch has."""
        return max(LEAST_CALLS, math.ceil(BATCH_US[self.device.type] / max(call_us, 0.1)))

    # outputs

    def _check(self, example: tuple[Any, ...]) -> None:
        self.candidate.first()
        self.candidate.fill([example])  # it may have overwritten them
        self.candidate.call()
        lines = self.reference.require(self.candidate.output(0), example, "in its first call")
        self.found["outputs"] = tuple(each.line for each in lines)
        for _ in range(CHECKS):
            (values,) = self.ready.draw(1)
            self.candidate.fill([values])
            self.candidate.call()
            self.reference.require(self.candidate.output(0), values, "on other inputs")

    # the times

    def _time_inside(self, sets: int) -> None:
        """Time both arms in turn by the timer inside their process: what the candidate's says is a claim."""
        reps = Reps(self.candidate, self.reference, sets, self.ready.draw)
        try:
            self.claimed = self._time(reps, self.rules.precision, self.rules.budget_s)
        finally:
            self.found["kernels"] = tuple(f"{number} x {name[:80]}" for name, number in reps.kernels[:20])
        self.launches = sum(number for _, number in reps.kernels)
        self.found |= {"ratio": self.claimed.speedup.ratio, "interval": self.claimed.speedup.interval}
        self.found |= {"claimed_us": self.claimed.candidate_us, "reference_us": self.claimed.reference_us}

    def _time_outside(self, sets: int) -> None:
        """Time batches of both arms in turn by the referee's clock."""
        room = max(2, self.candidate.process.memory_bytes // (OUTPUT_COPIES * max(self.candidate.output_bytes, 1)))
        call_us = max(self.ready.before_us, self.claimed.candidate_us.median_us / SLOW)
        large = min(sets, room, self._calls_in(call_us))
        self.batches = Batches(self.candidate, self.reference, large, self.ready.draw)
        self.batches.prepare(self.claimed.reference_us.median_us)
        self.attested = self._time(self.batches, ATTESTED_PRECISION, ATTESTED_BUDGETS * self.rules.budget_s)
        self.found |= {"attested_ratio": self.attested.speedup.ratio}
        self.found |= {"attested_interval": self.attested.speedup.interval}
        self.found |= {"attested_us": self.attested.candidate_us, "attested_reference_us": self.attested.reference_us}
        self.found |= {"batches": (1, large), "graph": self.batches.graph}
        self.batches.time_more_calls()
        self.found["latency_us"] = self.batches.latency_us

    def _time(self, calls: Calls, precision: float, budget_s: float) -> TimedArms:
        judged = SpeedupJudgement("candidate", self.rules.speedups, self.rules.alpha, precision)
        return time_arms(calls, judged, self.seed, budget_s)

    # the verdict

    def _check_reference(self) -> None:
        """Raise Ended where the reference became slower than before the candidate was loaded."""
        now_us = self.claimed.reference_us.median_us
        if self.device.type == "cuda" and now_us > SLOWED * self.ready.before_us + SLOWED_SLACK_US:
            raise Ended(
                "invalid",
                f"the reference takes {format_time(now_us)} beside the candidate's process, and took "
                f"{format_time(self.ready.before_us)} before the candidate was loaded: something keeps the GPU busy",
            )

    def _find_floor(self, example: tuple[Any, ...]) -> None:
        """Find the least time that memory allows; raise Ended where the candidate took less."""
        bandwidth = self.candidate.bandwidth
        moved = moved_bytes(example, {}, self.candidate.output(0))
        least = max(0, moved - self.device.cache_bytes)
        if bandwidth is None or not least:
            return
        floor_us = least / bandwidth
        claimed, attested = self.claimed.candidate_us, self.attested.candidate_us
        self.found["floor_us"] = floor_us
        known = self.claimed.reference_us.median_us >= floor_us  # else not all of the inputs matter
        for name, found in (("claimed_us", claimed), ("attested_us", attested)):
            if known and is_below(found, FLOOR_SHARE * floor_us):
                raise Ended(
                    "invalid",
                    f"faster than memory allows: {format_time(found.median_us)} ({name}), and a copy takes "
                    f"{format_time(floor_us)}",
                )

    def _conclude(self) -> tuple[Status, str]:
        unbelievable = self._unbelievable(self.attested.candidate_us)
        if unbelievable and not self.batches.copies and not self._had_to_wait():
            return "invalid", unbelievable
        words = ratio_words(self.claimed.speedup, self.attested.speedup)
        verdicts = tuple(self._verdicts(words))
        doubt = unbelievable or self.batches.overlap
        self.found["verdicts"] = tuple(unattested(each, doubt) for each in verdicts) if doubt else verdicts
        status, reason = worst_of(self.found["verdicts"], words)
        return ("inconclusive", f"{doubt}; {reason}") if doubt and status == "pass" else (status, reason)

    def _had_to_wait(self) -> bool:
        """Tell whether the claimed time is too small only because other processes used the processor."""
        return self.device.type == "cpu" and not self._unbelievable(time_of(self.batches.worked_each_us()))

    def _unbelievable(self, attested: Time) -> str:
        """Return how the claimed time is too small for this one; empty where it is not."""
        claimed = self.claimed.candidate_us
        is_launched = self.device.type == "cuda" and not self.batches.graph  # what that takes is in no claim
        if is_launched or is_believable(claimed, attested, self.device.type, self.launches):
            return ""
        copied = ", which copies outputs, as calls return the same memory," if self.batches.copies else ""
        return (
            f"its process claims {format_time(claimed.median_us)} for a call, and by the referee's clock each call "
            f"of a batch{copied} takes {format_time(attested.median_us)}"
        )

    def _verdicts(self, words: str) -> Iterator[Verdict]:
        claimed, attested = self.claimed, self.attested
        if (wanted := self.rules.speedups.get("candidate")) is not None:
            outcome, interval = claimed.outcome, claimed.speedup.interval
            if self.device.type == "cpu" and outcome is Outcome.FAIL and interval is not None:
                outcome = fail_on_cpu(interval, wanted)
            yield judge_speedup(outcome, attested.speedup.interval, wanted, words)
        if (most := self.rules.limits.max_time_us) is not None:
            name = self.device.facts.name
            yield judge_time(claimed.candidate_us, attested.candidate_us, most, name, self.rules.alpha)
