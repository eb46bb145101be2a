"""A test's numbers as JUnit properties."""

from pytest_gpubench.metrics import METRICS
from pytest_gpubench.report.rows import Row, all_rows, badness
from pytest_gpubench.results.model import Measurement, TestRecord
from pytest_gpubench.units import numbered, printable


def median_properties(record: TestRecord) -> list[tuple[str, object]]:
    """Return a test's medians, speedups and verdicts as JUnit properties: plain floats and texts, for xdist to carry.

    What is measured again under the same label has a number: `gpu_bench.softmax#2.median_us`.
    """
    worst: dict[object, Row] = {}  # of measurements under @given only that of each function
    for place, row in enumerate(all_rows(record)):
        key = row.timing.label if row.measurement.example else place
        worst[key] = max(worst.get(key, row), row, key=badness)
    kept = {id(row.measurement) for row in worst.values()}
    items = [item for item in record.measurements if id(item) in kept]
    told = [(item.timing.label, values) for item in items if (values := _values_of(item))]
    names = numbered((f"gpu_bench.{printable(label)}" for label, _ in told), "#")
    named = [(name, values.items()) for name, (_, values) in zip(names, told, strict=True)]
    return [(f"{name}.{key}", value) for name, items in named for key, value in items]


def _values_of(item: Measurement) -> dict[str, float | str]:
    values: dict[str, float | str] = {}
    for metric in METRICS:
        value, ends = metric.value(item), metric.interval(item)
        if metric.junit and value is not None:
            values[metric.csv] = _six_digits(value)
            if ends is not None and metric.unit != "us":
                values |= {f"{metric.csv}_low": _six_digits(ends.low), f"{metric.csv}_high": _six_digits(ends.high)}
    if (change := item.change) is not None:  # above 1 is slower
        values |= {"baseline": printable(change.baseline), "change_of": printable(change.metric)}
        values["change"] = _six_digits(change.ratio)
        if change.interval is not None:
            low, high = map(_six_digits, change.interval)
            values |= {"change_low": low, "change_high": high}
    if item.verdicts:
        values["verdict"] = max((each.outcome for each in item.verdicts), key=lambda outcome: outcome.badness).value
        reasons = dict.fromkeys(reason for each in item.verdicts for reason in each.reasons)
        values |= {"reasons": printable("; ".join(reasons))} if reasons else {}
    return values


def _six_digits(value: float) -> float:
    """Return a ratio with six digits, as a plain float: xdist carries no subclass of it."""
    return float(f"{value:.6g}")
