"""The section on measurements in a failed test's report."""

import statistics
from collections.abc import Sequence

from pytest_gpubench.metrics import METRICS
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.rows import (
    Row,
    fold,
    kernel_lines,
    notes_of,
    phases_block,
    reference_label,
    region_lines,
    speedup_text,
    split,
)
from pytest_gpubench.results.model import Measurement, Overhead, TestRecord, Timing
from pytest_gpubench.units import choose_time_unit, count, format_time, safe_line
from pytest_gpubench.verdict.decision import judged_by
from pytest_gpubench.verdict.reasons import reasons

SIDE_BY_SIDE = tuple(dict.fromkeys(metric.section for metric in METRICS if metric.section))


def report_section(record: TestRecord, said: str = "", screen: Screen | None = None) -> str:
    """Return the section of a failed test's report: its measurements, then both arms of each comparison.

    said: the test's error, which the report shows too; a verdict that repeats it is left out.
    screen: what sentences and tables have to fit on; None leaves sentences whole.

    Of a function measured very often, as under @given, one is shown: the last that fails the test, for hypothesis ends
    with the example it reports, and the last of all where none does.
    """
    alone, candidates = (
        fold(half, lambda rows: next((row for row in reversed(rows) if _fails(row)), rows[-1]))
        for half in split(record)
    )
    lines = [line for row in alone for line in _measurement_lines(row, said)]
    lines += [line for row in candidates for line in _comparison_lines(row, said)]
    for found in record.phases:
        how = f"{count(found.rounds, 'round')}, {found.cache}, {found.timer}, seed {found.seed}"
        title = f"phases of {found.title} ({how}):"
        block = phases_block(title, found, "auto", screen or Screen()) if found.measured else f"phases of {found}"
        lines += block.split("\n")
    fitting = (screen.wrapped(line) if screen and isinstance(line, _Sentence) else [line] for line in lines)
    return "\n".join(safe_line(part) for parts in fitting for part in parts)


class _Sentence(str):
    """A line that may be broken between words."""


def _fails(row: Row) -> bool:
    """Tell whether a verdict on a row fails its test, whatever INCONCLUSIVE does."""
    return any(each.fails_test for each in row.measurement.verdicts)


def _measurement_lines(row: Row, said: str) -> list[str]:
    timing = row.timing
    if not timing.measured and _is_told_why(row):
        return [f"{timing.label}: not measured{_which(row)}", *_verdict_lines(row, said)]
    lines = [str(timing) + _which(row)]
    if timing.measured:
        clock = _metrics_told("SM clock", timing, "us")
        least, first, third, most = map(format_time, (timing.min_us, *timing.quartiles_us[::2], timing.max_us))
        spread = f"  min {least}, quartiles {first} and {third}, max {most}"
        parts = [spread, *([] if clock == "-" else [f"SM clock {clock}"]), _flags_text(timing)]
        lines.append(_Sentence("; ".join(parts)))
    return [*lines, *kernel_lines(timing), *region_lines(timing.regions), *_verdict_lines(row, said)]


def _comparison_lines(row: Row, said: str) -> list[str]:
    speedup = row.measurement.speedup
    against = f"{row.timing.label} against {reference_label(row) or 'its reference'}{_which(row)}: "
    if not row.timing.measured and _is_told_why(row):
        return [f"{against}not measured", *_verdict_lines(row, said)]
    if speedup is None:
        lines = [against + (row.timing.unmeasured or "no speedup")]
    else:
        quads = count(speedup.quads, "quad")
        judged = judged_by(quads, speedup.alpha) if speedup.interval else quads
        lines = [_Sentence(f"{against}{speedup_text(speedup)} ({judged}, seed {speedup.seed})")]
    lines += _side_by_side(row.arms)
    for timing in row.arms:
        if timing.kernels:
            lines += [f"  kernels of {timing.label}:", *(f"  {line}" for line in kernel_lines(timing))]
    if row.reference is not None and not any(verdict.reasons for verdict in row.measurement.verdicts):
        found = reasons(Measurement(timing=row.reference, role="reference"), row.measurement)
        lines += [_Sentence(f"  beside {row.reference.label}: {each}") for each in found]
    lines += [] if row.measurement.overhead is None else [_Sentence(_overhead_line(row.measurement.overhead))]
    lines += [_Sentence(f"  {difference}") for difference in row.measurement.differences]
    return lines + _verdict_lines(row, said)


def _overhead_line(found: Overhead) -> str:
    host = "waits for the GPU" if found.host_us is None else f"takes the host {format_time(found.host_us)}"
    if found.graph_speedup is None:
        graph = f"a CUDA graph of it cannot be timed: {found.no_graph}"
    else:
        graph = f"on an idle GPU a CUDA graph of it is {found.graph_speedup:.2f}x as fast"
    waits = f"the GPU waits for {format_time(found.gap_us)} of its {format_time(found.span_us)}"
    return f"  launching {found.label} {host}; {waits}; {graph}"


def _side_by_side(arms: Sequence[Timing]) -> list[str]:
    """Return a column for each arm; lines that are empty for all are left out."""
    unit = choose_time_unit(arm.median_us for arm in arms if arm.measured)
    rows = [
        ("", [arm.label for arm in arms]),
        *((name, [_metrics_told(name, arm, unit) for arm in arms]) for name in SIDE_BY_SIDE),
        ("GPU", [_state_text(arm) for arm in arms]),
        ("timed", [f"{arm.cache}, {arm.timer}" for arm in arms]),
        ("notes", [_flags_text(arm) for arm in arms]),
    ]
    rows = [row for row in rows if any(text != "-" for text in row[1])]
    widths = [max(len(texts[index]) for _, texts in rows) for index in range(len(arms))]
    return [
        f"  {name:<9}  {'  '.join(text.ljust(width) for text, width in zip(texts, widths, strict=True))}".rstrip()
        for name, texts in rows
    ]


def _metrics_told(name: str, timing: Timing, unit: str) -> str:
    item = Measurement(timing=timing)
    found = [(each, each.value(item)) for each in METRICS if each.section == name]
    return ", ".join(each.told(value, unit) for each, value in found if value is not None) or "-"


def _state_text(timing: Timing) -> str:
    parts = [f"up to {timing.max_temperature_c} C"] if timing.max_temperature_c is not None else []
    parts += [f"{statistics.median(timing.power_w):.0f} W"] if timing.power_w else []
    parts += [f"memory {statistics.median(timing.memory_clock_mhz):.0f} MHz"] if timing.memory_clock_mhz else []
    return ", ".join(parts) or "-"


def _flags_text(timing: Timing) -> str:
    return ", ".join(notes_of(timing)) or ("nothing unusual" if timing.measured else "-")


def _is_told_why(row: Row) -> bool:
    return any((row.timing.unmeasured or "") in verdict.sentence for verdict in row.measurement.verdicts)


def _verdict_lines(row: Row, said: str) -> list[str]:
    lines = list[str]()
    for verdict in row.measurement.verdicts:
        if verdict.sentence not in said:
            first, *others = verdict.lines
            told = [f"  {verdict.outcome.value.upper()}: {first}", *(f"    {each}" for each in others)]
            lines += map(_Sentence, told)
    return lines


def _which(row: Row) -> str:
    last = "the last to fail, of" if _fails(row) else "the last of"
    return f" ({last} {row.hidden + 1})" if row.hidden else ""
