"""Modes of a measurement: times far apart that a call takes by turns, with hardly a sample between them.

Kernels with contended atomics have two or three, up to 20 % apart on H200s, and the interval of the median says nothing
of the others. Samples are split at a gap that is wide against both of its sides; tails, drifts and the ticks of a clock
leave no such gap. Simulated with 40 samples, at most 0.5 % of measurements with normal or lognormal noise, a drift or
ticks have modes; of those with two modes 3 % apart, 18 % of the samples in one and a std of 0.3 % in each, 95 % do.
"""

import math
import statistics
from collections.abc import Sequence

from pytest_gpubench.stats.summary import steps_us
from pytest_gpubench.units import MICROSECONDS_PER_UNIT, choose_time_unit, round_to_digits

LEAST_SAMPLES = 40
"""The fewest samples that show modes: clusters of fewer are often chance."""
LEAST_IN_MODE = 3
LEAST_SHARE = 0.07
LEAST_DISTANCE = 0.01
"""Modes closer than 1 % do not matter."""
LEAST_STEPS = 5
"""The steps of the clock, by which samples differ at least, that a gap spans at least."""
LEAST_GAP = 1.3
"""A gap over what its sides are wide, from which on it parts two modes."""
STRAY_SHARE = 0.02
"""The samples that may lie in a gap."""
TRIMMED_SHARE = 0.1
FEW = 6
"""A side of so many samples counts as twice as wide as it is: few lie close together by chance."""
NUMBER_WORDS = {2: "two", 3: "three"}


def modes_text(samples_us: Sequence[float]) -> str:
    """Return the modes in words: `two modes: 157 us (18 %), 173 us`; empty where there is only one."""
    ordered, total = sorted(samples_us), len(samples_us)
    steps = steps_us(samples_us)
    if total < LEAST_SAMPLES or not steps:
        return ""
    sides = _split(ordered, max(LEAST_IN_MODE, math.ceil(LEAST_SHARE * total)), LEAST_STEPS * min(steps))
    if len(sides) < 2:
        return ""
    unit, usual = choose_time_unit([statistics.median(sides[0])]), max(sides, key=len)
    times = [round_to_digits(statistics.median(side) / MICROSECONDS_PER_UNIT[unit], 3) for side in sides]
    shares = ["" if side is usual else f" ({100 * len(side) / total:.0f} %)" for side in sides]
    found = ", ".join(f"{time} {unit}{share}" for time, share in zip(times, shares, strict=True))
    return f"{NUMBER_WORDS.get(len(sides), len(sides))} modes: {found}"


def _split(ordered: Sequence[float], least: int, least_gap_us: float) -> list[Sequence[float]]:
    """Return samples in ascending order, split at every gap; each part has so many at least."""
    strays = int(STRAY_SHARE * len(ordered))
    ends = range(least, len(ordered) - least - strays + 1)
    best, end = max(((_gap(ordered, end, end + strays, least_gap_us), end) for end in ends), default=(0.0, 0))
    if best < LEAST_GAP:
        return [ordered]
    middle = max(range(end, end + strays + 1), key=lambda at: ordered[at] - ordered[at - 1])
    return _split(ordered[:middle], least, least_gap_us) + _split(ordered[middle:], least, least_gap_us)


def _gap(ordered: Sequence[float], end: int, start: int, least_gap_us: float) -> float:
    """Return the gap between the samples before `end` and those from `start` on, over the width of its wider side."""
    gap = ordered[start] - ordered[end - 1]
    distance = ordered[(start + len(ordered)) // 2] - ordered[end // 2]
    if gap < least_gap_us or distance < LEAST_DISTANCE * ordered[end // 2]:
        return 0.0
    width = max(_width(ordered, 0, end, end - 1), _width(ordered, start, len(ordered), start))
    return gap / width if width else math.inf


def _width(ordered: Sequence[float], first: int, stop: int, edge: int) -> float:
    """Return how wide a side is: from its median to its edge at the gap, or half of what its middle 80 % span."""
    count = stop - first
    trimmed = int(TRIMMED_SHARE * count)
    half = (ordered[stop - 1 - trimmed] - ordered[first + trimmed]) / 2
    return max(abs(ordered[first + count // 2] - ordered[edge]), half * (1 + FEW / count))
