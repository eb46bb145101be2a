"""The charts of a sweep as an SVG file, in the colours of the page."""

import re
from collections.abc import Iterator, Sequence
from html import escape

from pytest_gpubench.report.crossover import faster_lines
from pytest_gpubench.report.html.page import asset
from pytest_gpubench.report.plot.panels import MOST_SERIES, Curve, Panel, panels_of, shortened_number
from pytest_gpubench.report.sweeps import Sweep
from pytest_gpubench.units import printable

WIDTH, HEIGHT = 380, 270
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 12, 44
HEAD = 34
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
    files: dict[str, str] = {}
    for sweep in sweeps:
        stem = re.sub(r"[^\w.-]+", "_", printable(f"{sweep.test.replace('::', '.')}-{sweep.param}"))
        taken = sum(name.startswith(stem) for name in files)
        files[f"{stem}{f'-{taken + 1}' if taken else ''}.svg"] = svg_text(sweep)
    return files


def svg_text(sweep: Sweep) -> str:
    """Return the charts of a sweep side by side, with a legend and where each candidate is faster."""
    panels = panels_of(sweep)
    below = [*_legend(panels), *(_text_mark(0, 0, words) for words in faster_lines(sweep))]
    head = f"{sweep.test} on {sweep.device}"
    width, height = (
        max(WIDTH * len(panels), LEFT + round(len(head) * LETTER)),
        HEAD + HEIGHT + LINE * len(below) + LINE // 2,
    )
    charts = [_moved(nth * WIDTH, HEAD, "".join(_panel_marks(panel))) for nth, panel in enumerate(panels)]
    lines = [_moved(LEFT, HEAD + HEIGHT + LINE * nth + LINE // 2, line) for nth, line in enumerate(below)]
    title = _text_mark(LEFT, 22, head, "title")
    colors = asset("style.css").partition("* {")[0].strip()  # those of the page, light and dark
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{_xml_escaped(sweep.test)}"><style>{colors}{STYLE}</style>'
        f"{title}{''.join(charts)}{''.join(lines)}</svg>\n"
    )


def _legend(panels: Sequence[Panel]) -> list[str]:
    curves = panels[0].curves
    found = [
        f'<circle class="dot tone-{each.tone}" cx="5" cy="-4" r="5"/>{_text_mark(16, 0, each.series.name)}'
        for each in curves
    ]
    more = len(panels[0].sweep.series) - MOST_SERIES
    return [*found, _text_mark(0, 0, f"and {more} more")] if more > 0 else found


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
