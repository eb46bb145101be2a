"""Tables and lines of phases and regions."""

from typing import Any

import pytest
from msgspec.structs import replace

from pytest_gpubench import Measurement, Phases, Region
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.section import report_section
from pytest_gpubench.report.table import render
from pytest_gpubench.results.phases import Phase
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.summary import Interval
from tests.results.measured import record, timing

OUTSIDE = "(outside)"
ENCODER = Phase(name="encoder", median_us=30.004, interval=Interval(29.0, 31.0), share=0.75, elements_per_s=1e9 / 30)
DECODER = Phase(name="decoder", median_us=10.0, interval=None, share=0.25, elements_per_s=1e8, flags=("overlap",))
WHOLE = Phase(name="both", median_us=36.0, interval=Interval(35.5, 36.5), share=1.0, elements_per_s=1e9 / 36)
FOUND = Phases(
    title="both",
    timer="profiler",
    cache="cold",
    device="NVIDIA H200",
    phases=(ENCODER, DECODER),
    whole=WHOLE,
    sum_us=40.0,
    sum_interval=Interval(39.0, 41.0),
    sum_elements_per_s=2.5e7,
    ratio=1.111,
    ratio_interval=Interval(1.1, 1.12),
    rounds=20,
    seed=7,
    elements=1000,
)
PLAIN = Phases(
    title="one",
    timer="wall",
    cache="hot",
    device="CPU",
    phases=(Phase(name="one", median_us=1500.0, interval=None, share=1.0),),
    sum_us=1500.0,
    rounds=1,
)
NO_NUMBERS = Phases(title="both", timer="profiler", cache="cold", device="x", unmeasured="switched off")


def table_of(found: Phases, unit: Any = "us", width: int = 300) -> str:
    return render([record(phases=(found,))], Settings(time_unit=unit), Screen(width))


def test_the_table_has_a_title_and_a_sentence_that_fits() -> None:
    text = table_of(FOUND, "auto", 80)
    assert text.startswith("gpu_bench phases: ")
    assert " ".join(text.split()).endswith(
        f"the phases take 1.111x [1.100, 1.120] the time of both (40.00 us against 36.00 us): {FOUND.explanation}"
    )
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("unit", "median", "text"), [("auto", "Median (ms)", "1.500"), ("us", "Median (us)", "1500")])
def test_columns_and_lines_with_nothing_to_say_are_left_out(unit: str, median: str, text: str) -> None:
    _, head, _, *lines = table_of(PLAIN, unit).splitlines()
    assert head == f"Phase  {median}  95 % interval  Share"
    assert [line.split() for line in lines] == [["one", text, "-", "100", "%"]]


@pytest.mark.parametrize(
    ("width", "left"),
    [(71, "Elements/s  Flags"), (60, "95 % interval   Share  Flags"), (44, "Share  Flags"), (40, "Share")],
)
def test_a_narrow_screen_has_fewer_columns(width: int, left: str) -> None:
    _, head, *lines = table_of(FOUND, "us", width).splitlines()[:-1]
    assert head.endswith(left)
    assert max(map(len, (head, *lines))) <= width


def lines_of(found: Phases) -> list[str]:
    """Return the section of a failed test's report."""
    return report_section(record(phases=(found,))).splitlines()


def test_lines_of_a_failed_test() -> None:
    assert lines_of(FOUND) == [
        "phases of both (20 rounds, cold, profiler, seed 7):",
        "Phase          Median (us)   95 % interval   Share  Elements/s  Flags",
        "─" * 71,
        "encoder              30.00  [29.00, 31.00]  75.0 %     33.33 M",
        "decoder              10.00               -  25.0 %     100.0 M  overlap",
        "sum of phases        40.00  [39.00, 41.00]   100 %     25.00 M",
        "both                 36.00  [35.50, 36.50]       -     27.78 M",
        *Screen().wrapped(FOUND.sentence),
    ]
    assert lines_of(PLAIN)[0] == "phases of one (1 round, hot, wall, seed 0):"
    assert lines_of(NO_NUMBERS) == ["phases of both: not measured (switched off)"]


@pytest.mark.parametrize(
    ("per_s", "text"), [(None, "-"), (12.0, "12.00"), (999.96, "1.000 k"), (1.5e6, "1.500 M"), (5e19, "50000 P")]
)
def test_rates(per_s: float | None, text: str) -> None:
    found = replace(FOUND, phases=(replace(ENCODER, elements_per_s=per_s),), whole=None)
    line = table_of(found).splitlines()[3]
    assert line.removeprefix("encoder").split("%")[1].strip() == text


def region(path: str, calls: int, total_ns: int, share: float) -> Region:
    return Region(path=path, calls=calls, total_ns=(total_ns,), own_ns=(0,), share=share)


def test_regions_are_indented_as_they_are_nested() -> None:
    whole, part = region("forward", 1, 80_000, 0.8), region("forward/attention", 2, 60_000, 0.6)
    found = whole, part, region(OUTSIDE, 0, 20_000, 0.2)
    section = report_section(record(Measurement(timing=timing("step", 100.0, regions=found))))
    lines = section[section.index("  regions:") :].splitlines()
    assert lines == [
        "  regions:",
        "    forward        80.00 us  80.0 %  1 x",
        "      attention    60.00 us  60.0 %  2 x",
        "    (outside)      20.00 us  20.0 %",
    ]
    assert "regions:" not in report_section(record(Measurement(timing=timing("step", 100.0))))
