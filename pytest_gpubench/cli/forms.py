"""The forms in which `pytest-gpubench show` writes a saved run: for spreadsheets, pages and other tools."""

import csv
import io
import json
import math
from collections.abc import Callable
from typing import Any

from pytest_gpubench.cli.pytorch_v3 import pytorch_v3_text
from pytest_gpubench.metrics import METRICS
from pytest_gpubench.report.html.page import html_page
from pytest_gpubench.report.markdown import markdown_summary
from pytest_gpubench.results.model import Measurement, SavedRun, Speedup, TestRecord
from pytest_gpubench.results.store import encode_run
from pytest_gpubench.units import safe_line

FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters that begin a formula in a spreadsheet, in full width too."""

Cell = str | int | float | None


def _benchmark_text(run: SavedRun) -> str:
    """Return a run as pytest-benchmark's JSON, without the block that only this plugin reads."""
    content = json.loads(encode_run(run))
    content.pop("gpu_bench", None)
    return json.dumps(content, indent=1) + "\n"


def _json_text(run: SavedRun) -> str:
    """Return a run as a list with an object for each measurement: the columns of the CSV file, null for unknown."""
    rows = [_json_row(run, record, item) for record in run.records for item in record.measurements]
    return json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _json_row(run: SavedRun, record: TestRecord, item: Measurement) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in csv_row(run, record, item).items()
    }
    verdicts = [{"limit": one.limit, "outcome": one.outcome.value, "sentence": one.sentence} for one in item.verdicts]
    return row | {"params": record.params, "dirty": run.commit_info.dirty, "limits": verdicts}


def _csv_text(run: SavedRun) -> str:
    """Return a run as comma-separated values with a header: a line for each measurement, times in microseconds."""
    text = io.StringIO(newline="")
    rows = [csv_row(run, record, item) for record in run.records for item in record.measurements]
    writer = csv.DictWriter(text, rows[0] if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def cell(value: Cell) -> str | int | float:
    """Return a cell's content: text in one line, no formula to a spreadsheet; empty for unknown values."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if not isinstance(value, str):
        return value
    shown = safe_line(value)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA_STARTS) else shown


def csv_row(run: SavedRun, record: TestRecord, item: Measurement) -> dict[str, Cell]:
    """Return the line of a measurement, by column."""
    timing, commit, device = item.timing, run.commit_info, record.device
    return {
        "run": run.name,
        "datetime": run.datetime,
        "commit": commit.id,
        "dirty": None if commit.dirty is None else str(commit.dirty).lower(),
        "branch": commit.branch,
        "test": record.nodeid,
        "params": json.dumps(record.params, ensure_ascii=False) if record.params else None,
        "example": item.example,
        "function": timing.label,
        "role": item.role,
        "device": device.name,
        "device_uuid": device.uuid,
        "driver": device.driver,
        "host": device.host,
        "timer": timing.timer,
        "cache": timing.cache,
        "reps": timing.reps,
        **_metric_cells(item),
        **_speedup(item.speedup),
        "limits": "; ".join(f"{one.limit} {one.outcome.value}" for one in item.verdicts),
        "flags": ", ".join(timing.flags),
        "throttle_reasons": ", ".join(timing.throttle_reasons),
        "discarded": timing.discarded,
        "remeasured": timing.remeasured,
        "unmeasured": timing.unmeasured,
    }


def _metric_cells(item: Measurement) -> dict[str, Cell]:
    """Return every metric of the files, those with an interval with its ends: `median_us`, `median_low_us`."""
    found: dict[str, Cell] = {}
    for metric in METRICS:
        if metric.csv:
            found[metric.csv] = metric.value(item)
        if metric.csv and metric.ends:
            stem, unit = metric.csv.removesuffix("_us"), "_us" if metric.csv.endswith("_us") else ""
            low, high = metric.interval(item) or (None, None)
            found |= {f"{stem}_low{unit}": low, f"{stem}_high{unit}": high}
    return found


def _speedup(found: Speedup | None) -> dict[str, Cell]:
    names = ("quads", "alpha", "reference", "reference_us")
    return {name: None if found is None else getattr(found, name) for name in names}


FORMS: dict[str, tuple[Callable[[SavedRun], str], str]] = {
    "html": (html_page, "a page to look at in a browser"),
    "markdown": (markdown_summary, "a summary as Markdown"),
    "csv": (_csv_text, "a line for each measurement, for a spreadsheet"),
    "json": (_json_text, "the same as JSON"),
    "pytest-benchmark": (_benchmark_text, "pytest-benchmark's JSON"),
    "pytorch-v3": (pytorch_v3_text, "the records of PyTorch's benchmark database, schema v3,"),
}
"""By the name of the option: what makes the text, and what it is."""
