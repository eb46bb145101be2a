"""The second witness of a replayed call: single calls by the referee's clock, less what a replay costs.

Replays are queued by a process of the referee's; for each the GPU switches to its context and back, which takes longer
than many calls. So the same process has replayed the reference before, which the referee times itself; where that
cannot be replayed, it has launched a kernel that does next to nothing. What of a replay ran while the referee wrote and
copied would have cost two switches more: so much there counts for the call.
"""

import statistics
import time
from dataclasses import dataclass
from typing import NamedTuple

from pytest_gpubench.errors import InvalidResult
from pytest_gpubench.judge.candidate import Candidate, Released
from pytest_gpubench.judge.judgement import Time, time_of
from pytest_gpubench.judge.layout import dtype_of, elements_of
from pytest_gpubench.judge.reference import ReadyCase
from pytest_gpubench.units import format_time

FIRST_CALLS = 32
"""The calls by which the cost of a replay is measured."""
DROPPED = 2
"""The first calls of a process take longer."""
SHARE = 0.05
"""A replayed call may take so much longer by the referee's clock, as clocks and power differ."""
SLACK_US, BLANK_SLACK_US = 2.0, 8.0
"""By so much a call of one kernel may take longer than its records; blank calls differ by up to 6 us on an H200."""
NEXT_SHARE = 0.5
"""The longest way to a kernel that waits for the one before it, in the time that one takes which does nothing.

So no launch adds as much as it takes. On an H200, where an empty one takes 1.09 us, chains of 60 and 200 kernels took
5.5 and 13.4 us longer by the referee's clock than by their records, one of 20 copies 1.7 us less.
"""
LOOKS = (14, 24, 48, 96, 192)
"""The numbers of calls after which their time is looked at: with fewer it has no interval."""


class ClocksDisagree(InvalidResult):
    """The referee's clock contradicts the records of a replayed call, or what it said itself before."""


class ReplayCost(NamedTuple):
    """The cost of a replay, by the first calls of a process by the referee's clock, in microseconds."""

    call_us: float
    """The median time of a replay of the reference, or the shortest of a kernel that does next to nothing."""
    own_us: float
    """The median time that the referee itself takes between calls."""
    is_blank: bool = False
    """True if the reference cannot be replayed."""

    def of(self, reference_us: float) -> float:
        """Return the cost of a replay, where the reference's kernels take this."""
        return self.call_us - (0.0 if self.is_blank else reference_us)

    @property
    def slack_us(self) -> float:
        """By so much a replayed call of one kernel may take longer than its records, less what a replay costs."""
        return BLANK_SLACK_US if self.is_blank else SLACK_US


def measure_replays(candidate: Candidate, ready: ReadyCase) -> ReplayCost:
    """Measure replays of the reference, or a function of ours where it has none, in a process that did nothing else.

    Raises Ended where a replay is wrong.
    """
    is_blank = not ready.saved
    candidate.begin_case(ready.example, 1, ready.outputs, blank=is_blank)
    candidate.first()
    calls: list[Released] = []
    with candidate.alone():
        while (left := FIRST_CALLS + DROPPED - len(calls)) > 0:
            released = candidate.release([ready.example] * min(left, candidate.most_together))
            calls = [*(each._replace(output=None) for each in calls), *released]
    if not is_blank:
        ready.reference.require(calls[-1].output, ready.example, "where the reference is replayed")
    call_us, own_us, _ = zip(*calls[DROPPED:], strict=True)
    return ReplayCost((min if is_blank else statistics.median)(call_us), statistics.median(own_us), is_blank)


@dataclass
class Witness:
    """The referee's clock around single replays of a candidate's call, each on new inputs; all outputs are compared."""

    candidate: Candidate
    ready: ReadyCase
    cost: ReplayCost
    reference_us: float
    """The time of the reference's kernels, and of the gaps between them."""
    launch_us: float
    """The time of a kernel that does nothing, in a graph, after another one."""

    def time(self, recorded: Time, kernels: int, alpha: float, budget_s: float) -> Time:
        """Return the time of a call; calls are added until its records explain it or not, or the time is spent.

        A kernel may write wherever the GPU may, in the memory of its process too: its records are not believed alone.

        Raises ClocksDisagree where a call certainly takes longer than its records explain, or less than a replay alone
        cost before, as what is taken off would hide as much of it.
        """
        gaps_us = NEXT_SHARE * self.launch_us * (kernels - 1)
        most_us = recorded.median_us * (1 + SHARE) + self._slack_us(recorded.median_us) + gaps_us
        self._release(DROPPED)
        until_s, times_us = time.monotonic() + budget_s, list[float]()
        for calls in LOOKS:
            while len(times_us) < calls:
                times_us += self._release(min(calls - len(times_us), self.candidate.most_together))
            found = time_of(times_us, alpha / len(LOOKS))
            ends_us = found.interval
            if (ends_us and (ends_us.high <= most_us or ends_us.low > most_us)) or time.monotonic() > until_s:
                break
        if found.median_us < -self.cost.slack_us:
            raise ClocksDisagree(
                f"a replayed call takes {format_time(-found.median_us)} less by the referee's clock than a replay "
                "alone cost before"
            )
        if found.ends.low > most_us:
            raise ClocksDisagree(
                f"its records say {format_time(recorded.median_us)}, and the referee's clock "
                f"{format_time(found.median_us)}"
            )
        return found

    def _slack_us(self, recorded_us: float) -> float:
        """Return by how much a call of one kernel may take longer than its records, of this length.

        When the GPU switches, it writes to memory what the cache holds of the outputs: more after a faster call than
        after the reference, which has written most of it by then.
        """
        written_bytes = sum(elements_of(each) * dtype_of(each.dtype).itemsize for each in self.ready.outputs)
        held_bytes = min(written_bytes, self.ready.device.cache_bytes)
        later_us = held_bytes / self.candidate.bandwidth if self.candidate.bandwidth else 0.0
        faster = 1 - recorded_us / self.reference_us if self.reference_us else 0.0
        return self.cost.slack_us + later_us * max(0.0, faster)

    def _release(self, calls: int) -> list[float]:
        """Return the times of so many calls, less what a replay costs; all that ran between them counts for them."""
        values, cost_us = self.ready.draw(calls), self.cost.of(self.reference_us)
        released = self.candidate.release(values)
        for inputs, each in zip(values, released, strict=True):
            self.ready.reference.require(each.output, inputs, "in a call by the referee's clock")
        more_us = [each.own_us - self.cost.own_us for each in released]
        between_us = [each if each > cost_us / 2 else 0.0 for each in more_us]
        return [each.call_us - cost_us + more for each, more in zip(released, between_us, strict=True)]
