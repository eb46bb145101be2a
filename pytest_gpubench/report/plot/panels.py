"""The charts of a sweep: time, rate and speedup, with their curves, scales and ticks."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from pytest_gpubench.metrics import BY_NAME, Metric
from pytest_gpubench.report.sweeps import Series, Sweep, SweepPoint, rate_metric
from pytest_gpubench.units import MICROSECONDS_PER_UNIT, choose_time_unit, round_to_digits

MOST_SERIES = 8
"""Series of one sweep that are drawn, as there are no more colours; those that come first."""
LOG_FROM = 8
"""The ratio of the largest to the smallest number from which on an axis is logarithmic."""
PREFIXES = {1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k"}
LONGEST_WHOLE = 1e6
"""A whole number below this is written out: it may be a size."""


class Curve(NamedTuple):
    """The numbers of a series; low and high are None where a number has no interval."""

    series: Series
    tone: str
    points: Sequence[tuple[float, float, float | None, float | None]]
    """x, y, low, high."""


class RuleLine(NamedTuple):
    """A line across a chart."""

    y: float
    text: str


@dataclass(frozen=True)
class Scale:
    """An axis: the range shown, and whether it is logarithmic."""

    low: float
    high: float
    is_log: bool

    def share(self, value: float) -> float:
        """Return the place of a value on the axis, from 0 to 1 for what is shown."""
        of: Callable[[float], float] = math.log if self.is_log else float
        return (of(value) - of(self.low)) / (of(self.high) - of(self.low))

    def ticks(self, most: int) -> list[float]:
        """Return at most about so many round numbers that are shown."""
        if self.is_log and self.high / self.low > LOG_FROM:
            return self._log_ticks(most)
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next((mark * power for mark in (1, 2, 5) if mark * power >= rough), 10 * power)
        return [nth * step for nth in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]

    def _log_ticks(self, most: int) -> list[float]:
        decades = math.log10(self.high / self.low)
        marks = (1,) if decades > most / 2 else (1, 3) if decades > most / 3 else (1, 2, 5)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)), math.ceil(decades / most))
        found = [mark * 10.0**power for power in powers for mark in marks]
        return [tick for tick in found if self.low <= tick <= self.high]


@dataclass(frozen=True)
class Panel:
    """One metric over a sweep."""

    metric: Metric
    title: str
    """The metric with its unit."""
    sweep: Sweep
    curves: Sequence[Curve]
    rules: Sequence[RuleLine]

    @property
    def x(self) -> Scale:
        """The axis of the sweep."""
        return _scale(list(self.sweep.values), is_log_axis(self.sweep), 0.04)

    @property
    def y(self) -> Scale:
        """The axis of the metric; limits and peaks that are far away are not shown."""
        values = [each for curve in self.curves for _, *ys in curve.points for each in ys if each is not None]
        low, high = min(values), max(values)
        near = [rule.y for rule in self.rules if low / 2 <= rule.y <= 2 * high]
        return _scale([*values, *near, 0.95 * low, 1.05 * high], low > 0 and high / low > 2 * LOG_FROM, 0.08)

    @property
    def shown_rules(self) -> list[RuleLine]:
        """The rules that lie in what is shown."""
        return [rule for rule in self.rules if 0 <= self.y.share(rule.y) <= 1]

    def x_ticks(self, most: int) -> list[tuple[float, str]]:
        """Return at most about so many ticks of the sweep: its own values, where they are that few."""
        values = self.sweep.values
        if len(values) <= most or not self.sweep.axis:
            kept = list(values)[:: math.ceil(len(values) / most)]
            return [(x, shortened_number(x) if self.sweep.axis else values[x]) for x in kept]
        return [(tick, shortened_number(tick)) for tick in self.x.ticks(most)]


def panels_of(sweep: Sweep) -> list[Panel]:
    """Return the charts of a sweep: time, the rate that matters, and speedup, as far as they are known."""
    rate = rate_metric(point.measurement for point in sweep.points)
    found = [_panel(sweep, metric) for metric in (BY_NAME["median"], rate, BY_NAME["speedup"]) if metric]
    return [panel for panel in found if panel.curves]


def tones_of(sweep: Sweep) -> dict[Series, str]:
    """Return the colour of each series that is drawn, by its name in the style sheet of the page."""
    free = (f"series-{number}" for number in count())
    first = {True: ["reference"], False: ["candidate"]}
    drawn = [(each, first[each.role == "reference"]) for each in list(sweep.series)[:MOST_SERIES]]
    return {each: tones.pop() if tones else next(free) for each, tones in drawn}


def is_log_axis(sweep: Sweep) -> bool:
    """Tell whether the axis of a sweep is logarithmic."""
    values = list(sweep.values)
    return bool(sweep.axis) and values[0] > 0 and values[-1] / values[0] >= LOG_FROM


def shortened_number(value: float) -> str:
    """Return a whole number below a million as it is, any other with at most four digits: `16384`, `1.049M`."""
    if abs(value) < LONGEST_WHOLE and value == int(value):
        return str(int(value))
    scale = next((each for each in PREFIXES if abs(value) >= max(each, 1e4)), 1.0)
    return f"{value / scale:.4g}{PREFIXES.get(scale, '')}"


def _panel(sweep: Sweep, metric: Metric) -> Panel:
    medians = [point.measurement.timing.median_us for point in sweep.points]
    unit = choose_time_unit([sorted(medians)[len(medians) // 2]]) if metric.unit == "us" else ""
    scale = MICROSECONDS_PER_UNIT[unit] if unit else 1.0
    curves = []
    for series, tone in tones_of(sweep).items():
        points = list(_curve_numbers(sweep.series[series], metric, scale))
        curves += [Curve(series, tone, points)] if points else []
    title = {"us": f"time, {unit}", "x": "speedup"}.get(metric.unit, metric.unit)
    return Panel(metric, title, sweep, curves, [*_rules(sweep, metric, scale)])


def _curve_numbers(
    points: Iterable[SweepPoint], metric: Metric, scale: float
) -> Iterator[tuple[float, float, float | None, float | None]]:
    for x, _, _, item in points:
        value = metric.value(item)
        if value is not None and math.isfinite(value):
            low, high = interval_of(metric, item) or (None, None)
            yield x, value / scale, low and low / scale, high and high / scale


def interval_of(metric: Metric, item: object) -> tuple[float, float] | None:
    """Return the interval of a metric; that of a rate is the time's."""
    interval, rate = metric.interval(item), metric.value(item)
    if metric.name in ("gbps", "tflops") and (times := BY_NAME["median"].interval(item)):
        work = rate * BY_NAME["median"].value(item)
        return work / times[1], work / times[0]
    return interval if interval and all(map(math.isfinite, interval)) else None


def _rules(sweep: Sweep, metric: Metric, scale: float) -> Iterator[RuleLine]:
    if metric.name == "speedup":
        yield RuleLine(1.0, "")
    if (limit := sweep.limit(metric.name)) is not None:
        yield RuleLine(limit / scale, f"limit {round_to_digits(limit / scale, 3)}")
    for name, peak in sweep.peaks(metric.name).items():
        yield RuleLine(peak, " ".join(filter(None, ("peak", name, str(round_to_digits(peak, 4))))))


def _scale(values: Sequence[float], is_log: bool, share: float) -> Scale:
    low, high = min(values), max(values)
    if is_log and low > 0:
        times = max((high / low) ** share, 1.05)
        return Scale(low / times, high * times, True)
    room = share * (high - low) or 0.02 * abs(high) or 1.0
    return Scale(low - room, high + room, False)
