"""The table of a run: its rows and groups, and printed numbers equal to the stored ones."""

import itertools
import os
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from pytest_gpubench import Measurement, PastChange, Region, Verdict
from pytest_gpubench.report.layout import Screen, shorten
from pytest_gpubench.report.table import limit_text, render
from pytest_gpubench.results.model import Outcome, TestRecord
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import printable, round_to_digits
from pytest_gpubench.verdict.limits import Limits
from tests.results.measured import arms, clocked, present, record, timing_of, unmeasured, verdict

MICROSECONDS_PER_UNIT = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
GROUP_KEYS = ("none", "file", "class", "function", "label", "device", "param")
NOT_ENFORCED = "Verdicts in parentheses are not enforced."
MOST_ROWS_PER_FUNCTION = 8

PASS = verdict("min_speedup=1.5", Outcome.PASS)


def tables(*records: TestRecord, width: int = 1000, **settings: object) -> dict[str, list[dict[str, str]]]:
    """Return the rows of each table by its title, cells by column; lines of one cell are joined by a bar."""
    lines = render(records, Settings(**settings), Screen(width)).splitlines()  # type: ignore[arg-type]
    rules = [index for index, line in enumerate(lines) if line.startswith("───")]
    return {lines[index - 2]: rows_of(lines[index + 1 :], lines[index - 1]) for index in rules}


def table(*records: TestRecord, width: int = 1000, **settings: object) -> list[dict[str, str]]:
    [rows] = tables(*records, width=width, **settings).values()
    return rows


def rows_of(lines: list[str], header: str) -> list[dict[str, str]]:
    """Return the rows below a header, up to an empty line."""
    rows: list[dict[str, str]] = []
    for line in itertools.takewhile(str.strip, lines):
        found = split_at_gaps(line, header, re.split(r"\s{2,}", header.strip()))
        if found["Function"]:
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
def test_the_printed_numbers_of_a_comparison_are_the_stored_ones(unit: str) -> None:
    candidate, reference = clocked("fused", 12.3456), clocked("eager", 34.5678)
    measured = arms(candidate, reference, PASS, verdict("max_time_us=12", Outcome.FAIL))
    [row] = table(record(*measured), time_unit=unit)
    scale = MICROSECONDS_PER_UNIT[unit]
    interval, speedup = present(candidate.median_interval_us), present(measured[1].speedup)
    assert numbers(row[f"Median ({unit})"]) == pytest.approx([12.3456 / scale], rel=5e-4)
    assert numbers(row["95 % interval"][1:]) == pytest.approx([end / scale for end in interval], rel=5e-4)
    assert numbers(row[f"Reference ({unit})"]) == pytest.approx([34.5678 / scale], rel=5e-4)
    assert row[f"Reference ({unit})"].endswith(" eager")
    assert numbers(row["Speedup"]) == pytest.approx([speedup.ratio, *present(speedup.interval)], rel=5e-4)
    assert (row["Test"], row["Function"]) == ("test_it", "fused")
    assert (row["Limit"], row["Verdict"]) == (">= 1.5x|<= 12 us", "PASS|FAIL")


def test_the_unit_fits_both_arms() -> None:
    [row] = table(record(*arms(clocked("fast", 900.0), clocked("slow", 1500.0))))
    assert (row["Reference (ms)"], row["Median (ms)"], row["Speedup"][:6]) == ("1.500 slow", "0.9000", "1.667x")
    assert not {"Limit", "Verdict", "Flags"} & set(row)


def test_each_measurement_has_a_row_and_references_only_if_verbose() -> None:
    alone = Measurement(timing=clocked("alone", 5.0))
    twin = Measurement(timing=clocked("eager", 21.0))  # of the reference's name, but measured for itself
    first, second = arms(clocked("a", 10.0), clocked("eager", 20.0)), arms(clocked("b", 40.0), clocked("eager", 22.0))
    whole = record(alone, *first, twin, *second)
    rows = table(whole)
    assert [row["Median (us)"] for row in rows] == ["5.000", "21.00", "10.00", "40.00"]
    assert [row["Reference (us)"] for row in rows] == ["", "", "20.00 eager", "22.00 eager"]
    assert "Speedup" not in table(record(alone))[0]
    text = render([whole], Settings(verbose=True), Screen(1000))
    assert [text.count(f"{name}_kernel") for name in ("alone", "eager", "a", "b")] == [1, 3, 1, 1]
    functions = [row["Function"] for row in table(whole, verbose=True)]
    assert functions == ["alone", "eager", "a", "eager", "eager", "b"]


def test_candidates_of_one_comparison_share_their_reference() -> None:
    reference, first = arms(clocked("a", 10.0), clocked("eager", 20.0, flags=("throttled",)), PASS)
    second = arms(clocked("b", 40.0, discarded=2), reference.timing)[1]
    rows = table(record(reference, first, second))
    assert [row["Test"] for row in rows] == ["test_it", ""]
    assert [row["Flags"] for row in rows] == ["reference throttled", "2 discarded, reference throttled"]
    assert [row["Verdict"] for row in rows] == ["PASS", ""]


@pytest.mark.parametrize("times", [MOST_ROWS_PER_FUNCTION, MOST_ROWS_PER_FUNCTION + 1])
def test_of_very_many_comparisons_the_worst_is_shown(times: int) -> None:
    """The worst is the least speedup, which is not that of the longest time."""
    pairs = [
        arms(clocked("mine", 10.0 * step), clocked("eager", 20.0 * step + step % 4)) for step in range(1, times + 1)
    ]
    whole = record(*(item for pair in pairs for item in pair))
    rows = table(whole)
    if times == MOST_ROWS_PER_FUNCTION:
        assert len(rows) == times
    else:
        assert [row["Function"].partition(",")[0] for row in rows] == [f"mine (worst of {times}"]
        assert rows[0]["Speedup"].startswith("2.000x")
        assert rows[0]["Reference (us)"] == "160.0 eager"
    assert len(table(whole, verbose=True)) == 2 * times


def test_what_is_invalid_is_shown_without_numbers_and_what_was_not_meant_to_be_measured_is_not() -> None:
    invalid = arms(unmeasured("b", "too fast"), clocked("eager", 20.0), verdict("min_speedup=2", Outcome.INVALID))
    skipped = arms(unmeasured("c", "switched off"), unmeasured("eager", "switched off"))
    many = [item for _ in range(9) for item in arms(clocked("b", 10.0), clocked("eager", 20.0))]
    assert [row["Function"] for row in table(record(*invalid, *skipped), verbose=True)] == ["eager", "b"]
    [row] = table(record(*invalid, *skipped))
    names = "Verdict", "Function", "Median (us)", "Reference (us)", "Speedup", "Limit"
    assert [row.get(name, "-") for name in names] == ["INVALID", "b", "-", "20.00 eager", "-", ">= 2x"]
    [row] = table(record(*many, *invalid))
    assert (row["Function"].partition(",")[0], row["Verdict"]) == ("b (worst of 10", "INVALID")
    assert render([record(*skipped)], Settings(), Screen()) == ""
    alone = Measurement(timing=unmeasured("d", "too fast"), verdicts=(verdict("max_time_us=1", Outcome.INVALID),))
    for key in ("none", "name", *COLUMNS):
        rows = table(record(alone, Measurement(timing=clocked("e", 1.0))), sort=key)
        assert sorted((row["Function"], row["Median (us)"]) for row in rows) == [("d", "-"), ("e", "1.000")]
        assert (rows[-1]["Function"] == "d") == (key not in ("none", "name"))


def test_sorting_and_grouping_hold_for_comparisons() -> None:
    slow = record(*arms(clocked("a", 30.0), clocked("eager", 20.0)), nodeid="test_a.py::test_a[1]", params={"n": "1"})
    fast = record(*arms(clocked("b", 10.0), clocked("eager", 20.0)), nodeid="test_b.py::TestB::test_b")
    orders = {
        key: [row["Function"] for row in table(slow, fast, sort=key)]
        for key in ("none", "name", "median", "mean", "std", "min", "max")
    }
    assert (orders["none"], orders["name"]) == (["a", "b"], ["b", "a"])
    assert [orders[key] for key in ("median", "mean", "std", "min", "max")] == [["b", "a"]] * 5
    assert [row["Test"] for row in table(slow, fast)] == ["test_a.py::test_a[1]", "test_b.py::TestB::test_b"]
    files = {"function": ("", ""), "file": ("", ""), "class": ("", " in test_b.py")}
    titles = {
        "file": ["test_a.py", "test_b.py"],
        "class": ["test_a.py", "TestB"],
        "function": ["test_a.py::test_a", "test_b.py::TestB::test_b"],
        "label": ["a", "b"],
        "device": ["NVIDIA H200"],
        "param": ["n=1", "no parameters"],
        "param:n": ["n=1", "no parameter n"],
    }
    assert titles.keys() >= {*GROUP_KEYS} - {"none"}
    for key, expected in titles.items():
        endings = files.get(key, (" in test_a.py", " in test_b.py")) if len(expected) > 1 else ("",)
        wanted = [f"gpu_bench: {title}{ending}" for title, ending in zip(expected, endings, strict=True)]
        assert list(tables(slow, fast, group_by=key)) == wanted
    bare = record(*arms(clocked("a", 30.0), clocked("eager", 20.0)), nodeid="test_c.py::test_c")  # of no class
    assert list(tables(slow, bare, group_by="class")) == ["gpu_bench: test_a.py", "gpu_bench: test_c.py"]


@pytest.mark.parametrize(
    ("outcome", "enforced", "text", "colour"),
    [
        (Outcome.PASS, True, "PASS", "\x1b[32m"),
        (Outcome.PASS, False, "PASS", "\x1b[32m"),
        (Outcome.FAIL, True, "FAIL", "\x1b[1;31m"),
        (Outcome.FAIL, False, "(FAIL)", "\x1b[1;31m"),
        (Outcome.INVALID, True, "INVALID", "\x1b[1;31m"),
        (Outcome.INCONCLUSIVE, True, "INCONCLUSIVE", "\x1b[33m"),
        (Outcome.NOT_JUDGED, False, "NOT JUDGED", "\x1b[33m"),
    ],
)
def test_verdicts_are_coloured(outcome: Outcome, enforced: bool, text: str, colour: str) -> None:
    judged = record(
        *arms(clocked("a", 10.0), clocked("eager", 20.0), verdict("min_speedup=2", outcome, enforced=enforced))
    )
    for width in (50, 120):
        shown = render([judged], Settings(), Screen(width, color=True))
        assert f"{colour}{text}\x1b[0m" in shown
        assert shown.count(NOT_ENFORCED) == text.startswith("(")
    assert "\x1b" not in render([judged], Settings(), Screen(120))


def test_names_are_not_read_as_markup() -> None:
    whole = record(*arms(clocked("[red]a", 10.0), clocked("[/]", 20.0)), nodeid="test_a.py::test_it[[bold]]")
    text = render([whole], Settings(group_by="label", verbose=True), Screen())
    assert all(name in text for name in ("[red]a", "20.00 [/]", "test_it[[bold]]"))


def changed(
    item: Measurement, ratio: float, baseline: str = "main", interval: bool = True, metric: str = "median"
) -> Measurement:
    """Return a measurement with a change, 1 % wide to each side."""
    between = Interval(0.99 * ratio, 1.01 * ratio) if interval else None
    change = PastChange(baseline=baseline, metric=metric, ratio=ratio, interval=between, old_us=10.0)
    return msgspec.structs.replace(item, change=change)


def test_a_change_has_a_column_that_names_its_metric() -> None:
    reference, candidate = arms(clocked("fused", 10.0), clocked("eager", 20.0), PASS)
    alone, other = Measurement(timing=clocked("alone", 5.0)), Measurement(timing=clocked("other", 5.0))
    slower = changed(candidate, 2.0, metric="speedup")
    rows = table(record(changed(alone, 1.25), other, changed(reference, 3.0), slower))
    wanted = ["median +25.0 % [+23.8, +26.2]", "", "speedup -50.0 % [-50.5, -49.5]"]
    assert [row["Against main"] for row in rows] == wanted
    assert list(rows[0])[6:9] == ["Speedup", "Against main", "Limit"]
    [row] = table(record(changed(alone, 0.9995, interval=False)))
    assert row["Against main"] == "median -0.05 %"
    [row] = table(record(changed(alone, 1.0, interval=False, metric="same code")))
    assert row["Against main"] == "same code"
    for ratio, told in (
        (1 / 475, "0.002105x [0.002084, 0.002126]"),
        (0.1009, "0.1009x [0.09989, 0.1019]"),
        (0.1011, "-89.9 % [-90.0, -89.8]"),
        (9.9, "+890.0 % [+880.1, +899.9]"),
        (9.91, "9.910x [9.811, 10.01]"),
    ):
        [row] = table(record(changed(alone, ratio)))
        assert row["Against main"] == f"median {told}"
    for columns in (("median",), ("median", "limit", "flags"), ("limit",)):
        [row] = table(record(changed(alone, 2.0)), columns=columns)
        assert row["Against main"] == "median +100.0 % [+98.0, +102.0]"
    [first, _] = table(record(changed(alone, 2.0), changed(other, 2.0, "[b]")))
    assert "Against baselines" in first
    assert not any("Against" in name for name in table(record(alone, candidate))[0])


@pytest.mark.parametrize(
    ("limit", "style"),
    [("max_regression=0.1", "\x1b[1;31m"), ("compare_fail=median:5%", "\x1b[1;31m"), ("min_speedup=2", "")],
)
def test_a_change_is_coloured_where_it_is_judged(limit: str, style: str) -> None:
    alone = Measurement(timing=clocked("alone", 5.0), verdicts=(verdict(limit, Outcome.FAIL),))
    both = arms(clocked("fused", 10.0), clocked("eager", 20.0), verdict(limit, Outcome.FAIL))
    for items in ([changed(alone, 1.25)], [both[0], changed(both[1], 1.25)]):
        text = render([record(*items)], Settings(), Screen(200, color=True))
        assert f"{style}median +25.0 % [+23.8, +26.2]" in text
        assert ("mmedian +25.0 %" in text) == bool(style)


def test_verbose_names_only_what_has_kernels_or_regions() -> None:
    region = Region(path="attention", calls=2, total_ns=(60_000,), own_ns=(60_000,), share=0.6)
    bare = [clocked("bare", 10.0, kernels=()), clocked("parts", 10.0, kernels=(), regions=(region,))]
    items = [Measurement(timing=one) for one in (*bare, clocked("both", 10.0, regions=(region,)))]
    text = render([record(*items)], Settings(verbose=True), Screen())
    heads = [line for line in text.splitlines() if line.startswith("test_it ") and ":" not in line and "us" not in line]
    assert [line for line in heads if len(line.split()) == 2] == ["test_it parts", "test_it both"]
    assert text.count("regions:") == 2
    assert text.count("60.00 us  60.0 %  2 x") == 2
    assert text.count("both_kernel") == 1


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("min_speedup=1.5", ">= 1.5x"),
        ("min_speedup={'fused': 2, 'other': 3}", ">= 2x"),
        ("min_speedup={'other': 3}", "only other"),
        ("max_time_us=40", "<= 40 us"),
        ("max_time_us=0.001", "<= 0.001 us"),
        ("max_time_us={'H200': 40, 'NVIDIA H200': 50, 'A100': 75}", "<= 50 us (NVIDIA H200)"),
        ("max_time_us={'A100': 75}", "only A100"),
        ("max_rel_std=0.02", "std 0.27 % <= 2 %"),
        ("min_gbps=2000", "1999 >= 2000 GB/s"),
        ("min_tflops=0.5", ">= 0.5 TFLOP/s"),
        ("min_peak_fraction=0.8", ">= 80 % of peak"),
        ("max_regression=0.05", "speedup >= -4.8 %"),
        ("max_regression='median:5%'", "median <= +5 %"),
        ("compare_fail=mean:5us", "mean <= +5 us"),
        ("max_kernels=3", "2 <= 3 kernels"),
        ("max_kernels=1", "2 <= 1 kernel"),
        ("forbid=sync", "no sync"),
        ("forbid='sync'", "no sync"),
        ("max_memory='1GiB'", "<= 1 GiB"),
        ("max_memory=2048", "<= 2 KiB"),
        ("kernels=('*softmax*', 'b')", "kernels *softmax*, b"),
        ("forbid_kernels=('*softmax*', 'b')", "no *softmax*, b"),
        ("deterministic=True", "deterministic"),
        ("max_time_us=what", "max_time_us=what"),
        ("max_time_us={[1]: 2}", "max_time_us={[1]: 2}"),
        ("max_time_us={1: 2}", "max_time_us={1: 2}"),
        (f"max_time_us={10**400}", f"max_time_us={10**400}"),
        ("max_memory=1 horse", "max_memory=1 horse"),
        ("a_new_limit=3", "a_new_limit=3"),
    ],
)
def test_a_limit_is_short_and_has_the_measured_value(limit: str, text: str) -> None:
    item = Measurement(timing=clocked("fused", 12.0, moved_bytes=23_988_000))
    assert limit_text(verdict(limit, Outcome.PASS), item) == text
    found = msgspec.structs.replace(verdict("max_memory='1GiB'", Outcome.PASS), found="12 MiB")
    assert limit_text(found, item) == "12 MiB <= 1 GiB"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("min_speedup=0.5", ">= 0.5x"),
        ("min_speedup={'fused': 0.5}, max_time_us=40, max_memory='1GiB'", ">= 0.5x, <= 40 us, <= 1 GiB"),
        (str(Limits(max_rel_std=0.02, kernels=("*a*", "b"), forbid={"sync"})), "std <= 2 %, no sync, kernels *a*, b"),
        ("", ""),
        ("nobody else on the GPU", "nobody else on the GPU"),
        ("nobody", "nobody"),
        ("a_new_limit=3", "a_new_limit=3"),
    ],
)
def test_an_invalid_test_has_its_limits_as_other_rows_have_them(asked: str, text: str) -> None:
    found = Verdict(kind="validity", asked=asked, outcome=Outcome.INVALID, sentence="no")
    assert limit_text(found, Measurement(timing=timing_of((), "fused", unmeasured="no"))) == text


LIMITS = {
    "min_speedup=1.5": ">= 1.5x",
    "max_time_us={'H200': 40, 'A100': 75}": "<= 40 us (H200)",
    "max_rel_std=0.02": "std 0.27 % <= 2 %",
    "max_regression=0.05": "speedup >= -4.8 %",
    "max_kernels=3": "2 <= 3 kernels",
    "forbid='memcpy'": "no memcpy",
    "kernels=('*softmax_forward_kernel_bf16*', '*epilogue_of_fused_attention*')": (
        "kernels *softmax_forward_kernel_bf16*, *epilogue_of_fused_attention*"
    ),
}


@st.composite
def records(draw: st.DrawFn) -> list[TestRecord]:
    """Draw tests with names of any length, with and without references, changes, examples and verdicts of any kind."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        label = draw(st.sampled_from(["fused", "compiled", "triton_attention_forward_with_a_long_name"]))
        limits = draw(st.lists(st.sampled_from(sorted(LIMITS)), max_size=3, unique=True))
        verdicts = tuple(
            verdict(limit, draw(st.sampled_from(Outcome)), enforced=draw(st.booleans())) for limit in limits
        )
        flags = draw(st.sampled_from([(), ("throttled",), ("not settled", "kernels overlap")]))
        example = draw(st.sampled_from(["", "shape=(4096, 33), dtype=torch.float16"]))
        candidate = clocked(label, draw(st.floats(0.01, 1e7)), flags=flags)
        items = [Measurement(timing=candidate, verdicts=verdicts, example=example)]
        if draw(st.booleans()):
            items = list(arms(candidate, clocked("eager", draw(st.floats(0.01, 1e7))), *verdicts))
        if draw(st.booleans()):
            items = [changed(item, draw(st.floats(0.1, 30)), metric="speedup") for item in items]
        name = draw(st.text(st.characters(codec="utf-8", exclude_characters="…"), min_size=1, max_size=90))
        folder = draw(st.sampled_from(["tests", "tests/kernels", "more"]))
        found.append(record(*items, nodeid=f"{folder}/test_{draw(st.sampled_from('ab'))}.py::test_{name}"))
    return found


@settings(max_examples=60)
@given(tests=records(), width=st.integers(70, 200), color=st.booleans())
def test_on_any_screen_ids_and_numbers_are_whole_and_fit(tests: list[TestRecord], width: int, color: bool) -> None:
    """But for the line of an id, which is copied: it may be wider than the screen."""
    items = [item for test in tests for item in test.measurements if item.role != "reference"]
    text = re.sub(r"\x1b\[[0-9;]*m", "", render(tests, Settings(time_unit="us"), Screen(width, color)))
    lines = text.split("\n")
    assert "…" not in text
    assert [line for line in lines if line != line.rstrip()] == []
    wide = [line for line in lines if cell_len(line) > width]
    assert [line for line in wide if not any(printable(test.nodeid).rstrip().endswith(line) for test in tests)] == []
    names = [printable(test.nodeid).rstrip() for test in tests]
    folders = os.path.commonpath([name.partition("::")[0].rpartition("/")[0] for name in names])
    for name in names:
        ends = {name, name.removeprefix(f"{folders}/"), name.partition("::")[2]}
        assert any(end in line for line in lines for end in ends)
    flat = " ".join(text.split())
    for item in items:
        assert round_to_digits(item.timing.median_us, 4) in text
        assert not item.speedup or f"{round_to_digits(item.speedup.ratio, 4)}x" in text
        for each in item.verdicts:
            assert " ".join(LIMITS[each.limit].split()) in flat
            assert each.outcome.value.upper() in text


def test_flags_without_room_stand_above_their_row() -> None:
    limits = [verdict(limit, Outcome.PASS) for limit in ("max_time_us={'H200': 40, 'A100': 75}", "min_speedup=1.5")]
    items = arms(clocked("fused", 12.0, flags=("throttled",)), clocked("eager", 24.0), *limits)
    text = render([record(*items, nodeid="test_a.py::test_it")], Settings(), Screen(60))
    assert text.splitlines()[-3:] == [
        "  flags of fused: throttled",
        "  PASS     fused           12.00   2.000x  <= 40 us (H200)",
        "  PASS                                     >= 1.5x",
    ]


def test_the_id_of_a_test_without_room_stands_once_above_its_rows() -> None:
    name = f"a.py::test_{'a' * 70}"
    pairs = [arms(clocked(label, 12.0), clocked("eager", 20.0)) for label in ("fused", "other")]
    text = render([record(*pairs[0], *pairs[1], nodeid=name)], Settings(), Screen(60))
    assert text.splitlines().count(name.removeprefix("a.py::")) == 1


def test_limits_without_room_stand_above_their_row() -> None:
    limits = [verdict(limit, Outcome.PASS) for limit in (max(LIMITS, key=len), "min_speedup=1.5")]
    items = arms(clocked("fused", 12.0), clocked("eager", 24.0), *limits)
    lines = render([record(*items)], Settings(), Screen(60)).splitlines()
    above = ["  limit: kernels *softmax_forward_kernel_bf16*,", "    *epilogue_of_fused_attention*"]
    start = lines.index(above[0])
    assert lines[start : start + 2] == above
    assert lines[start + 2].split()[:2] == ["PASS", "12.00"]
    assert lines[start + 3 :] == ["  limit: >= 1.5x", "  PASS"]
    assert max(map(len, lines)) <= 60


COLUMNS = {
    "mean": "Mean (us)",
    "std": "Std (us)",
    "min": "Min (us)",
    "max": "Max (us)",
    "busy": "Busy (us)",
    "q1": "Q1 (us)",
    "q3": "Q3 (us)",
    "clock": "SM MHz",
    "rel_std": "Rel. std",
    "reps": "Reps",
}


@pytest.mark.parametrize("columns", [("mean", "std", "min", "max"), ("busy", "q1", "q3", "clock", "rel_std", "reps")])
def test_columns_that_were_asked_for_are_all_there(columns: tuple[str, ...]) -> None:
    """A line that the terminal has to break is better than a number without its end."""
    judged = record(*arms(clocked("fused", 12.0), clocked("eager", 20.0), PASS), nodeid=f"a.py::test_{'a' * 90}")
    lines = render([judged], Settings(columns=columns), Screen(60)).splitlines()
    [header] = [line for line in lines if "Verdict" in line]
    assert [name for name in columns if COLUMNS[name] not in header] == []


def test_a_screen_without_unicode_gets_ascii() -> None:
    judged = record(*arms(clocked("größe", 12.0), clocked("eager", 20.0), PASS), nodeid=f"a.py::test_{'a' * 90}")
    text = render([judged], Settings(), Screen(80, encoding="ascii"))
    assert text.isascii()
    assert "\\" not in text
    assert "-" * 80 in text
    assert "gr??e" in text
    assert "größe" in render([judged], Settings(), Screen(80, encoding="latin-1"))


def test_what_a_terminal_would_obey_is_escaped() -> None:
    whole = record(Measurement(timing=clocked("a\x1b[2J", 1.0)), nodeid="a.py::test_\x1b]0;title\x07")
    text = render([whole], Settings(group_by="function", verbose=True), Screen(200))
    assert "\x1b" not in text
    assert "a\\x1b[2J" in text


@pytest.mark.parametrize(("columns", "width"), [("77", 77), (None, 120)])
def test_the_width_is_that_of_the_terminal(columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_terminal(number: int) -> None:
        raise OSError("not a terminal")

    monkeypatch.setattr(os, "get_terminal_size", no_terminal)
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert Screen.current(color=False).width == width


def test_a_sentence_is_broken_between_words() -> None:
    name = "test_a.py::test_longer_than-a-line"
    assert Screen(20).wrapped(f"gpu_bench: too few reps in {name}") == ["gpu_bench: too few", "  reps in", f"  {name}"]
    assert Screen(20).wrapped("a\x1bb\nc") == ["a\\x1bb\\nc"]
    assert Screen(0).wrapped("a b") == ["a", "  b"]


@settings(max_examples=30)
@given(st.text("ab, ()-", max_size=30), st.integers(30, 120))
def test_an_id_in_a_sentence_is_not_broken(parameters: str, width: int) -> None:
    name = f"tests/test_a.py::test_it[{parameters.strip()}-torch.float32]"
    lines = Screen(width).wrapped(f"gpu_bench: warning: in 2 tests ({name}, {name}): it is so and so, or not")
    assert sum(line.count(name) for line in lines) == 2


@pytest.mark.parametrize(("text", "short"), [("abc", "abc"), ("abcdefgh", "ab…gh"), ("名前名前名前", "名…前")])
def test_a_long_name_loses_its_middle(text: str, short: str) -> None:
    assert shorten(text, 5) == short
