"""What the page shows, as the one JSON block that its script reads."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pytest_gpubench.report.cells import notes_of
from pytest_gpubench.report.html.numbers import five_digits, longest_series, quantiles, rounded, thin
from pytest_gpubench.report.html.sizes import sizes_in
from pytest_gpubench.report.limits import shown_limit
from pytest_gpubench.report.rows import FROM_BEST, Row, fold, reference_index, split
from pytest_gpubench.results.counterpart import RunKey, by_run_key, keys_of
from pytest_gpubench.results.kernels import distinct_names
from pytest_gpubench.results.model import (
    CommitInfo,
    Measurement,
    Outcome,
    SavedRun,
    Speedup,
    TestRecord,
    Timing,
    Verdict,
    plain,
)
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.stats.trend import Point, size_that_matters
from pytest_gpubench.units import format_bytes, printable
from pytest_gpubench.verdict.regression import compare_measurements

MOST_OLDER_RUNS = 100
MOST_GONE = 200
MOST_KERNELS = 40
"""Kernels of one call that are listed; the shortest of more are left out."""
BASELINE_SAMPLES = 101
LONGEST_EXTRA = 2000
SHOWN_CHANGE = RegressionTolerance("speedup", margin=0.01)
"""Changes of less are not called changes, however certain they are."""
SHOWN_ALPHA = 0.001


@dataclass
class Interned:
    """Texts that come very often, each kept once."""

    texts: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """Return the number of a text."""
        return self.texts.setdefault(text, len(self.texts))


@dataclass(frozen=True)
class OlderRuns:
    """Measurements of the baseline and of the runs before this one, by what they are found again by."""

    baseline: Mapping[RunKey, Measurement] | None
    runs: Sequence[Mapping[RunKey, Measurement]]


def page_content(run: SavedRun, baseline: SavedRun | None, history: Sequence[SavedRun]) -> dict[str, Any]:
    """Return everything the page shows."""
    older = older_runs(run, history)
    past = OlderRuns(by_run_key(baseline) if baseline else None, [by_run_key(each) for each in older])
    longest = longest_series([len(values) for item in measurements_of(run) for values in series_of(item)])
    kernels = Interned()
    tests = [content_of_test(record, past, kernels, longest) for record in run.records]
    rows = [row for index, record in enumerate(run.records) for row in rows_of(index, record)]
    return {
        "title": " · ".join(filter(None, ["GPU benchmarks", run.name or short_commit(run.commit_info)])),
        "name": run.name,
        "datetime": run.datetime,
        "version": run.version,
        "facts": facts_of(run),
        "machine": pairs(run.machine_info),
        "settings": pairs(run.settings),
        "baseline": baseline and run_content(baseline),
        "foreign": foreign_devices(run, baseline),
        "gone": gone_tests(run, baseline),
        "runs": [run_content(each) for each in (*older, run)],
        "devices": sorted({record.device.name for record in run.records}),
        "kernels": [list(dict.fromkeys((short, name))) for name, short in distinct_names(kernels.texts).items()],
        "tests": tests,
        "rows": rows,
    }


def measurements_of(run: SavedRun) -> Iterator[Measurement]:
    """Iterate over all measurements of a run."""
    return (item for record in run.records for item in record.measurements)


def series_of(item: Measurement) -> tuple[Sequence[float], ...]:
    """Return what of a measurement is kept rep by rep."""
    return (item.timing.samples_us, item.timing.sm_clock_mhz, item.speedup.log_ratios if item.speedup else ())


# the run


def older_runs(run: SavedRun, history: Sequence[SavedRun]) -> list[SavedRun]:
    """Return the latest of the runs before this one, oldest first."""
    others = [each for each in history if (each.datetime, each.commit_info.id) != (run.datetime, run.commit_info.id)]
    return sorted(others, key=lambda each: each.datetime)[-MOST_OLDER_RUNS:]


def run_content(run: SavedRun) -> dict[str, Any]:
    """Return what a run is called by."""
    commit = run.commit_info
    return {
        "name": run.name,
        "when": run.datetime,
        "commit": short_commit(commit),
        "branch": commit.branch or "",
        "dirty": bool(commit.dirty),
        "drivers": sorted({record.device.driver for record in run.records if record.device.driver}),
    }


def short_commit(commit: CommitInfo) -> str:
    """Return the first digits of a commit; empty where none is known."""
    return (commit.id or "")[:9]


def facts_of(run: SavedRun) -> list[tuple[str, str]]:
    """Return what a reader wants to know of a run before any number."""
    devices = [record.device for record in run.records]
    timings = [item.timing for item in measurements_of(run)]
    facts = [
        ("Device", listed(device.name for device in devices)),
        ("Host", listed(device.host for device in devices)),
        ("Driver", listed(device.driver for device in devices)),
        ("CUDA", listed(device.cuda for device in devices)),
        ("Commit", commit_text(run.commit_info)),
        ("Timer", listed(timing.timer for timing in timings)),
        ("Cache", listed(timing.cache for timing in timings)),
    ]
    return [(name, text) for name, text in facts if text]


def listed(values: Iterable[str | None]) -> str:
    """Return what values there are, each once, in the order of first appearance."""
    return ", ".join(printable(value) for value in dict.fromkeys(values) if value)


def commit_text(commit: CommitInfo) -> str:
    """Return a commit with its branch, and whether files differed from it; why nothing is known where nothing is."""
    if not commit.id:
        return commit.error or ""
    return (
        short_commit(commit) + (f" on {commit.branch}" if commit.branch else "") + (", dirty" if commit.dirty else "")
    )


def pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return values as text, by name."""
    return [(str(name), shortened(as_text(value))) for name, value in values.items() if value not in (None, "")]


def as_text(value: Any) -> str:
    """Return a value as text, and what is not text as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(plain(value)).decode()


def shortened(text: str) -> str:
    """Return a text that is not too long to be shown."""
    return text if len(text) <= LONGEST_EXTRA else f"{text[:LONGEST_EXTRA]}…"


def gone_tests(run: SavedRun, baseline: SavedRun | None) -> list[str]:
    """Return the tests of the baseline that this run does not have."""
    here = {record.nodeid for record in run.records}
    return [record.nodeid for record in (baseline.records if baseline else ()) if record.nodeid not in here][:MOST_GONE]


def foreign_devices(run: SavedRun, baseline: SavedRun | None) -> list[str]:
    """Return the devices of this run of which the baseline knows nothing."""
    known = {record.device.name for record in baseline.records} if baseline else set()
    return sorted({record.device.name for record in run.records} - known) if baseline else []


# the rows of the table


def is_candidate(item: Measurement) -> bool:
    """Tell whether a measurement is compared with a reference."""
    return item.role == "candidate" or item.speedup is not None


def rows_of(index: int, record: TestRecord) -> list[dict[str, Any]]:
    """Return a test's rows of the table: of what was measured very often, the worst."""
    alone, candidates = split(record)
    rows = fold(alone) + fold(candidates)
    places = {id(item): place for place, item in enumerate(record.measurements)}
    references = {id(item): reference_place(record, places[id(item)]) for item in record.measurements}
    found = [row_content(index, row, places[id(row.measurement)], references[id(row.measurement)]) for row in rows]
    used = {row["item"] for row in found} | {place for place in references.values() if place is not None}
    judged = [item for item in record.measurements if item.role == "reference" and item.verdicts]
    found += [
        row_content(index, Row(record, item), place, None) for item in judged if (place := places[id(item)]) not in used
    ]
    return found or [{"test": index, "item": None, "more": 0, "status": "unmeasured", "soft": False}]


def reference_place(record: TestRecord, place: int) -> int | None:
    """Return where the reference of a measurement is; None for one that is compared with nothing."""
    return reference_index(record.measurements, place) if is_candidate(record.measurements[place]) else None


def row_content(index: int, row: Row, place: int, reference: int | None) -> dict[str, Any]:
    """Return a row: which measurement of which test, how many it stands for, and what came of it."""
    verdicts = list(row.measurement.verdicts)
    if reference is not None:
        verdicts += row.record.measurements[reference].verdicts
    status, soft = status_of(verdicts, row.timing)
    return {"test": index, "item": place, "more": row.hidden, "status": status, "soft": soft}


def status_of(verdicts: Sequence[Verdict], timing: Timing) -> tuple[str, bool]:
    """Return the worst outcome, and whether it is one that nobody enforces; what is enforced comes first."""
    if not verdicts:
        return ("measured" if timing.measured else "unmeasured"), False
    worst = max(verdicts, key=lambda verdict: (FROM_BEST.index(verdict.outcome), verdict.enforced))
    return worst.outcome.value, not worst.enforced and worst.outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE)


# the tests


def content_of_test(record: TestRecord, past: OlderRuns, kernels: Interned, longest: int) -> dict[str, Any]:
    """Return what the page shows of a test."""
    path, _, name = record.nodeid.partition("::")
    keys = keys_of(record.measurements)
    items = [
        item_content(record, index, (record.device.name, record.nodeid, key), past, kernels, longest)
        for index, key in enumerate(keys)
    ]
    sized = [item for item in record.measurements if item.example and item.timing.measured and item.role != "reference"]
    device = record.device
    return {
        "id": record.nodeid,
        "file": path if name else "",
        "name": name or path,
        "device": device.name,
        "facts": device_facts(record),
        "params": record.params,
        "warnings": record.warnings,
        "extra": pairs(record.extra_info),
        "size": size_that_matters([Point(sizes_in(item.example), item.timing.median_us) for item in sized]) or "",
        "items": items,
    }


def device_facts(record: TestRecord) -> list[tuple[str, str]]:
    """Return what is known of the device that a test ran on."""
    device, turn = record.device, record.turn
    numbers = [
        ("multiprocessors", device.multiprocessors, ""),
        ("highest SM clock", device.max_sm_clock_mhz, " MHz"),
        ("power limit", device.power_limit_w, " W"),
    ]
    sizes = [("L2 cache", device.cache_bytes), ("memory", device.memory_bytes)]
    facts = [("device", device.name), ("UUID", device.uuid), ("host", device.host), ("worker", record.worker)]
    facts += [("driver", device.driver), ("CUDA", device.cuda), ("compute capability", device.compute_capability)]
    facts += [(name, f"{value:g}{unit}") for name, value, unit in numbers if value is not None]
    facts += [(name, format_bytes(value)) for name, value in sizes if value is not None]
    facts += [("MIG", "yes")] if device.mig else []
    facts += [("NVML", device.nvml_error), ("source", record.source[:12])]
    facts += [("waited for the GPU", f"{turn.waited_s:.1f} s")] if turn else []
    return [(name, text) for name, text in facts if text]


def item_content(
    record: TestRecord, index: int, key: RunKey, past: OlderRuns, kernels: Interned, longest: int
) -> dict[str, Any]:
    """Return what the page shows of a measurement; what there is nothing to say of is left out."""
    item = record.measurements[index]
    content = {
        "label": item.timing.label,
        "role": item.role,
        "example": item.example,
        "sizes": sizes_in(item.example),
        "ref": reference_place(record, index),
        **timing_content(item.timing, kernels, longest),
        "speedup": item.speedup and speedup_content(item.speedup, longest),
        "verdicts": [verdict_content(verdict, item.timing) for verdict in item.verdicts],
        "differences": item.differences,
        "base": baseline_content(item, key, past, kernels),
        "past": past_content(key, past),
    }
    return {name: value for name, value in content.items() if value not in (None, "", [], (), {}, 0) or name == "ref"}


def timing_content(timing: Timing, kernels: Interned, longest: int) -> dict[str, Any]:
    """Return what the page shows of a timing."""
    about: dict[str, Any] = {"timer": timing.timer, "cache": timing.cache, "notes": notes_of(timing)}
    about |= {"why": timing.unmeasured}
    about |= {"throttled": timing.throttle_reasons, "bytes": timing.moved_bytes, "flops": timing.flops}
    if not timing.measured:
        return about
    samples, step = thin(timing.samples_us, longest)
    clocks, clock_step = thin(timing.sm_clock_mhz, longest)
    possible = timing.median_us > 0
    return about | {
        "reps": timing.reps,
        "median": five_digits(timing.median_us),
        "interval": timing.median_interval_us and rounded(timing.median_interval_us),
        "mean": five_digits(timing.mean_us),
        "min": five_digits(timing.min_us),
        "max": five_digits(timing.max_us),
        "quartiles": rounded(timing.quartiles_us),
        "rel_std": five_digits(timing.rel_std) if possible and all(map(math.isfinite, timing.samples_us)) else None,
        "busy": five_digits(timing.median_busy_us),
        "span": five_digits(timing.median_span_us),
        "gbps": five_digits(timing.gbps) if possible else None,
        "tflops": five_digits(timing.tflops) if possible else None,
        "warmup": timing.warmup_calls,
        "elapsed_s": five_digits(timing.elapsed_s),
        "samples": samples,
        "step": step,
        "clocks": clocks,
        "clock_step": clock_step,
        "clock": five_digits(timing.median_sm_clock_mhz),
        "kernels": kernel_content(timing, kernels),
        "launches": timing.launches,
    }


def kernel_content(timing: Timing, kernels: Interned) -> list[list[Any]]:
    """Return the kernels of a call, the longest first: name, kind, launches and microseconds of each."""
    ordered = sorted(timing.kernels, key=lambda kernel: -kernel.median_us)[:MOST_KERNELS]
    return [
        [kernels.number(kernel.name), kernel.kind, kernel.launches, five_digits(kernel.median_us)] for kernel in ordered
    ]


def speedup_content(speedup: Speedup, longest: int) -> dict[str, Any]:
    """Return what the page shows of a speedup."""
    logs, step = thin(speedup.log_ratios, longest)
    return {
        "ratio": five_digits(speedup.ratio),
        "interval": speedup.interval and rounded(speedup.interval),
        "reference": speedup.reference,
        "reference_us": five_digits(speedup.reference_us),
        "quads": speedup.quads,
        "alpha": speedup.alpha,
        "seed": str(speedup.seed),
        "ratios": [None if value is None else five_digits(math.exp(min(value, 700))) for value in logs],
        "step": step,
    }


def verdict_content(verdict: Verdict, timing: Timing) -> dict[str, Any]:
    """Return what the page shows of a verdict."""
    limit = shown_limit(verdict, timing)
    return {
        "limit": verdict.limit,
        "kind": limit.kind,
        "value": five_digits(limit.value),
        "text": limit.text,
        "outcome": verdict.outcome.value,
        "sentence": verdict.sentence,
        "enforced": verdict.enforced,
    }


# older runs


def baseline_content(item: Measurement, key: RunKey, past: OlderRuns, kernels: Interned) -> dict[str, Any] | None:
    """Return what the baseline says of a measurement; None where there is no baseline."""
    if past.baseline is None:
        return None
    old = past.baseline.get(key)
    if old is None:
        return None if item.example else {"new": True}  # every run has other examples
    content: dict[str, Any] = {}
    if old.timing.measured:
        content["change"] = change_content(old, item) if item.timing.measured else None
        interval = old.timing.median_interval_us
        content |= {"median": five_digits(old.timing.median_us), "interval": interval and rounded(interval)}
        content |= {"reps": old.timing.reps, "kernels": kernel_content(old.timing, kernels)}
        content["quantiles"] = [] if item.example else quantiles(old.timing.samples_us, BASELINE_SAMPLES)
        content["clock"] = five_digits(old.timing.median_sm_clock_mhz)
    if old.speedup is not None:
        interval = old.speedup.interval
        content |= {"ratio": five_digits(old.speedup.ratio), "ratio_interval": interval and rounded(interval)}
    return content


def change_content(old: Measurement, new: Measurement) -> dict[str, Any] | None:
    """Return how much slower a measurement is, and in a word whether that is certain; None without samples to tell."""
    judged = compare_measurements(old, new, SHOWN_CHANGE, SHOWN_ALPHA, "the baseline")
    change = judged.change
    if change is None:
        return None
    word = "slower" if judged.outcome is Outcome.FAIL else "faster" if judged.stale else ""
    interval = change.interval and rounded(change.interval)
    return {"ratio": five_digits(change.ratio), "interval": interval, "of": change.metric, "word": word}


def past_content(key: RunKey, past: OlderRuns) -> list[list[Any]]:
    """Return a measurement in older runs: the number of the run, median and interval, speedup and interval."""
    found = [(number, run[key]) for number, run in enumerate(past.runs) if key in run]
    return [[number, *past_numbers(old)] for number, old in found if old.timing.measured]


def past_numbers(old: Measurement) -> list[float | int | None]:
    """Return median and interval, speedup and interval of an older measurement."""
    ends = old.timing.median_interval_us or (None, None)
    numbers: list[float | None] = [old.timing.median_us, *ends]
    if old.speedup is not None:
        numbers += [old.speedup.ratio, *(old.speedup.interval or (None, None))]
    return [five_digits(value) for value in numbers]
