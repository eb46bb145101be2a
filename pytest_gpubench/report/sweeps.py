"""Sweeps: the measurements of a parametrised test along its parameters that are numbers or shapes."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_gpubench.metrics import BY_NAME, Metric
from pytest_gpubench.report.rows import all_rows, reference_label
from pytest_gpubench.results.baseline import function_of
from pytest_gpubench.results.model import Measurement, TestRecord
from pytest_gpubench.results.roofline import memory_gbps

SHAPE_TEXT = re.compile(r"(?:torch\.Size\()?[(\[]\s*(\d{1,18}(?:\s*,\s*\d{1,18})*)\s*,?\s*[)\]]\)?")
LARGEST_SIZE = 1e60
"""Numbers from which on, or as far below 1, a parameter is no size: products and ratios of sizes are finite."""
MEMORY_BOUND = 60
"""FLOP a byte above which arithmetic, not memory, bounds a call on the GPUs of today."""
LIMIT_OF_METRIC = {"median": "max_time_us", "gbps": "min_gbps", "tflops": "min_tflops", "speedup": "min_speedup"}
"""The limit on each metric that is drawn."""


class Series(NamedTuple):
    """One function along one parameter, all else the same."""

    label: str
    role: str
    """As that of its measurements: candidate, reference or empty."""
    reference: str
    """The function that a candidate is compared with; empty for none."""
    fixed: str
    """The other parameters: `dtype=float16, heads=8`."""
    occurrence: int
    """The number of measurements of the same function before it in the test."""

    @property
    def name(self) -> str:
        """Its function, and the other parameters."""
        return ", ".join(filter(None, (self.label, self.fixed)))


class SweepPoint(NamedTuple):
    """One measurement of a series."""

    x: float
    value: str
    """The parameter as the test was given it."""
    record: TestRecord
    measurement: Measurement


@dataclass(frozen=True)
class Sweep:
    """All functions of a test along one of its parameters, measured in one way on one device."""

    test: str
    """The test's node id without its parameters."""
    device: str
    timer: str
    cache: str
    param: str
    """The parameter; of several that change together, all."""
    axis: str
    """The meaning of the numbers along it: `n`, `shape[0]`, `m x n x k`; empty for places in the order of the run."""
    series: Mapping[Series, Sequence[SweepPoint]]
    """Each has at least two points, which ascend."""

    @property
    def points(self) -> list[SweepPoint]:
        """The points of all series."""
        return [point for points in self.series.values() for point in points]

    @property
    def values(self) -> dict[float, str]:
        """The parameter's values as the test was given them, by their place on the axis."""
        return {point.x: point.value for point in sorted(self.points, key=lambda point: point.x)}

    def peaks(self, metric: str) -> dict[str, float]:
        """Return this GPU's measured peaks of a rate, those of matmuls by dtype, memory's under no name.

        Memory's is the one at the size of the largest call.
        """
        known = [(point.record.peaks, point.measurement.timing.moved_bytes) for point in self.points]
        if metric == "gbps":
            rates = [memory_gbps(peaks, moved) for peaks, moved in known if peaks is not None and moved]
            return {"": min(filter(None, rates))} if any(rates) else {}
        matmuls = [each for peaks, _ in known if peaks is not None for each in peaks.matmul_tflops.items()]
        return dict(sorted(matmuls)) if metric == "tflops" else {}

    def limit(self, metric: str) -> float | None:
        """Return the number that all limits on a metric state; None without limits, or where they differ."""
        verdicts = [each for point in self.points for each in point.measurement.verdicts]
        found = {_number(each.asked) for each in verdicts if each.kind == LIMIT_OF_METRIC[metric]}
        return found.pop() if len(found) == 1 else None


class _Entry(NamedTuple):
    """A measurement that may be a point, of a function as `Series` names it."""

    record: TestRecord
    measurement: Measurement
    reference: str
    occurrence: int


def sweeps_of(records: Iterable[TestRecord]) -> list[Sweep]:
    """Return the sweeps of each parametrised test, the one with the most points first, in the order of the run."""
    groups: dict[tuple[str, str, str, str], list[_Entry]] = {}
    for record in {each.key: each for each in records}.values():  # a test that was run again replaces itself
        seen: Counter[tuple[str, str, str]] = Counter()
        for row in all_rows(record):
            item, timing = row.measurement, row.timing
            if timing.measured and not item.example and 0 < timing.median_us < math.inf:  # @given has its own figure
                key = timing.label, item.role, reference_label(row) or ""
                where = function_of(record.nodeid), record.device.name, timing.timer, timing.cache
                groups.setdefault(where, []).append(_Entry(record, item, key[2], seen[key]))
                seen[key] += 1
    return [sweep for where, entries in groups.items() for sweep in _sweeps(where, entries)]


def rate_metric(measurements: Iterable[Measurement]) -> Metric | None:
    """Return the rate that matters for most of the measurements; None where none is known."""
    timings = [item.timing for item in measurements if item.timing.measured]
    computes = [each for each in timings if each.flops and each.flops > MEMORY_BOUND * (each.moved_bytes or 0)]
    moves = [each for each in timings if each.moved_bytes]
    if not computes and not moves:
        return BY_NAME["tflops"] if any(each.flops for each in timings) else None
    return BY_NAME["tflops"] if 2 * len(computes) > len(timings) or not moves else BY_NAME["gbps"]


def _sweeps(where: tuple[str, str, str, str], entries: Sequence[_Entry]) -> list[Sweep]:
    """Return the sweeps over each parameter; over those that change together where none alone is in all points."""
    params = [entry.record.params for entry in entries]
    sizes = {name: None for each in params for name, text in each.items() if _sizes(text)}
    found = [_sweep(where, entries, (name,)) for name in sizes]
    if len(sizes) > 1 and not any(len(sweep.points) == len(entries) for sweep in found):
        scalars = [name for name in sizes if all(len(_sizes(each.get(name, ""))) == 1 for each in params)]
        changing = tuple(name for name in scalars if len({each[name] for each in params}) > 1)
        found += [_sweep(where, entries, changing)] if len(changing) > 1 else []
    return sorted((each for each in found if each.series), key=lambda each: (-len(each.points), -len(each.values)))


def _sweep(where: tuple[str, str, str, str], entries: Sequence[_Entry], names: tuple[str, ...]) -> Sweep:
    values: dict[str, tuple[float, ...]] = {}
    having = [entry for entry in entries if all(name in entry.record.params for name in names)]
    for entry in having:
        texts = [entry.record.params[name] for name in names]
        sizes = list(map(_sizes, texts))
        values["x".join(texts)] = tuple(number for each in sizes for number in each) if all(sizes) else ()
    rank = Counter(len(sizes) for sizes in values.values() if sizes).most_common(1)
    places, axis = _positions({text: each for text, each in values.items() if rank and len(each) == rank[0][0]}, names)
    series: dict[Series, dict[float, SweepPoint]] = {}
    for entry in having:
        value = "x".join(entry.record.params[name] for name in names)
        if value in places:
            point = SweepPoint(places[value], value, entry.record, entry.measurement)
            fixed = ", ".join(f"{name}={text}" for name, text in entry.record.params.items() if name not in names)
            item = entry.measurement
            key = Series(item.timing.label, item.role, entry.reference, fixed, entry.occurrence)
            series.setdefault(key, {})[point.x] = point
    kept = {each: [points[x] for x in sorted(points)] for each, points in series.items() if len(points) > 1}
    return Sweep(*where, param=" x ".join(names), axis=axis, series=kept)


def _positions(values: Mapping[str, Sequence[float]], names: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return the place of each value on the axis, and what the axis counts.

    Of a shape it is the dimension that changes; the product where several do; the place in the order of the run where
    products are the same.
    """
    columns = list(zip(*values.values(), strict=True))
    parts = names if len(names) == len(columns) else [f"{names[0]}[{index}]" for index in range(len(columns))]
    changing = {column: part for column, part in reversed([*zip(columns, parts, strict=True)]) if len(set(column)) > 1}
    if not changing:
        return {}, ""
    if len(changing) == 1:  # or several that are always the same
        ((column, axis),) = changing.items()
        return dict(zip(values, column, strict=True)), axis
    products = {text: math.prod(sizes) for text, sizes in values.items()}
    if len(set(products.values())) == len(products):
        return products, " x ".join(names) if len(names) > 1 else f"{names[0]}, elements"
    return {text: float(place) for place, text in enumerate(values, 1)}, ""


def _sizes(text: str) -> tuple[float, ...]:
    """Return a parameter as a number or the dimensions of a shape; empty where it is neither."""
    number, shape = _number(text), SHAPE_TEXT.fullmatch(text.strip())
    if shape is not None:
        return tuple(map(float, shape[1].split(",")))
    return () if number is None else (number,)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == 0 or 1 / LARGEST_SIZE < abs(number) < LARGEST_SIZE else None
