"""The parts of a call: the table of phases, and a line for each region."""

from collections.abc import Sequence

from pytest_gpubench.report.cells import interval_cell, time_cell
from pytest_gpubench.report.layout import Column, Screen, lay_out
from pytest_gpubench.results.phases import OUTSIDE, Phase, Phases, Region
from pytest_gpubench.units import choose_time_unit, format_decimal, format_share, format_time


def phases_block(title: str, found: Phases, time_unit: str, screen: Screen) -> str:
    """Return the table of one call of `phases`, and how the sum of its phases compares with the whole."""
    table = lay_out(title, _phase_columns(found, time_unit), screen)
    return "\n".join([table, *map(screen.encoded, screen.wrapped(found.sentence))])


def _phase_columns(found: Phases, time_unit: str) -> list[Column]:
    """Return the columns with a cell for each phase, their sum where there are several, and the whole."""
    timed = [*found.phases, *([found.whole] if found.whole else [])]
    unit = choose_time_unit(phase.median_us for phase in timed) if time_unit == "auto" else time_unit
    lines = [_phase_cells(phase, unit, format_share(phase.share, 3)) for phase in found.phases]
    if len(found.phases) > 1:
        times = [time_cell(found.sum_us, unit), interval_cell(found.sum_interval, unit)]
        lines.append(["sum of phases", *times, "100 %", rate_text(found.sum_elements_per_s), ""])
    if found.whole is not None:
        lines.append(_phase_cells(found.whole, unit, "-"))
    names, medians, intervals, shares, rates, flags = zip(*lines, strict=True)
    return [
        Column("Phase", names, least=16),
        Column(f"Median ({unit})", medians, right=True),
        Column("95 % interval", intervals, right=True, rank=2),
        Column("Share", shares, right=True),
        *([] if found.elements is None else [Column("Elements/s", rates, right=True, rank=3)]),
        *([Column("Flags", flags, rank=1)] if any(flags) else []),
    ]


def _phase_cells(phase: Phase, unit: str, share: str) -> list[str]:
    times = [time_cell(phase.median_us, unit), interval_cell(phase.interval, unit)]
    return [phase.name, *times, share, rate_text(phase.elements_per_s), ", ".join(phase.flags)]


def rate_text(per_s: float | None) -> str:
    """Write a rate per second to four digits with its prefix; a dash for None."""
    return "-" if per_s is None else format_decimal(per_s, "", digits=4).rstrip()


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
