"""The lines around the table: what is measured with, and what was measured on what."""

from collections import Counter
from collections.abc import Sequence

from pytest_gpubench import __version__
from pytest_gpubench.report.remedies import remedy_lines
from pytest_gpubench.report.rows import Row
from pytest_gpubench.report.section import report_section as report_section
from pytest_gpubench.results.model import DeviceFacts, Outcome, TestRecord, Timing
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import count, format_bytes

CACHE_WORDS = {"cold": "cold L2", "dirty": "dirty L2", "hot": "hot L2"}
MOST_WARNINGS = 3
"""Warnings of one test that are shown: under @given there can be one for each example."""


def header_line(facts: DeviceFacts | None, settings: Settings, gpus: int = 1) -> str:
    """Return the line of pytest's header: version, device, driver, cache state, timer."""
    parts = [__version__]
    if facts is not None:
        parts.append(facts.name if gpus == 1 else f"{gpus} x {facts.name}")
        if facts.type == "cpu":
            parts.append("no GPU used: " + ("asked for" if settings.device == "cpu" else "none found"))
        if facts.driver:
            parts.append(f"driver {facts.driver}")
        if facts.nvml_error:
            parts.append(f"clocks and throttling not watched: {facts.nvml_error}")
    timer = "wall" if facts is not None and facts.type == "cpu" and settings.timer != "scripted" else settings.timer
    cache = CACHE_WORDS[settings.cache] if facts is None or facts.type == "cuda" else f"{settings.cache} cache"
    if settings.disable:
        return f"gpu_bench: {', '.join(parts)}, switched off"
    return f"gpu_bench: {', '.join([*parts, cache, timer])}"


def device_lines(facts: DeviceFacts) -> list[str]:
    """Return all that is known about a device, a line each."""
    known = {
        "name": facts.name,
        "host": facts.host,
        "UUID": facts.uuid,
        "compute capability": facts.compute_capability,
        "multiprocessors": facts.multiprocessors,
        "last-level cache": facts.cache_bytes and format_bytes(facts.cache_bytes),
        "memory": facts.memory_bytes and format_bytes(facts.memory_bytes),
        "driver": facts.driver,
        "CUDA (torch)": facts.cuda,
        "highest SM clock": facts.max_sm_clock_mhz and f"{facts.max_sm_clock_mhz} MHz",
        "highest memory clock": facts.max_memory_clock_mhz and f"{facts.max_memory_clock_mhz} MHz",
        "power cap": facts.power_limit_w and f"{facts.power_limit_w:g} W",
        "MIG": None if facts.mig is None else ("on" if facts.mig else "off"),
        "NVML": facts.nvml_error or ("usable" if facts.type == "cuda" else None),
    }
    return [f"{name}: {value}" for name, value in known.items() if value is not None]


def summary_lines(records: Sequence[TestRecord], settings: Settings) -> list[str]:
    """Return the lines that say what was measured on what, what was not, what to mind, and, last, the verdicts."""
    lines = [_measured_line(where, timings) for where, timings in _devices(records).items()]
    reasons = Counter(row.timing.unmeasured for record in records for row in _unmeasured(record))
    lines += [f"gpu_bench: not measured: {count(number, 'call')}, {reason}" for reason, number in reasons.items()]
    warnings = [text for record in records for text in _warnings(record)]
    lines += [f"gpu_bench: warning: {text}" for text in dict.fromkeys([*warnings, *remedy_lines(records)])]
    outcomes = Counter(
        (verdict.outcome, verdict.enforced)
        for record in records
        for measurement in record.measurements
        for verdict in measurement.verdicts
    )
    if outcomes:
        lines.append(f"gpu_bench: limits: {_outcome_words(outcomes, settings)}")
    return lines


def _unmeasured(record: TestRecord) -> list[Row]:
    """Return what was not meant to be measured: what should have been, and has no number, is judged INVALID."""
    rows = [Row(record, item) for item in record.measurements if item.timing.unmeasured]
    return [row for row in rows if not row.invalid]


def _warnings(record: TestRecord) -> list[str]:
    """Return a test's own warnings, the first few where it has very many."""
    texts = list(dict.fromkeys(record.warnings))
    more = [f"{len(texts) - MOST_WARNINGS} more like this"] if len(texts) > MOST_WARNINGS else []
    return [f"{record.nodeid}: {text}" for text in [*texts[:MOST_WARNINGS], *more]]


def _devices(records: Sequence[TestRecord]) -> dict[str, list[tuple[str, Timing]]]:
    """Return each device's timings, with their tests, in the order of the run."""
    devices: dict[str, list[tuple[str, Timing]]] = {}
    for record in records:
        where = f"{record.device.name} (GPU)" if record.device.type == "cuda" else f"the CPU, {record.device.name}"
        for item in record.measurements:
            if item.timing.measured:
                devices.setdefault(where, []).append((record.nodeid, item.timing))
    return devices


def _measured_line(where: str, timings: Sequence[tuple[str, Timing]]) -> str:
    tests = {nodeid for nodeid, _ in timings}
    ways = Counter(f"{timing.timer} timer, {timing.cache} cache" for _, timing in timings)
    how = "; ".join(f"{number} with {way}" if len(ways) > 1 else way for way, number in ways.items())
    seconds = sum(timing.elapsed_s for _, timing in timings)
    return (
        f"gpu_bench: {count(len(timings), 'measurement')} in {count(len(tests), 'test')} on {where}: "
        f"{how}; {seconds:.1f} s"
    )


def _outcome_words(outcomes: Counter[tuple[Outcome, bool]], settings: Settings) -> str:
    groups = []
    for enforced, suffix in ((True, ""), (False, " (not enforced: no GPU, CPU not asked for)")):
        words = [
            f"{outcomes[outcome, enforced]} {outcome.value}{_what_to_do(outcome, settings) if enforced else ''}"
            for outcome in Outcome
            if outcomes[outcome, enforced]
        ]
        if words:
            groups.append(", ".join(words) + suffix)
    return "; ".join(groups)


def _what_to_do(outcome: Outcome, settings: Settings) -> str:
    """Return what a verdict that decides nothing asks for."""
    if outcome is Outcome.INCONCLUSIVE:
        option = "--gpu-bench-max-time" if settings.reps is None else "--gpu-bench-reps"
        return f" (raise {option}, or look for what disturbs the {'CPU' if settings.device == 'cpu' else 'GPU'})"
    return " (no number that is known to be right)" if outcome is Outcome.INVALID else ""
