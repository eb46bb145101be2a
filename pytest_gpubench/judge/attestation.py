"""Attest a candidate's time: released calls, by the referee's clock, less what a replay costs.

Nothing is taken off a call of the candidate's own process, which is asked for it by a message. Replays are queued by a
process of the referee's; for each the GPU switches to its context and back, which takes longer than many calls. So the
same process has replayed the reference before, whose time is known, or, where that cannot be replayed, has launched a
kernel that does next to nothing. What of a replay ran while the referee wrote and copied would have cost two switches
more: so much there counts for the call.
"""

import statistics
import time
from dataclasses import dataclass, replace

from pytest_gpubench.judge.candidate import Candidate, Released
from pytest_gpubench.judge.conclusion import time_of
from pytest_gpubench.judge.judgement import Time
from pytest_gpubench.judge.ready_case import ReadyCase
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.timing.base import Rep
from pytest_gpubench.timing.tracing_tax import GAP_US
from pytest_gpubench.timing.windows import busy_ns, span_ns
from pytest_gpubench.verdict.decision import at_least

__tracebackhide__ = True

LEAST_US = 0.01
BEFORE = 16
"""The calls of the reference before the candidate is loaded."""
BLANK = 32
DROPPED = 2
"""The first calls of a process take longer."""
SLACK_US = 2.0
"""By so much a replayed call of one kernel may take longer than its records, less what a replay costs."""
LOOKS = (14, 24, 48, 96, 192)
"""The numbers of released calls after which the attested ratio is looked at: with fewer it has no interval."""
PRECISION = 0.05
"""The width of the attested ratio's interval to either side, relative to it, that suffices without a limit."""


@dataclass(frozen=True)
class Before:
    """The measurements taken before the candidate was loaded."""

    reference: Time
    blank_us: float = 0.0
    """The cost of a queued call by the referee's clock, beside its own time; 0 for calls by messages."""
    own_us: float = 0.0
    """The median time that the referee itself takes between queued calls."""
    slack_us: float = 8.0
    """By so much a replayed call of one kernel may take longer than its records: 2 to 6 us were seen on an H200."""

    def less_blank(self, released: Released) -> float:
        """Return the time of a call without its cost."""
        more_us = released.own_us - self.own_us
        return max(released.call_us - self.blank_us + (more_us if more_us > self.blank_us / 2 else 0.0), LEAST_US)


def measure_before(ready: ReadyCase) -> Before:
    """Measure the reference alone."""
    return Before(time_of([rep.elapsed_us for rep in ready.time_reference(BEFORE)]))


def measure_blank(candidate: Candidate, ready: ReadyCase) -> Before:
    """Measure a case by calls of a function of ours in the referee's own process, where the reference has no replay."""
    candidate.begin_case(ready.example, 1, ready.outputs, blank=True)
    candidate.queue()
    blank = _released(candidate, ready)
    own_us = statistics.median(each.own_us for each in blank)
    return replace(measure_before(ready), blank_us=min(each.call_us for each in blank), own_us=own_us)


def measure_replays(candidate: Candidate, ready: ReadyCase) -> Before:
    """Measure a case by replays of the reference in the referee's own process, which has replayed nothing else.

    A replay costs what they take longer than its kernels and the gaps between these. Raises Ended where they are wrong.
    """
    candidate.begin_case(ready.example, 1, ready.outputs)
    candidate.queue()
    released = _released(candidate, ready)
    ready.reference.require(released[-1].output, ready.example, "where the reference is replayed")
    reps = ready.time_reference(BEFORE, as_graph=True)
    reference = time_of([rep.elapsed_us for rep in reps])
    lag_us = statistics.median(each.call_us for each in released) - statistics.median(map(untraced_us, reps))
    return Before(reference, lag_us, statistics.median(each.own_us for each in released), SLACK_US)


def _released(candidate: Candidate, ready: ReadyCase) -> list[Released]:
    """Release calls that are alike, after two that are dropped: the first ones take longer. The last has its output."""
    found: list[Released] = []
    while (left := BLANK + DROPPED - len(found)) > 0:
        released = candidate.release([ready.example] * min(left, candidate.most_together))
        found = [*(each._replace(output=None) for each in found), *released]
    return found[DROPPED:]


def untraced_us(rep: Rep) -> float:
    """Return the time from the start of a rep's first kernel to the end of its last, less what tracing adds."""
    busy_us, recorded_us = busy_ns(rep.records) / 1e3, sum(each.duration_ns for each in rep.records) / 1e3
    between_us = span_ns(rep.records) / 1e3 - busy_us - GAP_US * (len(rep.records) - 1)
    return busy_us * rep.elapsed_us / recorded_us + max(0.0, between_us)


class Attestation:
    """Released calls of a candidate, added until the ratio that they show is decided.

    most_us: of replays, the longest time that their records explain: calls are added until their time is certainly
    below or above it, whatever the ratio.
    """

    def __init__(
        self,
        candidate: Candidate,
        ready: ReadyCase,
        before: Before,
        wanted: float | None,
        most_us: float | None = None,
    ) -> None:
        self.candidate, self.ready, self.before, self.wanted = candidate, ready, before, wanted
        self.most_us = most_us
        self.times_us: list[float] = []
        self.left_us: list[float] = []
        """The times of the calls less what a replay costs: below 0 where that was more before."""

    def take(self, alpha: float, budget_s: float) -> None:
        """Release calls, look by look, until the ratio is decided or the time is spent; all outputs are compared."""
        self._release(DROPPED)
        self.times_us.clear()
        self.left_us.clear()
        until_s = time.monotonic() + budget_s
        for calls in LOOKS:
            while len(self.times_us) < calls:
                self._release(min(calls - len(self.times_us), self.candidate.most_together))
            self.alpha = alpha / len(LOOKS)
            if self._is_decided() or time.monotonic() > until_s:
                return

    def _release(self, calls: int) -> None:
        values = self.ready.draw(calls)
        for inputs, released in zip(values, self.candidate.release(values), strict=True):
            self.ready.reference.require(released.output, inputs, "in a call by the referee's clock")
            self.times_us.append(self.before.less_blank(released))
            self.left_us.append(released.call_us - self.before.blank_us)

    def _is_decided(self) -> bool:
        speedup, call = self.speedup, self.call_us.interval
        if self.most_us is not None:
            return call is not None and (call.high <= self.most_us or call.low > self.most_us)
        if self.wanted is not None:
            return at_least(speedup.interval, self.wanted) is not Outcome.INCONCLUSIVE
        return speedup.interval is not None and speedup.interval.width <= 2 * PRECISION * speedup.ratio

    @property
    def call_us(self) -> Time:
        """The time of a call."""
        return time_of(self.times_us, self.alpha)

    @property
    def speedup(self) -> SpeedupEstimate:
        """The reference's time before the candidate was loaded, over the candidate's."""
        reference, call = self.before.reference, self.call_us
        ratio = reference.median_us / call.median_us
        interval = None
        if reference.interval is not None and call.interval is not None:
            ends = reference.interval.low / call.interval.high, reference.interval.high / call.interval.low
            interval = Interval(min(ends[0], ratio), max(ends[1], ratio))
        return SpeedupEstimate(ratio, interval, len(self.times_us) // 2, self.alpha)
