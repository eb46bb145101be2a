"""Sweeps of the page: which measurements lie where on the axis, and what is drawn beside them."""

from collections.abc import Sequence
from typing import Any

from pytest_gpubench.report.crossover import faster_lines
from pytest_gpubench.report.html.numbers import five_digits
from pytest_gpubench.report.plot.panels import is_log_axis, tones_of
from pytest_gpubench.report.sweeps import LIMIT_OF_METRIC, Sweep, rate_metric, sweeps_of
from pytest_gpubench.results.model import TestRecord


def sweep_contents(records: Sequence[TestRecord]) -> list[dict[str, Any]]:
    """Return the page's data for each sweep; a point is its place, its test's index, and its own in the test."""
    places = {
        id(item): (test, place) for test, record in enumerate(records) for place, item in enumerate(record.measurements)
    }
    return [_content(sweep, places) for sweep in sweeps_of(records)]


def _content(sweep: Sweep, places: dict[int, tuple[int, int]]) -> dict[str, Any]:
    rate, tones = rate_metric(point.measurement for point in sweep.points), tones_of(sweep)
    return {
        "test": sweep.test,
        "device": sweep.device,
        "way": f"{sweep.timer}, {sweep.cache}",
        "axis": sweep.axis or sweep.param,
        "log": is_log_axis(sweep),
        "ticks": [] if sweep.axis else list(sweep.values.items()),
        "rate": rate.name if rate else "",
        "peak": five_digits(sweep.peak_gbps),
        "limits": {metric: five_digits(sweep.limit(metric)) for metric in LIMIT_OF_METRIC},
        "faster": faster_lines(sweep),
        "more": len(sweep.series) - len(tones),
        "series": [
            {
                "name": series.name,
                "tone": tone,
                "points": [(point.x, *places[id(point.measurement)]) for point in sweep.series[series]],
            }
            for series, tone in tones.items()
        ],
    }
