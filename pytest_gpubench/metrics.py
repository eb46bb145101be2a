"""The numbers of a measurement: one row each, which every table, page and file reads.

It lies below the settings, for `--gpu-bench-columns` and `--gpu-bench-sort` take their names from here: a row reads a
`Measurement` without importing its class.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_gpubench.counters import COUNTERS
from pytest_gpubench.errors import NotMeasured
from pytest_gpubench.units import (
    MICROSECONDS_PER_UNIT,
    bracketed,
    choose_time_unit,
    format_share,
    ratio_text,
    round_to_digits,
)

Unit = Literal["us", "share", "x", "MHz", "cycles", "GB/s", "TFLOP/s", "B", "FLOP", "count", ""]
FORMATS: Mapping[Unit, Callable[[float], str]] = {
    "share": format_share,
    "x": ratio_text,
    "MHz": lambda value: f"{value:.0f}",
    "cycles": lambda value: f"{value:,.0f}",
    "count": lambda value: f"{value:,.0f}",
    "GB/s": lambda value: round_to_digits(value, 4),
    "TFLOP/s": lambda value: round_to_digits(value, 4),
}
"""The text of a number without its unit; of another unit it is written as it is, and a time in the table's unit."""
NAMED_UNITS = ("MHz", "GB/s", "TFLOP/s")
"""The units that are written after a number."""


@dataclass(frozen=True)
class Metric:
    """One number of a measurement, or a pair of numbers; where it has no name, it is not shown."""

    name: str
    """Its name as a column, as a key to sort by, and in the page's data."""
    unit: Unit
    get: Callable[[Any], Any]
    """Reads it from a `Measurement`."""
    ends: Callable[[Any], Any] | None = None
    """Reads its interval; None: it has none."""
    header: str = ""
    """Its name over a column of the terminal; `{unit}` stands for the table's unit of time."""
    section: str = ""
    """Its name in a failed test's report; metrics of one name share a line."""
    page: str = ""
    """Its name on the page of a test."""
    csv: str = ""
    """Its name in CSV files."""
    junit: bool = False
    """True if JUnit's properties have it, under its name in CSV files."""

    def value(self, item: object) -> Any:
        """Return its value in a measurement, of times in microseconds; None where it is not known.

        A count of 0 is not known: there is nothing without reps, and no call without a kernel has records.
        """
        found = _read_item(self.get, item)
        return None if found == 0 and not self.unit else found

    def interval(self, item: object) -> Any:
        """Return its interval in a measurement; None where it is not known."""
        return _read_item(self.ends, item) if self.ends else None

    def text(self, item: object, time_unit: str = "us") -> str:
        """Return its value in a measurement as a table writes it, a pair in brackets; a dash where it is not known."""
        return self.written(self.value(item), time_unit)

    def written(self, value: Any, time_unit: str = "us") -> str:
        """Return a value of it without its unit."""
        if value is None:
            return "-"
        if isinstance(value, tuple):
            return bracketed(self.written(each, time_unit) for each in value).strip()
        if self.unit == "us":
            return round_to_digits(value / MICROSECONDS_PER_UNIT[time_unit], 4)
        return FORMATS.get(self.unit, str)(value)

    def told(self, value: Any, time_unit: str = "") -> str:
        """Return a value of it with its unit, of a time one that fits where none is given."""
        if value is None:
            return "-"
        if self.unit == "us":
            time_unit = time_unit or choose_time_unit(value if isinstance(value, tuple) else [value])
            return f"{self.written(value, time_unit)} {time_unit}"
        return f"{self.written(value)} {self.unit if self.unit in NAMED_UNITS else ''}".rstrip()


def _read_item(get: Callable[[Any], Any], item: object) -> Any:
    """Return what is read from a measurement; None where it has no numbers, or they make none."""
    try:
        found = get(item)
    except (NotMeasured, ArithmeticError, ValueError, AttributeError):  # the last is statistics.stdev of infinity
        return None
    return None if isinstance(found, float) and math.isnan(found) else found


def _counter_of(name: str) -> Callable[[Any], Any]:
    def get(item: Any) -> float | None:
        counts = item.timing.counts
        return counts.median(name) if counts is not None and name in counts.captures else None

    return get


METRICS = (
    Metric(
        "median",
        "us",
        lambda item: item.timing.median_us,
        ends=lambda item: item.timing.median_interval_us,
        header="Median ({unit})",
        section="median",
        page="median",
        csv="median_us",
        junit=True,
    ),
    Metric(
        "interval",
        "us",
        lambda item: item.timing.median_interval_us,
        header="95 % interval",
        section="95 %",
        page="95 % interval",
    ),
    Metric("quartiles", "us", lambda item: item.timing.quartiles_us[::2], section="quartiles", page="quartiles"),
    Metric("range", "us", lambda item: (item.timing.min_us, item.timing.max_us), section="min, max", page="min – max"),
    Metric("mean", "us", lambda item: item.timing.mean_us, header="Mean ({unit})", csv="mean_us"),
    Metric("std", "us", lambda item: item.timing.std_us, header="Std ({unit})", csv="std_us"),
    Metric("rel_std", "share", lambda item: item.timing.rel_std, header="Rel. std", page="relative std", csv="rel_std"),
    Metric("min", "us", lambda item: item.timing.min_us, header="Min ({unit})", csv="min_us"),
    Metric("q1", "us", lambda item: item.timing.quartiles_us[0], header="Q1 ({unit})", csv="q1_us"),
    Metric("q3", "us", lambda item: item.timing.quartiles_us[2], header="Q3 ({unit})", csv="q3_us"),
    Metric("max", "us", lambda item: item.timing.max_us, header="Max ({unit})", csv="max_us"),
    Metric("busy", "us", lambda item: item.timing.median_busy_us, header="Busy ({unit})", csv="busy_us"),
    Metric(
        "span",
        "us",
        lambda item: item.timing.median_span_us,
        header="Span ({unit})",
        page="first to last",
        csv="span_us",
    ),
    Metric("reps", "", lambda item: item.timing.reps, header="Reps", section="reps", page="reps"),
    Metric(
        "clock",
        "MHz",
        lambda item: item.timing.median_sm_clock_mhz,
        header="SM MHz",
        section="SM clock",
        page="SM clock",
        csv="sm_clock_mhz",
    ),
    Metric("cycles", "cycles", lambda item: item.timing.median_cycles, section="cycles"),
    Metric("kernels", "", lambda item: item.timing.launches, header="Kernels", page="kernels, copies", csv="launches"),
    Metric("registers", "", lambda item: max(each.registers for each in item.timing.resources), csv="registers"),
    Metric("local_bytes", "B", lambda item: max(each.local_bytes for each in item.timing.resources), csv="local_bytes"),
    Metric("shared", "B", lambda item: max(each.shared_bytes for each in item.timing.resources), csv="shared_bytes"),
    Metric("blocks", "", lambda item: min(each.blocks_per_sm for each in item.timing.resources), csv="blocks_per_sm"),
    Metric("tail", "share", lambda item: max(each.tail for each in item.timing.resources), csv="tail"),
    Metric("bytes", "B", lambda item: item.timing.moved_bytes, csv="moved_bytes"),
    Metric("gbps", "GB/s", lambda item: item.timing.gbps, section="rate", page="bandwidth", csv="gbps"),
    Metric("flops", "FLOP", lambda item: item.timing.flops, csv="flops"),
    Metric("tflops", "TFLOP/s", lambda item: item.timing.tflops, section="rate", page="arithmetic", csv="tflops"),
    *(Metric(each.name, "B" if each.in_bytes else "count", _counter_of(each.name), csv=each.name) for each in COUNTERS),
    Metric(
        "speedup",
        "x",
        lambda item: item.speedup and item.speedup.ratio,
        ends=lambda item: item.speedup and item.speedup.interval,
        header="Speedup",
        csv="speedup",
        junit=True,
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}
COLUMNS = tuple(metric.name for metric in METRICS if metric.header)
"""The metrics that have a column in the terminal."""
