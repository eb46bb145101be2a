"""The rows of the tables: which measurements are shown, which of them are compared with which, and in what order."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_gpubench.metrics import BY_NAME
from pytest_gpubench.results.model import Measurement, Outcome, TestRecord, Timing, Verdict

MOST_ROWS_PER_FUNCTION = 8
"""Measurements of one function in one test that are shown without --gpu-bench-verbose; the worst is."""


FROM_BEST = (Outcome.PASS, Outcome.NOT_JUDGED, Outcome.INCONCLUSIVE, Outcome.FAIL, Outcome.INVALID)


@dataclass(frozen=True)
class Row:
    """One measurement, with its test and its reference."""

    record: TestRecord
    measurement: Measurement
    reference: Timing | None = None
    """The timing of a candidate's reference; None for a measurement without one."""
    hidden: int = 0
    """Better measurements of the same function in the same test that this row stands for."""
    usual: float | None = None
    """The median speedup of those that this row stands for, itself included; None where there are none."""
    best: float | None = None

    @property
    def timing(self) -> Timing:
        """The timing."""
        return self.measurement.timing

    @property
    def arms(self) -> list[Timing]:
        """The timing, and that of its reference where it has one."""
        return [self.timing] if self.reference is None else [self.timing, self.reference]

    @property
    def name(self) -> str:
        """The test's name, without its file."""
        return self.record.nodeid.split("::", 1)[-1]

    @property
    def shown(self) -> bool:
        """True if the row has numbers or is INVALID; no other row is printed."""
        return self.timing.measured or bool(self.measurement.why_invalid)


def split(record: TestRecord) -> tuple[list[Row], list[Row]]:
    """Return a test's measurements that belong to no comparison, and the candidates of its comparisons."""
    alone = [Row(record, item) for item in record.measurements if not item.role]
    candidates = []
    for index, item in enumerate(record.measurements):
        if item.role == "candidate":
            found = reference_index(record.measurements, index)
            candidates.append(Row(record, item, None if found is None else record.measurements[found].timing))
    return alone, candidates


def reference_index(measurements: Sequence[Measurement], index: int) -> int | None:
    """Return the index of a candidate's reference, the nearest before it; None if there is none."""
    candidate = measurements[index]
    for before in range(index - 1, -1, -1) if candidate.role == "candidate" else ():
        item = measurements[before]
        is_named = candidate.speedup is None or item.timing.label == candidate.speedup.reference
        if item.role == "reference" and item.example == candidate.example and is_named:
            return before
    return None


def rows_of(record: TestRecord) -> list[Row]:
    """Return the rows of a test: the worst of a function measured very often, and the references that were judged."""
    alone, candidates = split(record)
    references = [Row(record, item) for item in record.measurements if item.role == "reference" and item.verdicts]
    rows = [*fold(alone), *fold(candidates), *references]
    return [row for row in rows if row.shown or row.measurement.verdicts]


def verdicts_of(records: Iterable[TestRecord]) -> list[Verdict]:
    """Return the verdicts on tests; the examples of a search count as one."""
    return [verdict for record in records for row in rows_of(record) for verdict in row.measurement.verdicts]


def all_rows(record: TestRecord) -> list[Row]:
    """Return every measurement of a test, references too, in the order in which they were taken."""
    candidates = {id(row.measurement): row for row in split(record)[1]}
    return [candidates.get(id(item)) or Row(record, item) for item in record.measurements]


def fold(rows: Iterable[Row], pick: Callable[[Sequence[Row]], Row] | None = None) -> list[Row]:
    """Return the rows of a test, one row for a function that has very many or was called with examples.

    pick: chooses that row; None takes the worst.
    """
    functions: dict[tuple[str, str | None], list[Row]] = {}
    for row in rows:
        functions.setdefault((row.timing.label, reference_label(row)), []).append(row)
    kept = []
    for members in functions.values():
        of_examples = len(members) > 1 and all(row.measurement.example for row in members)
        if len(members) <= MOST_ROWS_PER_FUNCTION and not of_examples:
            kept += members
        else:
            kept.append(_stand_for(members, pick(members) if pick else max(members, key=badness)))
    return kept


def badness(row: Row) -> tuple[bool, int, float, float]:
    """Return the key that sorts rows of one function from best to worst: by the worst verdict, then by slowness.

    Slowness is against the reference, or by time. INVALID without a number is worst.
    """
    time_us = row.timing.median_us if row.timing.measured else math.inf
    without = math.inf if row.reference is not None else -math.inf
    slowness = without if row.measurement.speedup is None else -row.measurement.speedup.ratio
    return row.shown, _severity(row.measurement), slowness, time_us


def _severity(measurement: Measurement) -> int:
    return max((FROM_BEST.index(verdict.outcome) + 1 for verdict in measurement.verdicts), default=0)


def _stand_for(members: Sequence[Row], row: Row) -> Row:
    ratios = [each.measurement.speedup.ratio for each in members if each.measurement.speedup is not None]
    usual, best = (statistics.median(ratios), max(ratios)) if ratios else (None, None)
    return replace(row, hidden=len(members) - 1, usual=usual, best=best)


def reference_label(row: Row) -> str | None:
    """Return the name of a row's reference; None if it has none."""
    if row.measurement.speedup is not None:
        return row.measurement.speedup.reference
    return None if row.reference is None else row.reference.label


def group(rows: Sequence[Row], key: str) -> list[tuple[str, list[Row]]]:
    """Return titled groups of rows, in the order in which each group first appears."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_group_title(row, key), []).append(row)
    return list(groups.items())


def _group_title(row: Row, key: str) -> str:
    path, _, rest = row.record.nodeid.partition("::")
    name = rest.split("[", 1)[0]
    params = row.record.params
    if key == "param":
        return ", ".join(f"{name}={value}" for name, value in params.items()) or "no parameters"
    if key.startswith("param:"):
        wanted = key.removeprefix("param:")
        return f"{wanted}={params[wanted]}" if wanted in params else f"no parameter {wanted}"
    titles = {"file": path, "class": name.rpartition("::")[0] or path, "function": f"{path}::{name}"}
    return {**titles, "label": row.timing.label, "device": row.timing.device}.get(key, "")


def sort(rows: Sequence[Row], key: str) -> list[Row]:
    """Return the rows in the order asked for, those without numbers last; "none" leaves the order of the run."""
    if key == "none":
        return list(rows)
    if key == "name":
        return sorted(rows, key=lambda row: row.name)
    values = {id(row): BY_NAME[key].value(row.measurement) for row in rows}
    return sorted(rows, key=lambda row: (not row.timing.measured, values[id(row)] is None, values[id(row)] or 0.0))
