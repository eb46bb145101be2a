"""What is shown of the parts of a call: the table of phases, and a line for each region."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_gpubench.report.cells import interval_cell, time_cell
from pytest_gpubench.results.phases import OUTSIDE, Phase, Phases, Region
from pytest_gpubench.units import choose_time_unit, count, format_share, format_time, round_to_digits

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

RATE_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def print_phases(console: "Console", title: str, found: Phases, time_unit: str, max_name_width: int) -> None:
    """Write the table of one call of `phases`, and how their sum compares with the whole; nothing without numbers."""
    if not found.measured:
        return
    console.print(build(title, found, time_unit, max_name_width))
    if found.sentence:
        console.print(f"  {found.sentence}\n", markup=False, soft_wrap=True)


def build(title: str, found: Phases, time_unit: str, max_name_width: int) -> "Table":
    """Return the table of one call of `phases`; the unit "auto" is the one that fits its times."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    text = f"gpu_bench phases{': ' if title else ''}{title}"
    table = Table(title=Text(text, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
    head, *lines = cells(found, time_unit)
    for header in head:
        if header == head[0]:
            table.add_column(header, overflow="fold", max_width=max_name_width)
        else:
            table.add_column(header, justify="left" if header == "Flags" else "right", no_wrap=True)
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def cells(found: Phases, time_unit: str = "auto") -> list[list[str]]:
    """Return the headers, then a line for each phase, their sum where there are several, and the whole."""
    unit = time_unit
    if unit == "auto":
        unit = choose_time_unit(phase.median_us for phase in (*found.phases, *([found.whole] if found.whole else [])))
    lines = [["Phase", f"Median ({unit})", "95 % interval", "Share", "Elements/s", "Flags"]]
    lines += [phase_cells(phase, unit, format_share(phase.share, 3)) for phase in found.phases]
    if len(found.phases) > 1:
        times = [time_cell(found.sum_us, unit), interval_cell(found.sum_interval, unit)]
        lines.append(["sum of phases", *times, "100 %", rate_text(found.sum_elements_per_s), ""])
    if found.whole is not None:
        lines.append(phase_cells(found.whole, unit, "-"))
    kept = [index for index, header in enumerate(lines[0]) if has_any(found, header)]
    return [[line[index] for index in kept] for line in lines]


def phase_cells(phase: Phase, unit: str, share: str) -> list[str]:
    """Return what the table says of a phase."""
    times = [time_cell(phase.median_us, unit), interval_cell(phase.interval, unit)]
    return [phase.name, *times, share, rate_text(phase.elements_per_s), ", ".join(phase.flags)]


def has_any(found: Phases, header: str) -> bool:
    """Tell whether a column that may be empty has anything to show."""
    if header == "Elements/s":
        return found.elements is not None
    return header != "Flags" or any(phase.flags for phase in (*found.phases, *([found.whole] if found.whole else [])))


def rate_text(per_s: float | None) -> str:
    """Write a rate per second to four digits with its prefix; a dash for None."""
    if per_s is None:
        return "-"
    for scale, prefix in RATE_PREFIXES:
        if float(f"{per_s:.3e}") >= scale:
            return f"{round_to_digits(per_s / scale, 4)} {prefix}"
    return round_to_digits(per_s, 4)


def phases_lines(found: Phases) -> list[str]:
    """Return what a failed test's report says of its phases."""
    if not found.measured:
        return [f"phases of {found}"]
    lines = cells(found)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = [
        "  ".join(
            [line[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    ]
    timed = (
        f"phases of {found.title} ({count(found.rounds, 'round')}, {found.cache}, {found.timer}, seed {found.seed}):"
    )
    return [timed, *(f"  {row}".rstrip() for row in rows), *([f"  {found.sentence}"] if found.sentence else [])]


def region_lines(regions: Sequence[Region]) -> list[str]:
    """Return a line for each region of a call, indented by how it is nested, with its time and its share."""
    if not regions:
        return []
    names = [f"{'  ' * region.depth}{region.name}" for region in regions]
    width = max(map(len, names))
    lines = []
    for name, region in zip(names, regions, strict=True):
        calls = "" if region.path == OUTSIDE else f"  {region.calls} x"
        lines.append(f"  {name:<{width}}  {format_time(region.median_us):>10} {100 * region.share:5.1f} %{calls}")
    return ["  regions:", *(f"  {line}" for line in lines)]
