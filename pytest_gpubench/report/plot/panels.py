"""The charts of a sweep: time, rate and speedup, as SVG files and in letters."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count, pairwise
from typing import NamedTuple

from pytest_gpubench.metrics import BY_NAME, Metric
from pytest_gpubench.report.crossover import faster_lines
from pytest_gpubench.report.html import asset
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.sweeps import Series, Sweep, SweepPoint, rate_metric
from pytest_gpubench.units import (
    MICROSECONDS_PER_UNIT,
    choose_time_unit,
    numbered,
    printable,
    round_to_digits,
    shortened_inside,
)

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
            low, high = math.log10(self.low), math.log10(self.high)
            marks = (1,) if high - low > most / 2 else (1, 3) if high - low > most / 3 else (1, 2, 5)
            powers = range(math.floor(low), math.ceil(high), math.ceil((high - low) / most))
            found = [mark * 10.0**power for power in powers for mark in marks]
            return [tick for tick in found if self.low <= tick <= self.high]
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next((mark * power for mark in (1, 2, 5) if mark * power >= rough), 10 * power)
        return [nth * step for nth in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


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
            low, high = metric.interval(item) or (None, None)
            if metric.name in ("gbps", "tflops") and (times := BY_NAME["median"].interval(item)):
                work = value * BY_NAME["median"].value(item)  # a rate's interval is that of the time
                low, high = work / times[1], work / times[0]
            if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
                low = high = None
            yield x, value / scale, low and low / scale, high and high / scale


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


WIDTH, HEIGHT = 380, 270
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 12, 44
HEAD = 34
LONGEST_STEM = 200
"""Letters of a file's name, of which file systems allow 255."""
LINE, LETTER = 18, 7.0
"""The height of a line, and about the width of a letter."""
STYLE = """
svg { background: var(--card); font: 12px system-ui, sans-serif; }
text { fill: var(--soft); } .title { fill: var(--text); font-weight: 600; }
.grid { stroke: var(--grid); } .line { fill: none; stroke: var(--tone); stroke-width: 2; }
.area { fill: var(--tone); opacity: .2; } .dot { fill: var(--tone); }
.rule { stroke: var(--soft); stroke-dasharray: 5 4; }
"""


def svg_files(sweeps: Sequence[Sweep]) -> dict[str, str]:
    """Return a file for each sweep by its name: `test_norm.test_rows-n.svg`."""
    titles = [printable(f"{sweep.test.replace('::', '.')}-{sweep.param}") for sweep in sweeps]
    stems = [shortened_inside(re.sub(r"[^\w.-]+", "_", title, flags=re.ASCII), LONGEST_STEM, "..") for title in titles]
    return {f"{name}.svg": svg_text(sweep) for name, sweep in zip(numbered(stems, "-"), sweeps, strict=True)}


def svg_text(sweep: Sweep) -> str:
    """Return the charts of a sweep side by side, with a legend and where each candidate is faster."""
    panels = panels_of(sweep)
    below = [
        f'<circle class="dot tone-{each.tone}" cx="5" cy="-4" r="5"/>{_text_mark(16, 0, each.series.name)}'
        for each in panels[0].curves
    ]
    more = [f"and {len(sweep.series) - MOST_SERIES} more"] if len(sweep.series) > MOST_SERIES else []
    below += [_text_mark(0, 0, words) for words in (*more, *faster_lines(sweep))]
    head = f"{sweep.test} on {sweep.device}"
    width = max(WIDTH * len(panels), LEFT + round(len(head) * LETTER))
    height = HEAD + HEIGHT + LINE * len(below) + LINE // 2
    charts = [_moved(nth * WIDTH, HEAD, "".join(_panel_marks(panel))) for nth, panel in enumerate(panels)]
    lines = [_moved(LEFT, HEAD + HEIGHT + LINE * nth + LINE // 2, line) for nth, line in enumerate(below)]
    title = _text_mark(LEFT, 22, head, "title")
    colors = asset("style.css").partition("* {")[0].strip()  # those of the page, light and dark
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{_xml_escaped(sweep.test)}"><style>{colors}{STYLE}</style>'
        f"{title}{''.join(charts)}{''.join(lines)}</svg>\n"
    )


def _panel_marks(panel: Panel) -> Iterator[str]:
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at_x(x: float) -> float:
        return LEFT + panel.x.share(x) * (right - LEFT)

    def at_y(y: float) -> float:
        return floor - panel.y.share(y) * (floor - TOP)

    for tick in panel.y.ticks(5):
        yield f'<path class="grid" d="M{LEFT} {at_y(tick):.1f}H{right}"/>'
        yield _text_mark(LEFT - 8, at_y(tick) + 4, shortened_number(tick), anchor="end")
    for x, text in panel.x_ticks(6):
        is_inside = at_x(x) + len(text) * LETTER / 2 < WIDTH
        yield _text_mark(at_x(x) if is_inside else WIDTH - 2, floor + 17, text, anchor="middle" if is_inside else "end")
    yield _text_mark((LEFT + right) / 2, HEIGHT - 8, panel.sweep.axis or panel.sweep.param, "title", "middle")
    title = _text_mark(0, 0, panel.title, "title", "middle")
    yield f'<g transform="translate(14 {(TOP + floor) / 2:.1f}) rotate(-90)">{title}</g>'
    for rule in panel.shown_rules:
        yield f'<path class="rule" d="M{LEFT} {at_y(rule.y):.1f}H{right}"/>'
        yield _text_mark(right, at_y(rule.y) - 5, rule.text, anchor="end")
    for curve in panel.curves:
        yield from _curve(curve, [(at_x(x), *(None if y is None else at_y(y) for y in ys)) for x, *ys in curve.points])


def _curve(curve: Curve, points: Sequence[Sequence[float | None]]) -> Iterator[str]:
    """Yield a curve: its interval as a band, its line, and its points."""
    ends = [(x, low, high) for x, _, low, high in points if low is not None and high is not None]
    if len(ends) > 1:
        band = [*((x, high) for x, _, high in ends), *((x, low) for x, low, _ in reversed(ends))]
        yield f'<path class="area tone-{curve.tone}" d="M{_path(band)}Z"/>'
    yield f'<path class="line tone-{curve.tone}" d="M{_path([(x, y) for x, y, *_ in points])}"/>'
    for (x, y, *_), (value_x, value_y, *_) in zip(points, curve.points, strict=True):
        told = f"<title>{_xml_escaped(f'{curve.series.name}: {value_y:.4g} at {value_x:g}')}</title>"
        yield f'<circle class="dot tone-{curve.tone}" cx="{x:.1f}" cy="{y:.1f}" r="3">{told}</circle>'


def _path(points: Sequence[Sequence[float | None]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _moved(x: float, y: float, inside: str) -> str:
    return f'<g transform="translate({x} {y})">{inside}</g>'


def _text_mark(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    attributes = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{_xml_escaped(text)}</text>'


def _xml_escaped(text: str) -> str:
    return escape(printable(text))


MARKS = "ox+*#@%&"
CHART_LINES = 12
CHART_COLUMNS = 78
CHART_LEFT = 8


def text_charts(sweeps: Sequence[Sweep], screen: Screen) -> str:
    """Return a chart of each test's sweep: its rate where that is known, else its time."""
    first = {(each.test, each.device, each.timer, each.cache): each for each in reversed(sweeps)}
    return screen.encoded("\n\n".join("\n".join(_chart(each, screen)) for each in reversed(first.values())))


def _chart(sweep: Sweep, screen: Screen) -> Iterator[str]:
    panels = {panel.metric.name: panel for panel in panels_of(sweep)}
    panel = panels.get("gbps") or panels.get("tflops") or panels["median"]
    width = max(20, min(CHART_COLUMNS, screen.width) - CHART_LEFT - 2)
    yield from screen.wrapped(f"{sweep.test}: {panel.title} over {sweep.axis or sweep.param}")
    ticks = {_row_at(panel, tick): shortened_number(tick) for tick in panel.y.ticks(4)}
    for row, line in enumerate(_grid(panel, width)):
        yield f"{ticks.get(row, '')[:CHART_LEFT]:>{CHART_LEFT}} │{''.join(line)}".rstrip()
    yield f"{'':{CHART_LEFT}} └{'─' * width}"
    labels = ""  # without those that have no room
    for x, text in panel.x_ticks(max(2, width // 9)):
        at = min(max(0, _column_at(panel, x, width) - len(text) // 2), width - len(text))
        if at >= len(labels) + (1 if labels else 0):
            labels = labels.ljust(at) + printable(text)
    yield f"{'':{CHART_LEFT}}  {labels}".rstrip()
    yield from (f"{'':{CHART_LEFT}}  {mark} {printable(curve.series.name)}" for mark, curve in _marked(panel))
    yield from (f"{'':{CHART_LEFT}}  - {rule.text}" for rule in panel.shown_rules if rule.text)


def _marked(panel: Panel) -> Iterator[tuple[str, Curve]]:
    return zip(MARKS, panel.curves, strict=False)


def _row_at(panel: Panel, y: float) -> int:
    return round((CHART_LINES - 1) * (1 - panel.y.share(y)))


def _column_at(panel: Panel, x: float, width: int) -> int:
    return round((width - 1) * panel.x.share(x))


def _grid(panel: Panel, width: int) -> list[list[str]]:
    """Return the lines of the chart: rules, then lines between points, then points, of which the first is on top."""
    grid = [[" "] * width for _ in range(CHART_LINES)]
    for rule in panel.shown_rules:
        grid[_row_at(panel, rule.y)] = ["-"] * width
    placed = [
        (mark, [(_column_at(panel, x, width), _row_at(panel, y)) for x, y, *_ in curve.points])
        for mark, curve in _marked(panel)
    ]
    for _, points in placed:
        for (left, first), (right, last) in pairwise(points):
            for column in range(left, right):
                grid[round(first + (last - first) * (column - left) / (right - left))][column] = "·"
    for mark, points in reversed(placed):
        for column, row in points:
            grid[row][column] = mark
    return grid
