"""From an interval to an outcome, and the words for it."""

import math
from decimal import Decimal

from pytest_gpubench.results.model import Measurement, Outcome, Timing
from pytest_gpubench.stats.autocorrelation import drift_of, independent_for
from pytest_gpubench.stats.stopping import is_held_up
from pytest_gpubench.stats.summary import Interval, median_interval
from pytest_gpubench.units import count

DRIFT_GOES_ON = 6.0
"""A drift is followed so many times as far beyond what the reps of a measurement show of it."""
ROUNDING = 1e-12
"""The share by which a limit may be off after the arithmetic that led there."""
PROFILER_TICK_US = 0.032
"""The tick of the clock that kernels are timed with."""
ROUNDED_US = 0.0015
"""The distance of whole nanoseconds from a multiple of the tick, at most."""
ENOUGH_TO_SEE_TICKS = 12
"""Samples: of a clock without ticks as many would fit by chance less than once in 10^11."""
Judged = tuple[Outcome, str]
"""An outcome, and its sentence."""


def at_least(interval: Interval | None, least: float) -> Outcome:
    """Return PASS where the whole interval is at least the limit, FAIL where all of it is below, else INCONCLUSIVE."""
    least -= ROUNDING * abs(least)
    if interval is None or interval.low < least <= interval.high:
        return Outcome.INCONCLUSIVE
    return Outcome.PASS if interval.low >= least else Outcome.FAIL


def at_most(interval: Interval | None, most: float) -> Outcome:
    """Return PASS where the whole interval is at most the limit, FAIL where all of it is above, else INCONCLUSIVE."""
    most += ROUNDING * abs(most)
    if interval is None or interval.low <= most < interval.high:
        return Outcome.INCONCLUSIVE
    return Outcome.PASS if interval.high <= most else Outcome.FAIL


def time_interval(timing: Timing, alpha: float) -> Interval | None:
    """Return the interval of the median, wider by half a tick of the clock, and by what a drift comes to that goes on.

    From the fastest rep on where busy processes held up many others.
    """
    interval = median_interval(timing.samples_us, alpha, independent_for("median", timing.samples_us))
    if interval is None:
        return None
    factor, half_us = 1 + DRIFT_GOES_ON * drift_of(timing.samples_us) / timing.median_us, tick_of(timing) / 2
    low_us, high_us = (interval.low - half_us) / factor, (interval.high + half_us) * factor
    return Interval(min(timing.min_us, low_us) if was_held_up(timing) else low_us, high_us)


def tick_of(*timings: Timing) -> float:
    """Return the tick of the profiler's clock in microseconds; 0 where not all samples are whole ticks of it."""
    shown = [sample for timing in timings for sample in timing.samples_us[:ENOUGH_TO_SEE_TICKS]]
    has_ticks = all(timing.timer == "profiler" for timing in timings) and all(
        PROFILER_TICK_US / 2 < sample < math.inf and abs(math.remainder(sample, PROFILER_TICK_US)) <= ROUNDED_US
        for sample in shown
    )
    return PROFILER_TICK_US if has_ticks else 0.0


def tick_shares(item: Measurement, metric: str) -> list[float]:
    """Return the tick as a share of a measurement's time; for the speedup, of its reference's too."""
    times_us = [item.timing.median_us, *([item.speedup.reference_us] if item.speedup and metric == "speedup" else [])]
    return [tick_of(item.timing) / time_us for time_us in times_us]


def was_held_up(timing: Timing) -> bool:
    """Tell whether the host's clock timed a call that busy processes held up, mostly or now and then."""
    return timing.timer == "wall" and is_held_up(timing.samples_us)


def words_for(
    outcome: Outcome, interval: Interval | None, kept: str = "is fast enough", broken: str = "is too slow"
) -> str:
    """Return the words of a sentence on an outcome: these, or the reason why nothing was decided."""
    undecided = "cannot be judged" if interval is None else "is too close to tell"
    return {Outcome.PASS: kept, Outcome.FAIL: broken}.get(outcome, undecided)


def certainty(reps: int, independent: int, least: int, alpha: float) -> str:
    """Return the number of reps and the interval that a limit is judged by.

    independent: how many independent reps they are worth, which is said where it is half of them or fewer.
    least: the fewest that can decide the limit.
    """
    worth = "" if independent > reps / 2 else f" that resemble their neighbours, worth {independent} independent ones"
    return judged_by(count(reps, "rep") + worth, alpha, str(least) if reps < least else "")


def judged_by(counted: str, alpha: float, needed: str = "") -> str:
    """Return by what a limit is judged: samples and the interval of them.

    needed: how many samples have such an interval; empty where these do.
    """
    percent = (100 - 100 * Decimal(f"{alpha:.2g}")).normalize()
    interval = f"{percent:f} % interval"
    return f"{counted}, too few for the {interval}: take at least {needed}" if needed else f"{counted}, {interval}"
