"""A test's numbers as JUnit properties."""

from collections import Counter

from pytest_gpubench.results.model import TestRecord


def median_properties(record: TestRecord) -> list[tuple[str, object]]:
    """Return a test's medians and speedups as JUnit properties: plain floats, which is what xdist can carry."""
    properties: list[tuple[str, object]] = []
    seen: Counter[str] = Counter()
    for item in record.measurements:
        if item.timing.measured:
            seen[item.timing.label] += 1
            number = f"#{seen[item.timing.label]}" if seen[item.timing.label] > 1 else ""
            name = f"gpu_bench.{item.timing.label}{number}"
            properties.append((f"{name}.median_us", round(item.timing.median_us, 4)))
            if item.speedup is not None:
                properties.append((f"{name}.speedup", float(f"{item.speedup.ratio:.6g}")))
    return properties
