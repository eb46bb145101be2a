"""The rules for enough reps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_gpubench.stats.summary import SAME_TICK_US, median_interval, quartiles

CONFIDENCE_ALPHA = 0.05
"""The interval that `precision` is about is the 95 % one."""

FIRST_BATCH_S = 0.07
"""Time given to the first batch. Memory-bound kernels drift by 1 % over tens of milliseconds: fewer reps, or the same
in less time, would be precise about a moment instead of the kernel."""
MIN_REPS = 16
MAX_FIRST_REPS = 250
MAX_REPS = 10_000
LEAST_REPS = 12
"""Taken even where `budget_s` is too short for them: the fewest that decide a limit at alpha 0.001, at a first look."""
LEAST_COST_S = 1e-6
"""The cost of a rep where its clock shows less: that leaves out what the host waits for a core, by another clock."""
MAX_GROWTH = 2.0
HELD_UP_FACTOR = 3.0
"""Reps whose third quartile is so many times the fastest are held up by others, as by busy processes on one core.

Not so many times the first quartile: with two busy processes on each core, most reps are held up.
"""
HELD_UP_REPS = 40
"""So many of them have an interval of the first quartile, too."""
MAX_TICK_US = 0.1
"""Readings further apart than this are not neighbouring ticks: CUPTI's clock ticks every 32 ns on an H200."""


@dataclass
class Budget:
    """The budget of a measurement: exactly `reps`, or until all is decided within `max_time_s`."""

    reps: int | None
    precision: float
    max_time_s: float
    rep_cost_s: float
    """The cost of one rep on the host, as far as it is known."""
    spent_s: float = 0.0
    taken: int = 0
    """The reps that were paid for with `spent_s`."""
    precision_time_s: float = math.inf
    """The time after which precision alone is worth no more reps."""
    held_up_time_s: float = 0.0
    """The time instead of `max_time_s`, where it is longer, for reps that are held up by others."""

    @property
    def left_s(self) -> float:
        """The seconds that are left."""
        return self.max_time_s - self.spent_s

    def spend(self, seconds: float, reps: int) -> None:
        """Note what so many more reps took."""
        self.spent_s += seconds
        self.taken += reps
        if self.taken:
            self.rep_cost_s = max(self.spent_s / self.taken, LEAST_COST_S)


def next_batch(budget: Budget, samples_us: Sequence[float], decided: bool) -> int:
    """Return the number of further reps to take; 0 to stop."""
    taken = len(samples_us)
    if budget.reps is not None:
        return max(0, budget.reps - taken)
    held_up = is_held_up(samples_us)
    is_enough = decided and not (held_up and taken < HELD_UP_REPS)
    worth_s = budget.precision_time_s - budget.spent_s if is_enough else math.inf
    left_s = max(budget.left_s, budget.held_up_time_s - budget.spent_s) if held_up else budget.left_s
    affordable = int(min(left_s, worth_s) / budget.rep_cost_s)
    if taken < LEAST_REPS:  # a warm-up or a probe took them: they belong to the first batch
        worthwhile = min(max(MIN_REPS, int(FIRST_BATCH_S / budget.rep_cost_s)), MAX_FIRST_REPS)
        return max(min(worthwhile - taken, affordable), LEAST_REPS - taken)
    if is_enough and is_precise(samples_us, budget.precision):
        return 0
    wanted = taken
    if decided and (interval := median_interval(samples_us, CONFIDENCE_ALPHA)):  # for it to narrow to the precision
        growth = 1.1 * (interval.width / (budget.precision * (interval.low + interval.high) / 2)) ** 2
        wanted = int(taken * (min(max(growth, 1.1), MAX_GROWTH) - 1))
    more = min(max(wanted, MIN_REPS), affordable, MAX_REPS - taken)
    return more if more >= MIN_REPS else 0


def is_precise(samples_us: Sequence[float], precision: float) -> bool:
    """Tell whether the median's interval is no wider than this part of it, or as narrow as the clock's ticks allow."""
    interval = median_interval(samples_us, CONFIDENCE_ALPHA)
    is_narrow = interval is not None and interval.width <= precision * (interval.low + interval.high) / 2
    return is_narrow or is_tick_limited(samples_us)


def is_held_up(samples_us: Sequence[float]) -> bool:
    """Tell whether many reps waited for others, so that few of them say little."""
    return len(samples_us) >= LEAST_REPS and quartiles(samples_us)[2] > HELD_UP_FACTOR * min(samples_us)


def is_tick_limited(samples_us: Sequence[float]) -> bool:
    """Tell whether the interval's ends are neighbouring ticks of the clock, with no reading between them.

    Readings within SAME_TICK_US are of one tick.
    """
    interval = median_interval(samples_us, CONFIDENCE_ALPHA)
    if interval is None or not SAME_TICK_US < interval.width <= MAX_TICK_US:
        return False
    return not any(interval.low + SAME_TICK_US < sample < interval.high - SAME_TICK_US for sample in samples_us)
