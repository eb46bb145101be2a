"""The trial of a candidate on one case: compare outputs, then time both arms in turn, always on new inputs."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_gpubench.bench.candidates import speedup_limits
from pytest_gpubench.bench.integrity import FLOOR_SHARE
from pytest_gpubench.correctness import moved_bytes
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.channel import LONGEST_KERNEL, MOST_KERNELS
from pytest_gpubench.judge.conclusion import concluded, on_time, timing_of
from pytest_gpubench.judge.judgement import CaseJudgement, Status, Stopwatch, time_of
from pytest_gpubench.judge.layout import describe, place
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.reference import ReadyCase
from pytest_gpubench.judge.reps import Reps, time_arms
from pytest_gpubench.judge.runner import ROTATED_SETS
from pytest_gpubench.judge.witness import ReplayCost, Witness
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import format_time
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement

CHECKS = 3
"""Calls on new inputs that are compared before anything is timed."""
WITNESS_BUDGETS = 3
"""The budgets that calls by the referee's clock may take while nothing is decided."""
INPUT_SHARE = 8
"""Inputs take at most one part in so many of the candidate's memory."""


@dataclass(frozen=True)
class Rules:
    """The limits on a candidate, and how certain their verdict is."""

    limits: Limits
    alpha: float = Settings.alpha
    precision: float = Settings.precision
    budget_s: float = 1.0
    """For the reps; calls by the referee's clock may take more while nothing is decided."""
    drawn: int = 0
    """Number of cases drawn beside those of the spec, to compare their outputs."""
    timeout_s: float = 60.0
    """For loading, and for each case: the time that the candidate's process may take."""

    def __post_init__(self) -> None:
        """Raise BadRequest for limits that cannot be judged from outside."""
        if others := [limit.name for limit in self.limits if limit.name not in ("min_speedup", "max_time_us")]:
            raise BadRequest(f"judge cannot judge {', '.join(others)}: it knows min_speedup and max_time_us")
        if isinstance(wanted := self.limits.min_speedup, Mapping):
            raise BadRequest(f"min_speedup={dict(wanted)!r} is not valid here: give a number for the candidate")


@dataclass
class Trial:
    """A candidate on a case, and the findings so far."""

    candidate: Candidate
    ready: ReadyCase
    rules: Rules
    cost: ReplayCost | None = None
    """The cost of a replay in the referee's process; None if `candidate` is the candidate's own."""
    not_replayed: str = ""
    """The reason why its call is not replayed."""
    launches: int = 1
    """The kernels, copies and fills of a replayed call that wait for one another."""
    found: dict[str, Any] = field(default_factory=dict)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    seed: int = field(default_factory=lambda: secrets.randbelow(2**31))

    def __post_init__(self) -> None:
        self.device, self.reference = self.ready.device, self.ready.reference
        self._compared_before = self.reference.compared
        self.is_checked = False
        """True once the outputs of untimed calls were right."""

    def judge(self) -> CaseJudgement:
        """Return the judgement of this case, whatever the candidate does."""
        return self._judged(self._judge)

    def check(self) -> CaseJudgement:
        """Return the judgement of this case by its outputs alone."""

        def checked() -> None:
            self.candidate.begin_case(self.ready.example, 1, self.ready.outputs)
            self.candidate.first(self.candidate.meanwhile)
            self._check(self.ready.example)

        return self._judged(checked)

    def _judged(self, judge: Callable[[], None]) -> CaseJudgement:
        status: Status = "pass"
        reason = "its outputs are right"
        self.candidate.process.allow(self.rules.timeout_s)
        try:
            judge()
        except Ended as error:
            status, reason = error.status, error.reason
        judged = CaseJudgement(
            case=self.ready.name,
            status=status,
            reason=reason,
            compared=self.reference.compared - self._compared_before,
            phases_s=self.stopwatch.laps_s,
            timed_by="candidate" if self.cost is None else "referee",
            not_replayed=self.not_replayed,
            **self.found,
        )
        if status != "pass" or judged.ratio is None:
            return judged
        return concluded(judged, self.rules.limits, self.device.facts, self.rules.alpha)

    def _judge(self) -> None:
        example = self.ready.example
        sets = self._sets_for(example)
        self.reference.begin_case(example, sets)
        self.reference.launch(b"" if self.cost is None else self.ready.saved)
        self.candidate.begin_case(example, sets, self.ready.outputs)
        self.candidate.first()
        self._check(example)
        self.is_checked = True
        self.stopwatch.lap("checking")
        with self.candidate.alone():
            self.candidate.process.ask("warm", known=self.reference.runner.taxes if self.cost is not None else ())
            self.stopwatch.lap("warming up")
            self._time(sets)
            self.stopwatch.lap("timing")
            if self.cost is not None:
                self.candidate.first()
                witness = Witness(self.candidate, self.ready, self.cost, self.reference.whole_us())
                budget_s = WITNESS_BUDGETS * self.rules.budget_s
                self.found["clock_us"] = witness.time(self.candidate_us, self.launches, self.rules.alpha, budget_s)
                self.stopwatch.lap("witness")
        self._find_floor(example)

    def _sets_for(self, example: tuple[Any, ...]) -> int:
        size = max(place(describe(example, "the inputs")[1]).size, 1)
        return min(ROTATED_SETS, max(2, self.candidate.process.memory_bytes // (INPUT_SHARE * size)))

    # outputs

    def _check(self, example: tuple[Any, ...]) -> None:
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

    def _time(self, sets: int) -> None:
        """Time both arms in turn, each by the timer in its own process."""
        reps = Reps(self.candidate, self.reference, sets, self.ready.draw)
        try:
            asked = speedup_limits(self.rules.limits, ["candidate"])
            judged = SpeedupJudgement("candidate", asked, self.rules.alpha, self.rules.precision)
            is_decided = None if self.rules.limits.max_time_us is None else self._is_decided
            speedup = time_arms(reps, judged, self.seed, self.rules.budget_s, is_decided)
        finally:
            self.found["kernels"] = tuple(
                f"{number} x {name[:LONGEST_KERNEL]}" for name, number in reps.kernels[:MOST_KERNELS]
            )
        self.candidate_us, self.reference_us = time_of(reps.times_us["candidate"]), time_of(reps.times_us["reference"])
        self.found |= {"ratio": speedup.ratio, "interval": speedup.interval}
        self.found |= {"candidate_us": self.candidate_us, "reference_us": self.reference_us}

    def _is_decided(self, times_us: Sequence[float]) -> bool:
        timing = timing_of(times_us, self.device.facts)
        verdicts = on_time(timing, self.rules.limits, self.rules.alpha)
        return all(each.outcome is not Outcome.INCONCLUSIVE for each in verdicts)

    def _find_floor(self, example: tuple[Any, ...]) -> None:
        """Find the least time that memory allows; raise Ended where the candidate took less."""
        bandwidth = self.candidate.bandwidth
        moved = moved_bytes(example, {}, self.candidate.output())
        least = max(0, moved - self.device.cache_bytes)
        if bandwidth is None or not least:
            return
        floor_us = least / bandwidth
        self.found["floor_us"] = floor_us
        known = self.reference_us.median_us >= floor_us  # else not all of the inputs matter
        if known and self.candidate_us.ends.high < FLOOR_SHARE * floor_us:
            raise Ended(
                "invalid",
                f"faster than memory allows: {format_time(self.candidate_us.median_us)}, and a copy takes "
                f"{format_time(floor_us)}",
            )
