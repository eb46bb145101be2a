"""The section on measurements in a failed test's report."""

import statistics
from collections.abc import Sequence

from pytest_gpubench.report.cells import interval_cell, kernel_lines, notes_of, speedup_text, time_cell
from pytest_gpubench.report.phases import phases_lines, region_lines
from pytest_gpubench.report.rows import Row, fold, reference_label, split
from pytest_gpubench.results.kernels import by_category, unmatched
from pytest_gpubench.results.model import Speedup, TestRecord, Timing
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import choose_time_unit, count, format_time, round_to_digits, safe_line
from pytest_gpubench.verdict.decision import judged_by


def report_section(record: TestRecord, said: str = "") -> str:
    """Return the section of a failed test's report: its measurements, then both arms of each comparison.

    said: the test's error, which the report shows too; a verdict that repeats it is left out where there is no number.

    Of a function measured very often, as under @given, one is shown: the last that fails the test, for hypothesis ends
    with the example it reports, and the last of all where none does.
    """
    alone, candidates = (fold(half, _last_failing) for half in split(record))
    lines = [line for row in alone for line in _measurement_lines(row, said)]
    lines += [line for row in candidates for line in _comparison_lines(row, said)]
    lines += [line for found in record.phases for line in phases_lines(found)]
    return "\n".join(map(safe_line, lines))


def _last_failing(rows: Sequence[Row]) -> Row:
    return next((row for row in reversed(rows) if _fails(row)), rows[-1])


def _fails(row: Row) -> bool:
    """Tell whether a verdict on a row fails its test, whatever INCONCLUSIVE does."""
    return any(each.fails_test for each in row.measurement.verdicts)


def _measurement_lines(row: Row, said: str) -> list[str]:
    timing = row.timing
    if not timing.measured and _is_told_why(row):
        return [f"{timing.label}: not measured{_which(row)}", *_unsaid_lines(row, said)]
    lines = [str(timing) + _which(row)]
    if timing.measured:
        clock = "" if timing.median_sm_clock_mhz is None else f"SM clock {_clock_text(timing)}; "
        lines.append(f"  {_spread_text(timing)}; {clock}{_flags_text(timing)}")
    return [*lines, *kernel_lines(timing), *region_lines(timing.regions), *_verdict_lines(row)]


def _comparison_lines(row: Row, said: str) -> list[str]:
    speedup = row.measurement.speedup
    against = f"{row.timing.label} against {reference_label(row) or 'its reference'}{_which(row)}: "
    if not row.timing.measured and row.reference is None and _is_told_why(row):
        return [f"{against}not measured", *_unsaid_lines(row, said)]
    if speedup is None:
        lines = [against + (row.timing.unmeasured or "no speedup")]
    else:
        lines = [f"{against}{speedup_text(speedup)} ({_judged_by(speedup)}, seed {speedup.seed})"]
    lines += _side_by_side(row.arms)
    for timing in row.arms:
        if timing.kernels:
            lines += [f"  kernels of {timing.label}:", *(f"  {line}" for line in kernel_lines(timing))]
    if row.reference is not None:
        lines += [f"  {sentence}" for sentence in unmatched(row.timing, row.reference)]
    lines += _overhead_lines(row)
    lines += [f"  {difference}" for difference in row.measurement.differences]
    return lines + _verdict_lines(row)


def _overhead_lines(row: Row) -> list[str]:
    found = row.measurement.overhead
    if found is None:
        return []
    host = "waits for the GPU" if found.host_us is None else f"takes the host {format_time(found.host_us)}"
    if found.graph_speedup is None:
        graph = f"a CUDA graph of it cannot be timed: {found.no_graph}"
    else:
        graph = f"on an idle GPU a CUDA graph of it is {found.graph_speedup:.2f}x as fast"
    return [
        f"  launching {found.label} {host}; the GPU waits for {format_time(found.gap_us)} of its "
        f"{format_time(found.span_us)}; {graph}"
    ]


def _side_by_side(arms: Sequence[Timing]) -> list[str]:
    """Return a column for each arm; lines that are empty for all are left out."""
    unit = choose_time_unit(arm.median_us for arm in arms if arm.measured)
    rows = [
        ("", [arm.label for arm in arms]),
        ("median", [f"{time_cell(arm.median_us, unit)} {unit}" if arm.measured else "-" for arm in arms]),
        ("95 %", [_interval_text(arm, unit) for arm in arms]),
        ("quartiles", [_range_text(arm.quartiles_us[::2], unit) if arm.measured else "-" for arm in arms]),
        ("min, max", [_range_text((arm.min_us, arm.max_us), unit) if arm.measured else "-" for arm in arms]),
        ("reps", [str(arm.reps) if arm.measured else "-" for arm in arms]),
        ("SM clock", [_clock_text(arm) for arm in arms]),
        ("cycles", ["-" if arm.median_cycles is None else f"{arm.median_cycles:,.0f}" for arm in arms]),
        ("GPU", [_state_text(arm) for arm in arms]),
        ("rate", [_rate_text(arm) for arm in arms]),
        ("kinds", [_categories_text(arm) for arm in arms]),
        ("timed", [f"{arm.cache}, {arm.timer}" for arm in arms]),
        ("notes", [_flags_text(arm) for arm in arms]),
    ]
    rows = [row for row in rows if any(text != "-" for text in row[1])]
    widths = [max(len(texts[index]) for _, texts in rows) for index in range(len(arms))]
    return [
        f"  {name:<9}  {'  '.join(text.ljust(width) for text, width in zip(texts, widths, strict=True))}".rstrip()
        for name, texts in rows
    ]


def _judged_by(speedup: Speedup) -> str:
    quads = count(speedup.quads, "quad")
    return judged_by(quads, speedup.alpha) if speedup.interval else quads


def _interval_text(timing: Timing, unit: str) -> str:
    interval = timing.median_interval_us if timing.measured else None
    return _range_text(interval, unit) if interval else "-"


def _range_text(ends_us: Sequence[float], unit: str) -> str:
    return f"{interval_cell(Interval(*ends_us), unit)} {unit}"


def _spread_text(timing: Timing) -> str:
    first, _, third = timing.quartiles_us
    return (
        f"min {format_time(timing.min_us)}, quartiles {format_time(first)} and {format_time(third)}, "
        f"max {format_time(timing.max_us)}"
    )


def _clock_text(timing: Timing) -> str:
    clock_mhz = timing.median_sm_clock_mhz
    return "-" if clock_mhz is None else f"{clock_mhz:.0f} MHz"


def _state_text(timing: Timing) -> str:
    parts = [f"up to {timing.max_temperature_c} C"] if timing.max_temperature_c is not None else []
    parts += [f"{statistics.median(timing.power_w):.0f} W"] if timing.power_w else []
    parts += [f"memory {statistics.median(timing.memory_clock_mhz):.0f} MHz"] if timing.memory_clock_mhz else []
    return ", ".join(parts) or "-"


def _rate_text(timing: Timing) -> str:
    if not timing.measured:
        return "-"
    rates = [(timing.gbps, "GB/s"), (timing.tflops, "TFLOP/s")]
    return ", ".join(f"{round_to_digits(rate, 4)} {unit}" for rate, unit in rates if rate is not None) or "-"


def _categories_text(timing: Timing) -> str:
    """Return a call's time by category of kernel; nothing for a single category."""
    shares = by_category(timing)
    return ", ".join(f"{each.name} {100 * each.share:.0f} %" for each in shares) if len(shares) > 1 else "-"


def _flags_text(timing: Timing) -> str:
    return ", ".join(notes_of(timing)) or ("nothing unusual" if timing.measured else "-")


def _is_told_why(row: Row) -> bool:
    return any((row.timing.unmeasured or "") in verdict.sentence for verdict in row.measurement.verdicts)


def _verdict_lines(row: Row) -> list[str]:
    return [f"  {verdict.outcome.value.upper()}: {verdict.sentence}" for verdict in row.measurement.verdicts]


def _unsaid_lines(row: Row, said: str) -> list[str]:
    return [line for line in _verdict_lines(row) if line.partition(": ")[2] not in said]


def _which(row: Row) -> str:
    last = "the last to fail, of" if _fails(row) else "the last of"
    return f" ({last} {row.hidden + 1})" if row.hidden else ""
