"""Reps that all ranks keep, or take again, together: a rep that one of them cannot use is of no use to any."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pytest_gpubench.errors import MeasurementError, NothingRecorded
from pytest_gpubench.stats.stopping import Budget, next_batch
from pytest_gpubench.timing.attempts import ATTEMPTS, NOT_COMPLETE, Pauses, until_complete
from pytest_gpubench.timing.base import Call, Rep
from pytest_gpubench.timing.measurement import Plan
from pytest_gpubench.timing.pacing import Pacing
from pytest_gpubench.timing.ranks.peers import Peers
from pytest_gpubench.timing.ranks.timers import SynchronisedTimer
from pytest_gpubench.timing.rounds import Sample, check_same_kernels
from pytest_gpubench.timing.sampling import PROBE_REPS, collection_off
from pytest_gpubench.units import count


@dataclass(frozen=True)
class RankSampler:
    """Take reps of a call in agreement with the other ranks."""

    timer: SynchronisedTimer
    call: Call
    watch: Callable[[], int]
    """Returns what throttles this rank's GPU."""
    peers: Peers

    def take_sample(self, plan: Plan, pacing: Pacing, say: Callable[[str], None]) -> Sample:
        """Take reps until the slowest of each are precise, or the time is spent, as the first rank decides."""
        probe, _ = self.take_session(PROBE_REPS, 0.0, Sample())  # the first session of a process is slow
        started_s = time.perf_counter()
        self.take_session(PROBE_REPS, pacing.idle_s(probe), Sample())
        cost_s = (time.perf_counter() - started_s) / PROBE_REPS
        budget = Budget(plan.reps, plan.precision, plan.max_time_s, cost_s, precision_time_s=plan.precision_time_s)
        sample = Sample()
        slowest_us: list[float] = []
        while wanted := self.peers.tell(next_batch(budget, slowest_us, True))[0]:
            wanted, started_s = min(wanted, self.timer.max_reps), time.perf_counter()
            self.take_clean(wanted, pacing.idle_s(sample.reps or probe), sample)
            slowest_us = list(map(max, zip(*self.peers.tell(sample.samples_us), strict=True)))
            budget.spend(time.perf_counter() - started_s, wanted)
            say(f"measuring, {count(len(slowest_us), 'rep')} taken")
        return sample

    def take_clean(self, wanted: int, idle_s: float, sample: Sample) -> None:
        """Add so many reps to the sample, throttled ones only where no others can be had."""
        throttled: list[tuple[Rep, int]] = []
        pauses, missing = Pauses(), wanted
        for attempt in range(ATTEMPTS):
            if attempt:
                pauses.rest()
            reps, masks = self.take_session(missing, idle_s, sample)
            taken = list(zip(reps, masks, strict=True))
            sample.reps += [rep for rep, mask in taken if not mask]
            again = [(rep, mask) for rep, mask in taken if mask]
            throttled += again
            missing = len(again)
            if not missing:
                break
        sample.discarded += len(throttled) - missing
        for rep, mask in throttled[:missing]:
            sample.reps.append(rep)
            sample.throttle_mask |= mask

    def take_session(self, wanted: int, idle_s: float, sample: Sample) -> tuple[Sequence[Rep], list[int]]:
        """Return a session's reps, and what throttled any GPU in each; all measure again where one's are not complete.

        All raise the same error where they never are.
        """

        def take() -> tuple[Sequence[Rep], list[int]]:
            masks: list[int] = []
            problem: MeasurementError | None = None
            reps: Sequence[Rep] = ()
            with collection_off(), self.timer.session() as session:
                for _ in range(wanted):
                    session.take(self.call, idle_s)
                    masks.append(self.watch())
            try:
                reps = session.reps()
                check_same_kernels(self.call, [*sample.reps[:1], *reps])
            except MeasurementError as error:  # the others have to be told, or they would wait
                problem = error
            told = self.peers.tell((problem, masks))
            for index, (each, _) in enumerate(told):
                if each is not None:
                    raise type(each)(f"rank {index}: {each}")
            return reps, [reduce(or_, column) for column in zip(*(each for _, each in told), strict=True)]

        return until_complete(take, again=sample.count_again, errors=(*NOT_COMPLETE, NothingRecorded))
