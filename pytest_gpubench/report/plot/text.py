"""A chart of a sweep in letters, for the terminal."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.plot.panels import Curve, Panel, panels_of, shortened_number
from pytest_gpubench.report.sweeps import Sweep
from pytest_gpubench.units import printable

MARKS = "ox+*#@%&"
HEIGHT = 12
CHART_COLUMNS = 78
LEFT = 8


def text_charts(sweeps: Sequence[Sweep], screen: Screen) -> str:
    """Return a chart of each test's sweep: its rate where that is known, else its time."""
    first = {(each.test, each.device, each.timer, each.cache): each for each in reversed(sweeps)}
    return screen.encoded("\n\n".join("\n".join(_chart(each, screen)) for each in reversed(first.values())))


def _chart(sweep: Sweep, screen: Screen) -> Iterator[str]:
    panels = {panel.metric.name: panel for panel in panels_of(sweep)}
    panel = panels.get("gbps") or panels.get("tflops") or panels["median"]
    width = max(20, min(CHART_COLUMNS, screen.width) - LEFT - 2)
    yield from screen.wrapped(f"{sweep.test}: {panel.title} over {sweep.axis or sweep.param}")
    ticks = {_row_at(panel, tick): shortened_number(tick) for tick in panel.y.ticks(4)}
    for row, line in enumerate(_grid(panel, width)):
        yield f"{ticks.get(row, '')[:LEFT]:>{LEFT}} │{''.join(line)}".rstrip()
    yield f"{'':{LEFT}} └{'─' * width}"
    yield f"{'':{LEFT}}  {_labels(panel, width)}".rstrip()
    yield from (f"{'':{LEFT}}  {mark} {printable(curve.series.name)}" for mark, curve in _marked(panel))
    yield from (f"{'':{LEFT}}  - {rule.text}" for rule in panel.shown_rules if rule.text)


def _marked(panel: Panel) -> Iterator[tuple[str, Curve]]:
    return zip(MARKS, panel.curves, strict=False)


def _row_at(panel: Panel, y: float) -> int:
    return round((HEIGHT - 1) * (1 - panel.y.share(y)))


def _column_at(panel: Panel, x: float, width: int) -> int:
    return round((width - 1) * panel.x.share(x))


def _grid(panel: Panel, width: int) -> list[list[str]]:
    """Return the lines of the chart: rules, then lines between points, then points, of which the first is on top."""
    grid = [[" "] * width for _ in range(HEIGHT)]
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


def _labels(panel: Panel, width: int) -> str:
    """Return the ticks below the chart, without those that have no room."""
    line = ""
    for x, text in panel.x_ticks(max(2, width // 9)):
        at = min(max(0, _column_at(panel, x, width) - len(text) // 2), width - len(text))
        if at >= len(line) + (1 if line else 0):
            line = line.ljust(at) + printable(text)
    return line
