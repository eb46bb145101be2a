"""The page: its content as one JSON block for its script, in one file that loads nothing from anywhere."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pytest_gpubench.metrics import METRICS
from pytest_gpubench.report.crossover import faster_lines
from pytest_gpubench.report.facts import device_facts, run_facts
from pytest_gpubench.report.html import asset
from pytest_gpubench.report.html.history import OlderRuns, trend
from pytest_gpubench.report.html.measured import Measured, page_numbers
from pytest_gpubench.report.html.numbers import five_digits, sizes_in
from pytest_gpubench.report.plot.panels import is_log_axis, tones_of
from pytest_gpubench.report.rows import Row, fold, is_loose, reference_index, split
from pytest_gpubench.report.sweeps import LIMIT_OF_METRIC, Sweep, rate_metric, sweeps_of
from pytest_gpubench.results.counterpart import by_run_key
from pytest_gpubench.results.kernels import distinct_names
from pytest_gpubench.results.model import CommitInfo, Measurement, Peaks, SavedRun, TestRecord, plain, text_of
from pytest_gpubench.results.roofline import READS_MEMORY, memory_gbps
from pytest_gpubench.stats.changepoints import LEAST_SERIES
from pytest_gpubench.stats.trend import Point, size_that_matters
from pytest_gpubench.units import printable, shortened

MOST_GONE = 200
MOST_OLDER_RUNS = 100
LONGEST_EXTRA = 2000
MOST_POINTS = 3000
"""Calls of one roofline that are drawn."""
ALIKE = 0.95
"""Dtypes whose matmuls reach this part of another's rate share its line."""


def page_content(run: SavedRun, baseline: SavedRun | None, history: Sequence[SavedRun]) -> dict[str, Any]:
    """Return everything the page shows."""
    others = [each for each in history if (each.datetime, each.commit_info.id) != (run.datetime, run.commit_info.id)]
    older, before = sorted(others, key=lambda each: each.datetime)[-MOST_OLDER_RUNS:], baseline or run
    here = {record.nodeid for record in run.records}
    past = OlderRuns(by_run_key(baseline) if baseline else None, [by_run_key(each) for each in older])
    measured = Measured(run, past)
    tests = [_test_content(record, measured) for record in run.records]
    places = {id(one): (at, n) for at, record in enumerate(run.records) for n, one in enumerate(record.measurements)}
    facts = {name: ", ".join(map(printable, values)) for name, values in run_facts(run).items()}
    commit = run.commit_info
    branch, dirty = f" on {commit.branch}" if commit.branch else "", ", dirty" if commit.dirty else ""
    unknown = f"not known: {commit.error}" if commit.error else ""
    facts |= {"Commit": _short_commit(commit) + branch + dirty if commit.id else unknown}
    return {
        "title": " · ".join(filter(None, ["GPU benchmarks", run.name or _short_commit(run.commit_info)])),
        "name": run.name,
        "datetime": run.datetime,
        "version": run.version,
        "facts": [(name, text) for name, text in facts.items() if text],
        "machine": _texts_by_name(run.machine_info),
        "settings": _texts_by_name(run.settings),
        "baseline": baseline and _run_content(baseline),
        "foreign": sorted(_device_names(run) - _device_names(before)),
        "gone": [record.nodeid for record in before.records if record.nodeid not in here][:MOST_GONE],
        "runs": [_run_content(each) for each in (*older, run)],
        "trend": trend([item for test in tests for item in test["items"]], len(older)),
        "least_runs": LEAST_SERIES,
        "metrics": [(metric.name, metric.page, metric.unit) for metric in METRICS if metric.page],
        "devices": sorted(_device_names(run)),
        "kernels": [[*dict.fromkeys((short, name))] for name, short in distinct_names(measured.kernel_numbers).items()],
        "tests": tests,
        "sweeps": [_sweep_content(sweep, places) for sweep in sweeps_of(run.records)],
        "rooflines": roofline_contents(run.records),
        "rows": [row for index, record in enumerate(run.records) for row in _rows(index, record)],
    }


def _run_content(run: SavedRun) -> dict[str, Any]:
    commit = run.commit_info
    return {
        "name": run.name,
        "when": run.datetime,
        "commit": _short_commit(commit),
        "branch": commit.branch or "",
        "dirty": bool(commit.dirty),
        "drivers": sorted({record.device.driver for record in run.records if record.device.driver}),
    }


def _short_commit(commit: CommitInfo) -> str:
    return (commit.id or "")[:8]


def _texts_by_name(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    texts = {
        str(name): value if isinstance(value, str) else msgspec.json.encode(plain(value)).decode()
        for name, value in values.items()
        if value not in (None, "")
    }
    return [(name, shortened(text, LONGEST_EXTRA)) for name, text in texts.items()]


def _device_names(run: SavedRun) -> set[str]:
    return {record.device.name for record in run.records}


def _rows(index: int, record: TestRecord) -> Iterator[dict[str, Any]]:
    """Yield the rows of a test, one for a test without any."""
    places = {id(item): place for place, item in enumerate(record.measurements)}
    used = set()
    for row in [each for half in split(record) for each in fold(half)]:
        place = places[id(row.measurement)]
        reference = reference_index(record.measurements, place)
        used |= {place, reference}
        yield _row_content(index, row, place, reference)
    for place, item in enumerate(record.measurements):
        if item.role == "reference" and item.verdicts and place not in used:
            used.add(place)
            yield _row_content(index, Row(record, item), place, None)
    if not used:
        yield {"test": index, "item": None, "more": 0, "status": "unmeasured", "soft": False}


def _row_content(index: int, row: Row, place: int, reference: int | None) -> dict[str, Any]:
    """Return a row: a measurement of a test, how many others it stands for, and its worst outcome."""
    verdicts = list(row.measurement.verdicts)
    if reference is not None:
        verdicts += row.record.measurements[reference].verdicts
    found = {"test": index, "item": place, "more": row.hidden, "soft": False}
    if not verdicts:
        return found | {"status": "measured" if row.timing.measured else "unmeasured"}
    worst = max(verdicts, key=lambda verdict: (verdict.outcome.badness, verdict.enforced))
    return found | {"status": worst.outcome.value, "soft": is_loose(worst)}


def _test_content(record: TestRecord, measured: Measured) -> dict[str, Any]:
    path, _, name = record.nodeid.partition("::")
    points = [
        Point(sizes_in(item.example), item.timing.median_us)
        for item in record.measurements
        if item.example and item.timing.measured and item.role != "reference"
    ]
    references = [reference_index(record.measurements, place) for place in range(len(record.measurements))]
    facts = {
        "device": record.device.name,
        **device_facts(record.device),
        "worker": record.worker,
        "source": record.source[:12],
        "waited for its turn": f"{record.turn.waited_s:.1f} s" if record.turn else "",
    }
    return {
        "id": record.nodeid,
        "file": path if name else "",
        "name": name or path,
        "device": record.device.name,
        "facts": [(name, value) for name, value in facts.items() if value],
        "params": record.params,
        "warnings": record.warnings,
        "extra": _texts_by_name(record.extra_info),
        "rate": rate.name if (rate := rate_metric(record.measurements)) else "",
        "size": size_that_matters(points) or "",
        "items": [item | {"ref": at} for item, at in zip(measured.items(record), references, strict=True)],
    }


def _sweep_content(sweep: Sweep, places: dict[int, tuple[int, int]]) -> dict[str, Any]:
    """Return the page's data for a sweep; a point is its place, its test's index, and its own in the test."""
    rate, tones = rate_metric(point.measurement for point in sweep.points), tones_of(sweep)
    return {
        "test": sweep.test,
        "device": sweep.device,
        "way": f"{sweep.timer}, {sweep.cache}",
        "axis": sweep.axis or sweep.param,
        "log": is_log_axis(sweep),
        "ticks": [] if sweep.axis else list(sweep.values.items()),
        "rate": rate.name if rate else "",
        "peaks": [(name, five_digits(peak)) for name, peak in sweep.peaks(rate.name).items()] if rate else [],
        "limits": {metric: five_digits(sweep.limit(metric)) for metric in LIMIT_OF_METRIC},
        "faster": faster_lines(sweep),
        "more": len(sweep.series) - len(tones),
        "series": [
            {
                "name": series.name,
                "tone": tone,
                "points": [(point.x, *places[id(point.measurement)]) for point in sweep.series[series]],
            }
            for series, tone in tones.items()
        ],
    }


def roofline_contents(records: Sequence[TestRecord]) -> list[dict[str, Any]]:
    """Return the page's data for the roofline of each device; a point is its test's index, and its own in the test.

    Calls have one that read memory, and whose rates are known and can be true.
    """
    found = []
    for device in dict.fromkeys(record.device.name for record in records):
        here = [(index, record) for index, record in enumerate(records) if record.device.name == device]
        points, items = list[tuple[int, int]](), list[Measurement]()
        for index, record in here:
            for place, item in enumerate(record.measurements):
                is_valid = item.timing.measured and not item.why_invalid and item.timing.cache in READS_MEMORY
                if is_valid and all(page_numbers(item, ("gbps", "tflops")).values()):
                    points.append((index, place))
                    items.append(item)
        if points:
            peaks = [record.peaks for _, record in here if record.peaks is not None]
            drawn = points[:MOST_POINTS]
            found.append({"device": device, **_roofs(peaks, items), "points": drawn, "more": len(points) - len(drawn)})
    return found


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


SCRIPTS = ("elements", "chart", "rows", "front", "figures", "opened", "page")
"""In the order in which they need each other."""
POLICY = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""The content security policy, beside which one script runs and no other: nothing is loaded."""
PAGE_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="pytest-gpubench">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}
</style>
</head>
<body>
<noscript>This page shows its numbers with JavaScript, which is turned off.</noscript>
<div id="page"></div>
<script type="application/json" id="content">{content}</script>
<script>{script}</script>
</body>
</html>
"""


def html_page(run: SavedRun, baseline: SavedRun | None = None, history: Sequence[SavedRun] = ()) -> str:
    """Return one self-contained page that shows a run, to be written as UTF-8.

    baseline: the run that its measurements were compared with; None for none.
    history: older runs, in any order; this one may be among them.
    """
    content = page_content(run, baseline, history)
    script = '"use strict";\n(() => {\n' + "\n".join(asset(f"{name}.js") for name in SCRIPTS) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return PAGE_TEMPLATE.format(
        policy=f"default-src 'none'; script-src 'sha256-{digest}'; {POLICY}",
        title=html.escape(text_of(content["title"])),
        style=asset("style.css"),
        content=as_json(content),
        script=script,
    )


def as_json(content: dict[str, Any]) -> str:
    """Return content as JSON that no browser can take for markup, wherever in a page it stands."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
