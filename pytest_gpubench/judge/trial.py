"""The trial of a candidate on one case: compare outputs, then time from inside and outside, always on new inputs."""

import secrets
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_gpubench.bench.candidates import speedup_limits
from pytest_gpubench.bench.integrity import FLOOR_SHARE
from pytest_gpubench.correctness import moved_bytes
from pytest_gpubench.judge.attestation import Attestation, Before
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.conclusion import (
    distrust,
    distrusted,
    fail_on_cpu,
    is_below,
    judge_speedup,
    judge_time,
    longest_us,
    ratio_words,
    require_cost,
    require_witness,
    worst_of,
)
from pytest_gpubench.judge.judgement import CaseJudgement, Status, Stopwatch
from pytest_gpubench.judge.layout import describe, place
from pytest_gpubench.judge.looks import time_arms
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.ready_case import ReadyCase
from pytest_gpubench.judge.reps import Reps
from pytest_gpubench.judge.runner import ROTATED_SETS
from pytest_gpubench.results.model import Outcome, Verdict
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import format_time
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement

__tracebackhide__ = True

CHECKS = 3
"""Calls on new inputs that are compared before anything is timed."""
ATTESTED_BUDGETS = 3
"""The budgets that released calls may take while nothing is decided."""
INPUT_SHARE = 8
"""Inputs take at most one part in so many of the candidate's memory."""


@dataclass(frozen=True)
class Rules:
    """The limits on a candidate, and how certain their verdict is."""

    limits: Limits
    alpha: float = Settings.alpha
    precision: float = Settings.precision
    budget_s: float = 1.0
    """For the reps timed from inside; calls timed from outside may take more while nothing is decided."""
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
    before: Before | None = None
    """None where only outputs are compared."""
    timed_by: Literal["candidate", "referee"] = "candidate"
    """Whose process `candidate` is: the referee's replays a call of the candidate's."""
    not_replayed: str = ""
    """The reason why its call is not replayed."""
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
            self.candidate.begin_case(self.ready.example, 1, self.ready.outputs)
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
            timed_by=self.timed_by,
            not_replayed=self.not_replayed,
            **self.found,
        )

    def _judge(self) -> tuple[Status, str]:
        example = self.ready.example
        sets = self._sets_for(example)
        self.reference.begin_case(example, sets)
        self.reference.launch(as_graph=self.timed_by == "referee")
        self.candidate.begin_case(example, sets, self.ready.outputs)
        self._check(example)
        self.stopwatch.lap("checking")
        self.candidate.process.ask("warm")
        self.candidate.forget()
        self.stopwatch.lap("warming up")
        self._time_inside(sets)
        self.stopwatch.lap("inside")
        self._time_outside()
        self.stopwatch.lap("outside")
        self._find_floor(example)
        return self._conclude()

    def _sets_for(self, example: tuple[Any, ...]) -> int:
        size = max(place(describe(example, "the inputs")[1]).size, 1)
        room = max(2, self.candidate.process.memory_bytes // (INPUT_SHARE * size))
        return min(ROTATED_SETS, room)

    # outputs

    def _check(self, example: tuple[Any, ...]) -> None:
        self.candidate.first()
        self.candidate.fill([example])  # it may have overwritten them
        self.candidate.first()
        lines = self.reference.require(self.candidate.output(), example, "in its first call")
        self.found["outputs"] = tuple(each.line for each in lines)
        for _ in range(CHECKS):
            (values,) = self.ready.draw(1)
            self.candidate.fill([values])
            self.candidate.first()
            self.reference.require(self.candidate.output(), values, "on other inputs")

    # the times

    def _time_inside(self, sets: int) -> None:
        """Time both arms in turn by the timer inside their process: what the candidate's says is a claim."""
        reps = Reps(self.candidate, self.reference, sets, self.ready.draw)
        try:
            judged = SpeedupJudgement("candidate", self.rules.speedups, self.rules.alpha, self.rules.precision)
            self.claimed = time_arms(reps, judged, self.seed, self.rules.budget_s)
        finally:
            self.launches = sum(number for _, number in reps.kernels)
            self.found["kernels"] = tuple(f"{number} x {name[:80]}" for name, number in reps.kernels[:20])
        claimed = self.claimed.speedup
        self.found |= {"claimed_ratio": claimed.ratio, "claimed_interval": claimed.interval}
        self.found |= {"claimed_us": self.claimed.candidate_us, "reference_us": self.claimed.reference_us}

    def _time_outside(self) -> None:
        """Time released calls by the referee's clock."""
        assert self.before is not None, "it was measured"
        wanted, most_us = self.rules.speedups.get("candidate"), None
        if self.timed_by == "referee":
            self.candidate.queue()
            most_us = longest_us(self.claimed.candidate_us, self.launches, self.before.slack_us)
        attestation = Attestation(self.candidate, self.ready, self.before, wanted, most_us)
        attestation.take(self.rules.alpha, ATTESTED_BUDGETS * self.rules.budget_s)
        self.attested, self.attested_us = attestation.speedup, attestation.call_us
        ratio, interval = smaller_of(self.claimed.speedup, self._bound)
        self.found |= {"ratio": ratio, "interval": interval}
        self.found |= {"attested_ratio": self.attested.ratio, "attested_interval": self.attested.interval}
        self.found |= {"attested_us": self.attested_us, "attested_reference_us": self.before.reference}
        if most_us is not None:
            require_cost(statistics.median(attestation.left_us), self.before.slack_us)
            require_witness(self.claimed.candidate_us, self.attested_us, most_us)

    @property
    def _bound(self) -> SpeedupEstimate:
        """The speedup that the claimed one may not be above."""
        return self.attested if self.timed_by == "candidate" else self.claimed.speedup

    # the verdict

    def _find_floor(self, example: tuple[Any, ...]) -> None:
        """Find the least time that memory allows; raise Ended where the candidate took less."""
        bandwidth = self.candidate.bandwidth
        moved = moved_bytes(example, {}, self.candidate.output())
        least = max(0, moved - self.device.cache_bytes)
        if bandwidth is None or not least:
            return
        floor_us = least / bandwidth
        claimed, attested = self.claimed.candidate_us, self.attested_us
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
        words = ratio_words(self.claimed.speedup, self._bound)
        verdicts, trusted = tuple(self._verdicts(words)), self.ready.spec.trust_claims or self.timed_by == "referee"
        if not trusted:
            verdicts = tuple(distrusted(each, self.not_replayed) for each in verdicts)
        self.found["verdicts"] = verdicts
        if not verdicts and not trusted:
            return "inconclusive", f"{distrust(self.not_replayed)}: {words}"
        return worst_of(verdicts, words)

    def _verdicts(self, words: str) -> Iterator[Verdict]:
        claimed = self.claimed
        if (wanted := self.rules.speedups.get("candidate")) is not None:
            outcome, interval = claimed.outcome, claimed.speedup.interval
            if self.device.type == "cpu" and outcome is Outcome.FAIL and interval is not None:
                outcome = fail_on_cpu(interval, wanted)
            yield judge_speedup(outcome, self._bound.interval, wanted, words)
        if (most := self.rules.limits.max_time_us) is not None:
            name = self.device.facts.name
            bound_us = self.attested_us if self.timed_by == "candidate" else claimed.candidate_us
            yield judge_time(claimed.candidate_us, bound_us, most, name, self.rules.alpha)


def smaller_of(one: SpeedupEstimate, other: SpeedupEstimate) -> tuple[float, Interval | None]:
    """Return the smaller of two speedups, and the smaller of each end of their intervals; None where one has none."""
    ratio = min(one.ratio, other.ratio)
    if one.interval is None or other.interval is None:
        return ratio, None
    return ratio, Interval(*map(min, one.interval, other.interval))
