"""The two tables: which measurement is where, and that the printed numbers are the stored ones."""

import itertools
import re

import msgspec
import pytest

from pytest_gpubench.report.rows import MOST_ROWS_PER_FUNCTION
from pytest_gpubench.report.table import render
from pytest_gpubench.results.model import Measurement, Outcome, PastChange, TestRecord
from pytest_gpubench.results.phases import Region
from pytest_gpubench.settings import SORT_KEYS, Settings
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import MICROSECONDS_PER_UNIT
from tests.report.records import arms, record, timing, unmeasured, verdict

PASS = verdict("min_speedup=1.5", Outcome.PASS)


def tables(*records: TestRecord, **settings: object) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each table by its title, cells by column; lines of one cell are joined by a bar."""
    lines = render(records, Settings(**settings), color=False).splitlines()  # type: ignore[arg-type]
    rules = [index for index, line in enumerate(lines) if line.strip().startswith("───")]
    return {lines[index - 3].strip(): rows_of(lines[index + 1 :], lines[index - 1]) for index in rules}


def rows_of(lines: list[str], header: str) -> list[dict[str, str]]:
    """Return the rows below a header, up to an empty line."""
    rows: list[dict[str, str]] = []
    for line in itertools.takewhile(str.strip, lines):
        found = split_at_gaps(line, header, re.split(r"\s{2,}", header.strip()))
        if found.get("Variant") or found.get("Function"):
            rows.append(found)
        else:
            rows[-1] = {name: text + (f"|{found[name]}" if found[name] else "") for name, text in rows[-1].items()}
    return rows


def split_at_gaps(line: str, header: str, names: list[str]) -> dict[str, str]:
    """Return a line's cells by the header that each overlaps, or is nearest to."""
    spans = {name: (header.index(name), header.index(name) + len(name)) for name in names}
    found = dict.fromkeys(names, "")
    for match in re.finditer(r"\S+(?: \S+)*", line):
        overlap = {name: min(end, match.end()) - max(start, match.start()) for name, (start, end) in spans.items()}
        found[max(overlap, key=lambda name: overlap[name])] = match.group()
    return found


def numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"\d+\.?\d*", text)]


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s"])
@pytest.mark.parametrize("roles", [True, False])
def test_the_printed_numbers_of_a_comparison_are_the_stored_ones(unit: str, roles: bool) -> None:
    candidate, reference = timing("fused", 12.3456), timing("eager", 34.5678)
    measured = arms(candidate, reference, PASS, verdict("max_time_us=12", Outcome.FAIL), roles=roles, quads=40)
    found = tables(record(*measured), time_unit=unit)
    assert list(found) == ["gpu_bench comparisons"]
    [row] = found["gpu_bench comparisons"]
    scale = MICROSECONDS_PER_UNIT[unit]
    interval, speedup = candidate.median_interval_us, measured[1].speedup
    assert interval is not None
    assert speedup is not None
    assert speedup.interval is not None
    assert numbers(row[f"Time ({unit})"]) == pytest.approx([x / scale for x in (12.3456, *interval)], rel=5e-4)
    assert numbers(row[f"Reference ({unit})"]) == pytest.approx([34.5678 / scale], rel=5e-4)
    assert row[f"Reference ({unit})"].endswith(" eager")
    assert numbers(row["Speedup"]) == pytest.approx([speedup.ratio, *speedup.interval], rel=5e-4)
    assert (row["Test"], row["Variant"], row["Quads"]) == ("test_it", "fused", "40")
    assert (row["Limit"], row["Verdict"]) == ("min_speedup=1.5|max_time_us=12", "PASS|FAIL")


def test_the_unit_fits_both_arms() -> None:
    [row] = tables(record(*arms(timing("fast", 900.0), timing("slow", 1500.0))))["gpu_bench comparisons"]
    assert (row["Reference (ms)"], row["Time (ms)"][:5], row["Speedup"][:6]) == ("1.500 slow", "0.900", "1.667x")
    assert not {"Limit", "Verdict", "Flags"} & set(row)


def test_each_measurement_is_in_one_table_and_all_are_in_the_first_if_verbose() -> None:
    alone = Measurement(timing=timing("alone", 5.0))
    twin = Measurement(timing=timing("eager", 21.0))  # of the reference's name, but measured for itself
    first, second = arms(timing("a", 10.0), timing("eager", 20.0)), arms(timing("b", 40.0), timing("eager", 22.0))
    for roles in (True, False):
        first, second = (
            arms(candidate.timing, reference.timing, roles=roles) for reference, candidate in (first, second)
        )
        whole = record(alone, *first, twin, *second)
        found = tables(whole)
        assert list(found) == ["gpu_bench", "gpu_bench comparisons"]
        assert [row["Median (us)"] for row in found["gpu_bench"]] == ["5.000", "21.00"]
        assert [row["Reference (us)"] for row in found["gpu_bench comparisons"]] == ["20.00 eager", "22.00 eager"]
        assert "Speedup" not in found["gpu_bench"][0]
        text = render([whole], Settings(verbose=True), color=False)
        assert [text.count(f"{name}_kernel") for name in ("alone", "eager", "a", "b")] == [1, 3, 1, 1]
        assert "gpu_bench comparisons" in text


def test_a_measurement_of_another_time_is_not_taken_for_a_reference() -> None:
    candidate = arms(timing("a", 10.0), timing("eager", 20.0), roles=False)[1]
    found = tables(record(Measurement(timing=timing("eager", 21.0)), candidate))
    assert [row["Median (us)"] for row in found["gpu_bench"]] == ["21.00"]
    assert [row["Reference (us)"] for row in found["gpu_bench comparisons"]] == ["20.00 eager"]


def test_candidates_of_one_comparison_share_their_reference() -> None:
    reference, first = arms(timing("a", 10.0), timing("eager", 20.0, flags=("throttled",)), PASS)
    second = arms(timing("b", 40.0, discarded=2), reference.timing)[1]
    rows = tables(record(reference, first, second))["gpu_bench comparisons"]
    assert [row["Test"] for row in rows] == ["test_it", ""]
    assert [row["Flags"] for row in rows] == ["reference throttled", "2 discarded, reference throttled"]
    assert [row["Verdict"] for row in rows] == ["PASS", ""]


@pytest.mark.parametrize("times", [MOST_ROWS_PER_FUNCTION, MOST_ROWS_PER_FUNCTION + 1])
def test_of_very_many_comparisons_the_worst_is_shown(times: int) -> None:
    """The worst is the least speedup, which is not that of the longest time."""
    pairs = [arms(timing("mine", 10.0 * step), timing("eager", 20.0 * step + step % 4)) for step in range(1, times + 1)]
    whole = record(*(item for pair in pairs for item in pair))
    rows = tables(whole)["gpu_bench comparisons"]
    if times == MOST_ROWS_PER_FUNCTION:
        assert len(rows) == times
    else:
        assert [row["Variant"].partition(",")[0] for row in rows] == [f"mine (worst of {times}"]
        assert rows[0]["Speedup"].startswith("2.000x")
        assert rows[0]["Reference (us)"] == "80.00 eager"
    assert len(tables(whole, verbose=True)["gpu_bench comparisons"]) == times


def test_what_is_invalid_is_shown_without_numbers_and_what_was_not_meant_to_be_measured_is_not() -> None:
    invalid = arms(unmeasured("b", "too fast"), timing("eager", 20.0), verdict("min_speedup=2", Outcome.INVALID))
    skipped = arms(unmeasured("c", "switched off"), unmeasured("eager", "switched off"))
    many = [item for _ in range(9) for item in arms(timing("b", 10.0), timing("eager", 20.0))]
    [row] = tables(record(*invalid, *skipped))["gpu_bench comparisons"]
    found = [row[name] for name in ("Variant", "Time (us)", "Reference (us)", "Speedup", "Limit", "Quads", "Verdict")]
    assert found == ["b", "-", "20.00 eager", "-", "min_speedup=2", "-", "INVALID"]
    [row] = tables(record(*many, *invalid))["gpu_bench comparisons"]
    assert (row["Variant"].partition(",")[0], row["Verdict"]) == ("b (worst of 10", "INVALID")
    assert render([record(*skipped)], Settings(), color=False) == ""
    alone = Measurement(timing=unmeasured("d", "too fast"), verdicts=(verdict("max_time_us=1", Outcome.INVALID),))
    for key in SORT_KEYS:
        rows = tables(record(alone, *invalid, Measurement(timing=timing("e", 1.0))), sort=key)
        assert [(row["Function"], row["Median (us)"]) for row in rows["gpu_bench"]] in (
            [("d", "-"), ("e", "1.000")],
            [("e", "1.000"), ("d", "-")],
        )
        assert (rows["gpu_bench"][-1]["Function"] == "d") == (key not in ("none", "name"))


def test_without_enough_samples_there_is_no_interval() -> None:
    candidate = timing("few", 10.0, samples_us=(10.0,) * 5)
    [row] = tables(record(*arms(candidate, timing("eager", 20.0), interval=False, quads=3)))["gpu_bench comparisons"]
    assert (row["Time (us)"], row["Speedup"], row["Quads"]) == ("10.00", "2.000x", "3")


def test_sorting_and_grouping_hold_for_comparisons() -> None:
    slow = record(*arms(timing("a", 30.0), timing("eager", 20.0)), nodeid="test_a.py::test_a", params={"n": "1"})
    fast = record(*arms(timing("b", 10.0), timing("eager", 20.0)), nodeid="test_b.py::test_b", params={"n": "2"})
    orders = {
        key: [row["Variant"] for row in tables(slow, fast, sort=key)["gpu_bench comparisons"]] for key in SORT_KEYS
    }
    assert orders["none"] == orders["name"] == ["a", "b"]
    assert orders["median"] == orders["min"] == orders["max"] == ["b", "a"]
    assert [row["Test"] for row in tables(slow, fast)["gpu_bench comparisons"]] == [
        "test_a.py::test_a",
        "test_b.py::test_b",
    ]
    for key, titles in {
        "param:n": ["n=1", "n=2"],
        "label": ["a", "b"],
        "function": ["test_a.py::test_a", "test_b.py::test_b"],
        "device": ["NVIDIA H200"],
    }.items():
        assert list(tables(slow, fast, group_by=key)) == [f"gpu_bench comparisons: {title}" for title in titles]


@pytest.mark.parametrize(
    ("outcome", "enforced", "text", "colour"),
    [
        (Outcome.PASS, True, "PASS", "\x1b[32m"),
        (Outcome.PASS, False, "PASS", "\x1b[32m"),
        (Outcome.FAIL, True, "FAIL", "\x1b[1;31m"),
        (Outcome.FAIL, False, "FAIL (not enforced)", "\x1b[1;31m"),
        (Outcome.INVALID, True, "INVALID", "\x1b[1;31m"),
        (Outcome.INCONCLUSIVE, True, "INCONCLUSIVE", "\x1b[33m"),
        (Outcome.NOT_JUDGED, False, "NOT JUDGED", "\x1b[33m"),
    ],
)
def test_verdicts_are_coloured(outcome: Outcome, enforced: bool, text: str, colour: str) -> None:
    judged = record(*arms(timing("a", 10.0), timing("eager", 20.0), verdict("min_speedup=2", outcome, enforced)))
    assert f"{colour}{text}\x1b[0m" in render([judged], Settings(), color=True)
    assert "\x1b" not in render([judged], Settings(), color=False)


def test_names_are_not_read_as_markup() -> None:
    whole = record(*arms(timing("[red]a", 10.0), timing("[/]", 20.0)), nodeid="test_a.py::test_it[[bold]]")
    text = render([whole], Settings(group_by="label"), color=False)
    assert all(name in text for name in ("[red]a", "20.00 [/]", "test_it[[bold]]"))


def changed(item: Measurement, ratio: float, baseline: str = "main", interval: bool = True) -> Measurement:
    """Return a measurement with a change, 1 % wide to each side."""
    between = Interval(0.99 * ratio, 1.01 * ratio) if interval else None
    change = PastChange(baseline=baseline, metric="median", ratio=ratio, interval=between, old_us=10.0)
    return msgspec.structs.replace(item, change=change)


def test_a_change_has_a_column_where_there_is_one() -> None:
    reference, candidate = arms(timing("fused", 10.0), timing("eager", 20.0), PASS)
    alone, other = Measurement(timing=timing("alone", 5.0)), Measurement(timing=timing("other", 5.0))
    found = tables(
        record(changed(alone, 1.25), other, changed(reference, 3.0), changed(candidate, 0.5, interval=False))
    )
    assert [row["Time against main"] for row in found["gpu_bench"]] == ["1.250x [1.238, 1.262]", ""]
    assert [row["Time against main"] for row in found["gpu_bench comparisons"]] == ["0.5000x"]
    assert list(found["gpu_bench comparisons"][0])[4:6] == ["Speedup", "Time against main"]
    for columns in (("median",), ("median", "limit", "flags"), ("limit",)):
        [row] = tables(record(changed(alone, 2.0)), columns=columns)["gpu_bench"]
        assert row["Time against main"] == "2.000x [1.980, 2.020]"
        assert list(row)[2 : 2 + len(columns[:1])] == (
            ["Median (us)"] if columns[0] == "median" else ["Time against main"]
        )
    [first, _] = tables(record(changed(alone, 2.0), changed(other, 2.0, "[b]")))["gpu_bench"]
    assert "Time against baselines" in first
    assert not any("against" in name for rows in tables(record(alone, candidate)).values() for name in rows[0])


@pytest.mark.parametrize(
    ("limit", "style"),
    [("max_regression=0.1", "\x1b[1;31m"), ("compare_fail=median:5%", "\x1b[1;31m"), ("min_speedup=2", "")],
)
def test_a_change_is_coloured_where_it_is_judged(limit: str, style: str) -> None:
    alone = Measurement(timing=timing("alone", 5.0), verdicts=(verdict(limit, Outcome.FAIL),))
    both = arms(timing("fused", 10.0), timing("eager", 20.0), verdict(limit, Outcome.FAIL))
    for items in ([changed(alone, 1.25)], [both[0], changed(both[1], 1.25)]):
        text = render([record(*items)], Settings(), color=True)
        assert (f"{style}1.250x [1.238, 1.262]" in text) == bool(style) or not style
        assert ("m1.250x" in text) == bool(style)


def test_verbose_names_only_what_has_kernels_or_regions() -> None:
    region = Region(path="attention", calls=2, total_ns=(60_000,), own_ns=(60_000,), share=0.6)
    items = [
        timing("bare", 10.0, kernels=()),
        timing("parts", 10.0, kernels=(), regions=(region,)),
        timing("both", 10.0, regions=(region,)),
    ]
    text = render([record(*(Measurement(timing=one) for one in items))], Settings(verbose=True), color=False)
    heads = [line for line in text.splitlines() if line.startswith("test_it ")]
    assert heads == ["test_it parts", "test_it both"]
    assert text.count("regions:") == 2
    assert text.count("60.00 us  60.0 %  2 x") == 2
    assert text.count("both_kernel") == 1
