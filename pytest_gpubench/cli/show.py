"""`pytest-gpubench show`: a saved run, as pytest showed it at its end, or in a form for other tools."""

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pytest_gpubench.cli.arguments import RUN_HELP, add_output, add_storage
from pytest_gpubench.cli.output import has_colour, write, write_raw
from pytest_gpubench.cli.saved import find_path, matches, run_title, storage_of
from pytest_gpubench.errors import BadRequest
from pytest_gpubench.metrics import BY_NAME, METRICS
from pytest_gpubench.report.html.page import html_page
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.markdown import markdown_summary
from pytest_gpubench.report.sweeps import LIMIT_OF_METRIC
from pytest_gpubench.report.table import render
from pytest_gpubench.report.terminal import summary_lines
from pytest_gpubench.results.files import write_text
from pytest_gpubench.results.model import DeviceFacts, Measurement, SavedRun, TestRecord
from pytest_gpubench.results.store import encode_run, read_run
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import count, printable, safe_line
from pytest_gpubench.verdict.limits import number_for

ABOUT = "show a saved run as pytest did at its end, or write it for a spreadsheet, a page or another tool"
EXAMPLES = """show latest
show main --test softmax --verbose
show .gpu_benchmarks/NVIDIA-H200/0003_main.json --html page.html
show latest --markdown >> $GITHUB_STEP_SUMMARY
show main --csv run.csv --json run.json
show main --format pytorch-v3 > results/perf.json"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("which", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--verbose", action="store_true", help="all measurements, and their kernels")
    parser.add_argument("--test", metavar="PATTERN", help="only tests with this in their id; * and ? stand for others")
    for name, (_, what) in FORMS.items():
        help = f"write {what} to a file; without PATH, or with -, to standard output"
        add_output(parser, f"--{name}", may_be_standard=True, nargs="?", const="-", dest=name, help=help)
    parser.add_argument("--format", choices=FORMS, help="write one of these to standard output, as --FORMAT alone does")
    add_storage(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the tables of each run that is meant, or one run in the forms that are asked for; 0."""
    asked = [(name, path) for name in FORMS if (path := getattr(arguments, name)) is not None]
    asked += [(arguments.format, "-")] if arguments.format else []
    if not asked:
        settings, screen = Settings(verbose=arguments.verbose), Screen.current(has_colour())
        for path in storage_of(arguments).find(arguments.which):
            found = _select(read_run(path), arguments.test)
            table = render(found.records, settings, screen)
            lines = [line for each in summary_lines(found.records, settings) for line in screen.wrapped(each)]
            write("\n".join([printable(run_title(path, found)), "", *([table, ""] if table else []), *lines]))
        return 0
    found = _select(read_run(find_path(arguments.which, arguments)), arguments.test)
    for name, target in asked:
        text = FORMS[name][0](found)
        if target == "-":
            write_raw(text.rstrip("\n"))
        else:
            write_text(text, Path(target))
            print(safe_line(f"{target}: {count(len(found.records), 'test')} as {name}"), file=sys.stderr)
    return 0


def _select(run: SavedRun, pattern: str | None) -> SavedRun:
    """Return the run with only the tests that a pattern means; None means all. Raise BadRequest where it means none."""
    if pattern is None:
        return run
    kept = tuple(record for record in run.records if matches(record.nodeid, pattern))
    if not kept:
        raise BadRequest(f"no test of this run has {pattern!r} in its id")
    return msgspec.structs.replace(run, records=kept)


# the forms

FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters that begin a formula in a spreadsheet, in full width too."""

Cell = str | int | float | None
Fields = dict[str, Any]


def _benchmark_text(run: SavedRun) -> str:
    """Return a run as pytest-benchmark's JSON, without the block that only this plugin reads."""
    content = json.loads(encode_run(run))
    content.pop("gpu_bench", None)
    return json.dumps(content, indent=1) + "\n"


def _json_text(run: SavedRun) -> str:
    """Return a run as a list with an object for each measurement: the columns of the CSV file, null for unknown."""
    rows: list[Fields] = []
    for record in run.records:
        for item in record.measurements:
            row = {name: None if _is_unknown(value) else value for name, value in csv_row(run, record, item).items()}
            limits = [
                {"limit": one.limit, "outcome": one.outcome.value, "sentence": one.sentence} for one in item.verdicts
            ]
            rows.append({**row, "params": record.params, "dirty": run.commit_info.dirty, "limits": limits})
    return json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _is_unknown(value: Cell) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


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
    if not isinstance(value, str):
        return "" if value is None or _is_unknown(value) else value
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
        **{name: getattr(item.speedup, name, None) for name in ("quads", "alpha", "reference", "reference_us")},
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


# the records of PyTorch's benchmark database

PRODUCER = "pytest-gpubench"
DEPENDENCIES = {"pytorch": ("torch", "pytorch/pytorch"), "triton": ("triton", "triton-lang/triton")}
"""By its name in the database: a package, and its repository on GitHub."""
LARGEST_FLOAT32 = 3.4028234e38
"""Numbers are kept as Float32."""


def pytorch_v3_text(run: SavedRun) -> str:
    """Return a run as a JSON list of records, each a line, of the measurements that are not INVALID.

    Sources: pytorch/test-infra at 61a77570f454, `clickhouse_db_schema/benchmark.oss_ci_benchmark_v3/schema.sql` for the
    fields, `.github/scripts/upload_benchmark_results.py` for the file, and the queries of `torchci/clickhouse_queries`
    for what is in them. The upload adds `timestamp`, `repo`, `head_sha` and others, and keeps those that a record has
    already: for a pull request it means the branch's commit, and the run the merge of it. So none is written here.
    """
    records = (
        {**_about(run, record, item), "metric": metric}
        for record in run.records
        for item in record.measurements
        if item.timing.measured and not item.why_invalid
        for metric in _metrics(record, item)
    )
    return "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False, allow_nan=False) for each in records) + "\n]\n"


def _metrics(record: TestRecord, item: Measurement) -> Iterator[Fields]:
    """Return the metrics that limits are on, and all samples as tritonbench's `latency`, which is in ms."""
    median_us, *others = (_metric(name, record, item) for name in LIMIT_OF_METRIC)
    samples_ms = [round(sample_us / 1000, 9) for sample_us in item.timing.samples_us]
    about = {name: text for name, text in median_us["extra_info"].items() if name not in ("low", "high")}
    latency = {**median_us, "name": "latency", "benchmark_values": samples_ms, "extra_info": {**about, "unit": "ms"}}
    if "target_value" in latency:
        latency["target_value"] /= 1000
    for metric in (latency, median_us, *others):
        numbers = [*metric["benchmark_values"], metric.get("target_value", 0.0)]
        if all(number is not None and abs(number) <= LARGEST_FLOAT32 for number in numbers):
            yield metric


def _metric(name: str, record: TestRecord, item: Measurement) -> Fields:
    metric = BY_NAME[name]
    verdict = next((each for each in item.verdicts if each.kind == LIMIT_OF_METRIC[name]), None)
    target = verdict and number_for(verdict, item.timing)
    low, high = metric.interval(item) or (None, None)
    about = _known_texts(
        unit=metric.unit,
        low=low,
        high=high,
        limit=verdict and verdict.limit,
        outcome=verdict and verdict.outcome.value,
        input_shape=", ".join(f"{key}={value}" for key, value in record.params.items()),
    )
    found: Fields = {"name": metric.csv, "benchmark_values": [metric.value(item)]}
    return found | ({} if target is None else {"target_value": target}) | {"extra_info": about}


def _about(run: SavedRun, record: TestRecord, item: Measurement) -> Fields:
    """Return what the records of a measurement share: `model` is its test, `backend` its function."""
    timing, commit = item.timing, run.commit_info
    return {
        "benchmark": {
            "name": PRODUCER,
            "dtype": record.params.get("dtype", "").removeprefix("torch."),
            "extra_info": _known_texts(
                run=run.name,
                datetime=run.datetime,
                commit=commit.id,
                dirty=None if commit.dirty is None else str(commit.dirty).lower(),
                timer=timing.timer,
                cache=timing.cache,
                version=run.version,
            ),
        },
        "model": {
            "name": record.nodeid,
            "type": "kernel",
            "backend": timing.label,
            "origins": [PRODUCER],
            "extra_info": _known_texts(role=item.role, example=item.example, flags=", ".join(timing.flags)),
        },
        "inputs": {name: {"extra_info": {"value": value}} for name, value in record.params.items()},
        "dependencies": {
            name: {"repo": repo, "version": str(run.machine_info[package])}
            for name, (package, repo) in DEPENDENCIES.items()
            if run.machine_info.get(package)
        },
        "runners": [_runner(record.device, len(record.turn.gpus) if record.turn else 1)],
    }


def _runner(device: DeviceFacts, gpus: int) -> Fields:
    """Return a device by the names that test-infra's `gather_runners_info.py` gives it."""
    about = _known_texts(hostname=device.host, uuid=device.uuid, driver=device.driver, cuda_version=device.cuda)
    found = {"name": device.type, "type": device.name, "extra_info": about}
    if device.type == "cpu":
        return {**found, "cpu_info": device.name}
    memory_gb = (device.memory_bytes or 0) * gpus >> 30
    return {**found, "gpu_info": device.name, "gpu_count": gpus, "avail_gpu_mem_in_gb": memory_gb}


def _known_texts(**values: object) -> dict[str, str]:
    """Return what is known as text: `extra_info` has no other values."""
    return {name: str(value) for name, value in values.items() if value not in (None, "")}


FORMS: dict[str, tuple[Callable[[SavedRun], str], str]] = {
    "html": (html_page, "a page to look at in a browser"),
    "markdown": (markdown_summary, "a summary as Markdown"),
    "csv": (_csv_text, "a line for each measurement, for a spreadsheet"),
    "json": (_json_text, "the same as JSON"),
    "pytest-benchmark": (_benchmark_text, "pytest-benchmark's JSON"),
    "pytorch-v3": (pytorch_v3_text, "the records of PyTorch's benchmark database, schema v3,"),
}
"""By the name of the option: what makes the text, and what it is."""
