"""Rooflines of the page: the calls whose bytes and operations are known, under what their device reaches at most."""

from collections.abc import Iterable, Sequence
from typing import Any

from pytest_gpubench.report.html.measured import page_numbers
from pytest_gpubench.report.html.numbers import five_digits
from pytest_gpubench.results.model import Measurement, Peaks, TestRecord
from pytest_gpubench.results.roofline import READS_MEMORY, memory_gbps

MOST_POINTS = 3000
"""Calls of one roofline that are drawn."""
ALIKE = 0.95
"""Dtypes whose matmuls reach this part of another's rate share its line."""


def roofline_contents(records: Sequence[TestRecord]) -> list[dict[str, Any]]:
    """Return the page's data for the roofline of each device; a point is its test's index, and its own in the test."""
    found = []
    for device in dict.fromkeys(record.device.name for record in records):
        here = [(index, record) for index, record in enumerate(records) if record.device.name == device]
        points = [
            (index, place)
            for index, record in here
            for place, item in enumerate(record.measurements)
            if has_place(item)
        ]
        if points:
            items = [records[index].measurements[place] for index, place in points]
            peaks = [record.peaks for _, record in here if record.peaks is not None]
            drawn = points[:MOST_POINTS]
            found.append({"device": device, **_roofs(peaks, items), "points": drawn, "more": len(points) - len(drawn)})
    return found


def has_place(item: Measurement) -> bool:
    """Tell whether a call has a place in a roofline: it reads memory, and its rates are known and can be true."""
    timing = item.timing
    if not timing.measured or item.why_invalid or timing.cache not in READS_MEMORY:
        return False
    return all(page_numbers(item, ("gbps", "tflops")).values())


def _roofs(peaks: Sequence[Peaks], items: Sequence[Measurement]) -> dict[str, Any]:
    """Return what memory moves for the largest of the calls, and matmuls by dtype; without peaks, the most of all."""
    largest = max(item.timing.moved_bytes or 0 for item in items)
    gbps = _largest(memory_gbps(each, largest) for each in peaks)
    dtypes = dict.fromkeys(name for each in peaks for name in each.matmul_tflops)
    rates = {name: max(each.matmul_tflops.get(name, 0.0) for each in peaks) for name in dtypes}
    if gbps is None:
        reached = _largest(item.timing.gbps for item in items), _largest(item.timing.tflops for item in items)
        return {"measured": False, "gbps": five_digits(reached[0]), "tflops": [("", five_digits(reached[1]))]}
    return {"measured": True, "gbps": five_digits(gbps), "tflops": _lines(rates)}


def _lines(rates: dict[str, float]) -> list[tuple[str, float | int | None]]:
    """Return the rates, the highest first, each with its dtypes: those that are nearly as fast are named beside it."""
    lines: list[tuple[list[str], float]] = []
    for name, rate in sorted(rates.items(), key=lambda each: -each[1]):
        if lines and rate >= ALIKE * lines[-1][1]:
            lines[-1][0].append(name)
        else:
            lines.append(([name], rate))
    return [(", ".join(names), five_digits(rate)) for names, rate in lines]


def _largest(rates: Iterable[float | None]) -> float | None:
    return max((rate for rate in rates if rate is not None), default=None)
