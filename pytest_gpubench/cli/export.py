"""`pytest-gpubench export`: a saved run in the forms of other tools."""

import argparse
import csv
import io
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_gpubench.cli.saved import RUN_HELP, add_parser, add_storage, read_only_one
from pytest_gpubench.cli.written import write_form

if TYPE_CHECKING:
    from pytest_gpubench.results.model import Measurement, SavedRun, TestRecord

EXAMPLES = """export latest --format csv -o run.csv
export main --format markdown
export 3 --format pytest-benchmark -o benchmark.json"""
FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a spreadsheet takes for the beginning of a formula, in full width too."""

Cell = str | int | float | None


def add(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command to the parser of all."""
    parser = add_parser(commands, "export", "write a saved run for a spreadsheet, a page or another tool", EXAMPLES)
    parser.add_argument("which", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--format", required=True, choices=tuple(FORMATS), help="what to write")
    parser.add_argument("-o", "--output", metavar="PATH", help="the file to write (default: standard output)")
    add_storage(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the run in the form that is asked for, and say so where that is a file; 0."""
    _, found = read_only_one(arguments.which, arguments)
    write_form(FORMATS[arguments.format](found), arguments.output, found, arguments.format)
    return 0


def markdown_text(run: "SavedRun") -> str:
    """Return a run as Markdown."""
    from pytest_gpubench.report.markdown import markdown_summary

    return markdown_summary(run)


def benchmark_text(run: "SavedRun") -> str:
    """Return a run as pytest-benchmark's JSON, without the block that only this plugin reads."""
    from pytest_gpubench.results.store import encode_run

    content = json.loads(encode_run(run))
    content.pop("gpu_bench", None)
    return json.dumps(content, indent=1) + "\n"


def csv_text(run: "SavedRun") -> str:
    """Return a run as comma-separated values with a header: a line for each measurement, times in microseconds."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS])
    for record in run.records:
        for measurement in record.measurements:
            writer.writerow([cell(column(run, record, measurement)) for column in COLUMNS.values()])
    return text.getvalue()


def cell(value: Cell) -> str | int | float:
    """Return what a cell holds: text that a spreadsheet takes for no formula, and nothing for what is not known."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, str) and (value.lstrip().startswith(FORMULA_STARTS) or value[:1] in ("\t", "\r", "\n")):
        return f"'{value}"
    return value


Column = Callable[["SavedRun", "TestRecord", "Measurement"], Cell]


def of_run(value: "Callable[[SavedRun], Cell]") -> Column:
    """Return a column that says something of the run."""
    return lambda run, record, measurement: value(run)


def of_test(value: "Callable[[TestRecord], Cell]") -> Column:
    """Return a column that says something of the test."""
    return lambda run, record, measurement: value(record)


def of_measurement(value: "Callable[[Measurement], Cell]") -> Column:
    """Return a column that says something of the measurement."""
    return lambda run, record, measurement: value(measurement)


def of_samples(value: "Callable[[Measurement], Cell]") -> Column:
    """Return a column that is empty where there are no samples."""
    return lambda run, record, measurement: value(measurement) if measurement.timing.measured else None


def of_speedup(value: "Callable[[Any], Cell]") -> Column:
    """Return a column that is empty where there is no speedup."""
    return lambda run, record, measurement: None if measurement.speedup is None else value(measurement.speedup)


def end_of(interval: Any, end: int) -> float | None:
    """Return an end of an interval; None where there is none."""
    return None if interval is None else interval[end]


COLUMNS: dict[str, Column] = {
    "run": of_run(lambda run: run.name),
    "datetime": of_run(lambda run: run.datetime),
    "commit": of_run(lambda run: run.commit_info.id),
    "dirty": of_run(lambda run: None if run.commit_info.dirty is None else str(run.commit_info.dirty).lower()),
    "branch": of_run(lambda run: run.commit_info.branch),
    "test": of_test(lambda record: record.nodeid),
    "params": of_test(lambda record: json.dumps(record.params, ensure_ascii=False) if record.params else None),
    "example": of_measurement(lambda item: item.example),
    "function": of_measurement(lambda item: item.timing.label),
    "role": of_measurement(lambda item: item.role),
    "device": of_test(lambda record: record.device.name),
    "device_uuid": of_test(lambda record: record.device.uuid),
    "driver": of_test(lambda record: record.device.driver),
    "host": of_test(lambda record: record.device.host),
    "timer": of_measurement(lambda item: item.timing.timer),
    "cache": of_measurement(lambda item: item.timing.cache),
    "reps": of_measurement(lambda item: item.timing.reps),
    "median_us": of_samples(lambda item: item.timing.median_us),
    "median_low_us": of_samples(lambda item: end_of(item.timing.median_interval_us, 0)),
    "median_high_us": of_samples(lambda item: end_of(item.timing.median_interval_us, 1)),
    "mean_us": of_samples(lambda item: item.timing.mean_us),
    "std_us": of_samples(lambda item: item.timing.std_us),
    "rel_std": of_samples(lambda item: item.timing.rel_std),
    "min_us": of_samples(lambda item: item.timing.min_us),
    "q1_us": of_samples(lambda item: item.timing.quartiles_us[0]),
    "q3_us": of_samples(lambda item: item.timing.quartiles_us[2]),
    "max_us": of_samples(lambda item: item.timing.max_us),
    "busy_us": of_measurement(lambda item: item.timing.median_busy_us),
    "span_us": of_measurement(lambda item: item.timing.median_span_us),
    "sm_clock_mhz": of_measurement(lambda item: item.timing.median_sm_clock_mhz),
    "launches": of_measurement(lambda item: item.timing.launches or None),
    "moved_bytes": of_measurement(lambda item: item.timing.moved_bytes),
    "gbps": of_samples(lambda item: item.timing.gbps),
    "flops": of_measurement(lambda item: item.timing.flops),
    "tflops": of_samples(lambda item: item.timing.tflops),
    "speedup": of_speedup(lambda found: found.ratio),
    "speedup_low": of_speedup(lambda found: end_of(found.interval, 0)),
    "speedup_high": of_speedup(lambda found: end_of(found.interval, 1)),
    "quads": of_speedup(lambda found: found.quads),
    "alpha": of_speedup(lambda found: found.alpha),
    "reference": of_speedup(lambda found: found.reference),
    "reference_us": of_speedup(lambda found: found.reference_us),
    "limits": of_measurement(lambda item: "; ".join(f"{one.limit} {one.outcome.value}" for one in item.verdicts)),
    "flags": of_measurement(lambda item: ", ".join(item.timing.flags)),
    "throttle_reasons": of_measurement(lambda item: ", ".join(item.timing.throttle_reasons)),
    "discarded": of_measurement(lambda item: item.timing.discarded),
    "remeasured": of_measurement(lambda item: item.timing.remeasured),
    "unmeasured": of_measurement(lambda item: item.timing.unmeasured),
}
FORMATS: dict[str, Callable[["SavedRun"], str]] = {
    "csv": csv_text,
    "markdown": markdown_text,
    "pytest-benchmark": benchmark_text,
}
