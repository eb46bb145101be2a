"""The trial of a candidate on one case: compare outputs, then time both arms in turn, always on new inputs.

Reps are taken by the loop of `compare`, with a timer that has a session in each process.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_gpubench.bench.candidates import speedup_limits
from pytest_gpubench.bench.comparison import Judges
from pytest_gpubench.bench.integrity import FLOOR_SHARE
from pytest_gpubench.correctness import moved_bytes
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.candidate import Candidate
from pytest_gpubench.judge.channel import LONGEST_KERNEL, MOST_KERNELS
from pytest_gpubench.judge.conclusion import concluded, timing_of
from pytest_gpubench.judge.judgement import CaseJudgement, Ended, Status, Stopwatch, time_of
from pytest_gpubench.judge.layout import describe, layout_of, set_bytes
from pytest_gpubench.judge.reference import ReadyCase
from pytest_gpubench.judge.witness import ReplayCost, Witness
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.base import Call, Rep, Session, Timer, call_of
from pytest_gpubench.timing.comparison import Match, measure_in_turn
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.rounds import Interleaved
from pytest_gpubench.units import format_time
from pytest_gpubench.verdict.limits import Judgement, Limits
from pytest_gpubench.verdict.limits.speedup import SpeedupJudgement

ARMS = ("reference", "candidate")
LOOKS = (6, 12, 24, 48, 96, 192, 384)
"""The numbers of quads after which the trial looks at its intervals: a session of two processes takes time to begin."""
LEAST_US, MOST_US = 1e-3, 1e12
"""No call takes less or more: other times have no logarithm, or too many digits."""
CHECKS = 3
"""Calls on new inputs that are compared before anything is timed."""
WITNESS_BUDGETS = 3
"""The budgets that calls by the referee's clock may take while nothing is decided."""
ROTATED_SETS = 8
"""The sets of inputs that reps take in turn: where they lie changed the time of a cross entropy by 0.5 % (sd)."""
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

    def judges(self) -> Judges:
        """Return the judges of a candidate's times, which have seen none."""
        speedups = speedup_limits(self.limits, ["candidate"])
        speedup = SpeedupJudgement("candidate", speedups, self.alpha, self.precision)
        return Judges(Judgement(self.limits, self.alpha), speedup)


class Reps(Timer, Session):
    """Sessions of reps; the candidate's times are what its process says. Each process has warmed up its arm."""

    name = "both"
    settles = False
    max_reps = 8 * LOOKS[-1]

    def __init__(self, candidate: Candidate, ready: ReadyCase, sets: int) -> None:
        self.candidate, self.ready, self.reference, self._sets = candidate, ready, ready.reference, sets
        self.tick_us = self.reference.runner.timer.tick_us
        self._kept: list[tuple[object, tuple[Any, ...]]] = []
        self.kernels: tuple[str, ...] = ()
        """The kernels of a call and how often it launches each, as the candidate's process says."""

    def session(self) -> "Reps":
        """Return itself: there is one session at a time."""
        return self

    def __enter__(self) -> "Reps":
        """Begin in both processes."""
        self._taken: list[str] = []
        self.candidate.process.ask("begin")
        self.reference.runner.begin()
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        """End in both processes; here whatever happens there."""
        try:
            if error is None:
                self._reply = self.candidate.process.ask("end")
                self._timed = self.reference.runner.end()
        finally:
            self.reference.runner.stop()

    def take(self, call: Call, idle_s: float) -> None:
        """Take a rep of an arm: after an untimed call on other inputs, on new ones, which the other arm is given too.

        Both arms idle as long as the reference needs, as the clocks of both are the same.
        """
        arm, number, idle_s = call.label, self._taken.count(call.label), self.reference.runner.idle_s
        if len(self._taken) % (2 * len(ARMS)) == 0:  # a round begins
            self._drawn = self.ready.draw(2)
        self._taken.append(arm)
        values, index = self._drawn[number % 2], number % self._sets
        if arm == "reference":
            self.reference.runner.approach(index)
            self.reference.fill(values, index)
            self.candidate.visit()  # the GPU comes back from another process's context for each rep
            self.reference.runner.take(index, idle_s)
            return
        self.candidate.approach(index)
        self.candidate.fill(values, index)
        self.candidate.take(index, idle_s)
        self._kept.append((self.candidate.output(), values))  # a rep soon after a comparison takes longer
        if len(self._kept) >= self.candidate.most_together:
            self._compare()

    def _compare(self) -> None:
        while self._kept:
            self.reference.require(*self._kept.pop(0), "in a timed call")

    def reps(self) -> Sequence[Rep]:
        """Return the reps of both, without records; raise Ended where an output or a claim is none."""
        self._compare()
        reply, timed = self._reply, self._timed
        claims = [each for each in reply.samples_us if LEAST_US < each < MOST_US]
        if len(claims) != len(timed):
            raise Ended("invalid", f"the candidate's process has {len(claims)} times for {len(timed)} calls")
        self.kernels = tuple(f"{launches} x {name[:LONGEST_KERNEL]}" for name, launches in reply.kernels[:MOST_KERNELS])
        times_us = {"reference": iter([rep.elapsed_us for rep in timed]), "candidate": iter(claims)}
        return [Rep(next(times_us[arm])) for arm in self._taken]


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
    """The number of kernels, copies and fills of a replayed call."""
    found: dict[str, Any] = field(default_factory=dict)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def __post_init__(self) -> None:
        self.device, self.reference = self.ready.device, self.ready.reference
        self._compared_before = self.reference.compared
        self.judges = self.rules.judges()
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
        reason, detail = "its outputs are right", ""
        self.candidate.process.allow(self.rules.timeout_s)
        try:
            judge()
        except Ended as error:
            status, reason, detail = error.status, error.reason, error.detail
        judged = CaseJudgement(
            case=self.ready.name,
            status=status,
            reason=reason,
            detail=detail,
            compared=self.reference.compared - self._compared_before,
            phases_s=self.stopwatch.laps_s,
            timed_by="candidate" if self.cost is None else "referee",
            not_replayed=self.not_replayed,
            **self.found,
        )
        if status != "pass" or judged.ratio is None:
            return judged
        return concluded(judged, self.judges, self.device.facts)

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
                times_us = self.reference.whole_us(), self.reference.launch_us
                witness = Witness(self.candidate, self.ready, self.cost, *times_us)
                budget_s = WITNESS_BUDGETS * self.rules.budget_s
                self.found["clock_us"] = witness.time(self.candidate_us, self.launches, self.rules.alpha, budget_s)
                self.stopwatch.lap("witness")
        self._find_floor(example)

    def _sets_for(self, example: tuple[Any, ...]) -> int:
        size = max(set_bytes(layout_of(describe(example, "the inputs")[1])), 1)
        return min(ROTATED_SETS, max(2, self.candidate.process.memory_bytes // (INPUT_SHARE * size)))

    # outputs

    def _check(self, example: tuple[Any, ...]) -> None:
        self.candidate.fill(example)  # it may have overwritten them
        self.candidate.first()
        lines = self.reference.require(self.candidate.output(), example, "in its first call")
        self.found["outputs"] = tuple(each.line for each in lines)
        for _ in range(CHECKS):
            (values,) = self.ready.draw(1)
            self.candidate.fill(values)
            self.candidate.first()
            self.reference.require(self.candidate.output(), values, "on other inputs")

    # the times

    def _time(self, sets: int) -> None:
        """Time both arms in turn until all limits are decided, or one is broken, or the time is spent."""
        reps, judges = Reps(self.candidate, self.ready, sets), self.judges

        def is_decided(taken: Interleaved, looks: tuple[int, ...]) -> bool:
            timing = timing_of(taken.samples["candidate"].samples_us, self.device.facts)
            return judges.look(timing, taken.quads(*ARMS), looks, taken.tick_us) or judges.failed

        calls = {arm: call_of(arm, lambda: None) for arm in ARMS}
        match = Match(calls, ARMS[0], secrets.randbelow(2**31), looks=LOOKS, least_more=LOOKS[0])
        plan = Plan("cold", None, None, self.rules.precision, self.rules.budget_s)
        try:
            taken, _ = measure_in_turn(match, reps, self.device, plan, is_decided, lambda text: None)
        finally:
            self.found["kernels"] = reps.kernels
        self.reference_us, self.candidate_us = (time_of(taken.samples[arm].samples_us) for arm in ARMS)
        speedup = judges.speedup.latest
        assert speedup, "it was looked at"
        self.found |= {"ratio": speedup.ratio, "interval": speedup.interval}
        self.found |= {"candidate_us": self.candidate_us, "reference_us": self.reference_us}

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
