"""The part of a run's file in pytest-benchmark's form, for its tools and those of others."""

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from pytest_gpubench.results.model import Measurement, TestRecord, Timing
from pytest_gpubench.units import numbered

PYTEST_BENCHMARK = "5.3.1"
"""The version of pytest-benchmark whose form it is."""


def benchmark_entries(record: TestRecord) -> list[dict[str, Any]]:
    """Return pytest-benchmark's entry, in seconds, for each measurement that has samples."""
    head, bracket, parameters = record.nodeid.partition("[")
    name = head.rsplit("::", 1)[-1] + bracket + parameters
    return [
        {
            "group": None,
            "name": name + suffix,
            "fullname": record.nodeid + suffix,
            "params": record.params or None,
            "param": parameters.removesuffix("]") if bracket else None,
            "extra_info": record.extra_info,
            "options": _options(item.timing),
            "stats": sample_stats([sample / 1e6 for sample in item.timing.samples_us]),
        }
        for item, suffix in zip(record.measurements, _suffixes(record.measurements), strict=True)
        if item.timing.measured
    ]


def _suffixes(measurements: Sequence[Measurement]) -> list[str]:
    """Return a suffix for each measurement of a test: none for a single one, else its label, example and number."""
    if len(measurements) == 1 and not measurements[0].example:
        return [""]
    names = (f" {item.timing.label}" + (f" ({item.example})" if item.example else "") for item in measurements)
    return numbered(names, " #")


def _options(timing: Timing) -> dict[str, Any]:
    return {
        "timer": timing.timer,
        "cache": timing.cache,
        "device": timing.device,
        "min_rounds": timing.reps,
        "warmup": timing.warmup_calls > 0,
    }


def sample_stats(data: Sequence[float]) -> dict[str, Any]:
    """Return pytest-benchmark's statistics of samples, by its names and its definitions; at least one sample."""
    ordered, rounds, total = sorted(data), len(data), math.fsum(data)
    mean = total / rounds
    stddev = math.sqrt(math.fsum((sample - mean) ** 2 for sample in data) / (rounds - 1)) if rounds > 1 else 0
    q1, q3 = _quartiles(ordered)
    iqr = q3 - q1
    low, high = q1 - 1.5 * iqr, q3 + 1.5 * iqr
    iqr_outliers = _outside(ordered, low, high)
    stddev_outliers = _outside(ordered, mean - stddev, mean + stddev)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": rounds,
        "median": statistics.median(ordered),
        "iqr": iqr,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": iqr_outliers,
        "stddev_outliers": stddev_outliers,
        "outliers": f"{stddev_outliers};{iqr_outliers}",
        "ld15iqr": ordered[bisect_left(ordered, low)],
        "hd15iqr": ordered[bisect_right(ordered, high) - 1],
        "ops": rounds / total if total else 0,
        "total": total,
        "data": data,
        "iterations": 1,
    }


def _quartiles(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the outer quartiles: medians of the halves, of an odd number between those with and without the middle."""
    rounds = len(ordered)
    if rounds == 1:
        return ordered[0], ordered[0]
    if rounds % 2 == 0:
        return statistics.median(ordered[: rounds // 2]), statistics.median(ordered[rounds // 2 :])
    n = rounds // 4
    if rounds % 4 == 1:
        return (0.25 * ordered[n - 1] + 0.75 * ordered[n]), (0.75 * ordered[3 * n] + 0.25 * ordered[3 * n + 1])
    return (0.75 * ordered[n] + 0.25 * ordered[n + 1]), (0.25 * ordered[3 * n + 1] + 0.75 * ordered[3 * n + 2])


def _outside(ordered: Sequence[float], low: float, high: float) -> int:
    return bisect_left(ordered, low) + len(ordered) - bisect_right(ordered, high)
