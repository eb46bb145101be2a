"""The summary page beside the traces."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.report.trace_summary import write_summary
from pytest_gpubench.results.files import trace_name
from pytest_gpubench.results.model import TestRecord
from pytest_gpubench.units import format_time
from tests.results.measured import arms, clocked, kernel, record, unmeasured

MOST_KERNELS = 30

NODEID = "tests/test_a.py::test_it[a/b]"


def page_of(folder: Path, records: Sequence[TestRecord], *traces: str) -> str:
    for name in traces:
        (folder / name).write_bytes(b"")
    write_summary(folder, records)
    return (folder / "summary.md").read_text(encoding="utf-8")


def test_each_call_is_linked_with_the_trace_that_lies_beside_the_page(tmp_path: Path) -> None:
    first, second = Measurement(timing=clocked("f", 10.0)), Measurement(timing=clocked("f", 20.0))
    folder, traced = tmp_path / "new" / "traces", trace_name(NODEID, "f", 2)
    records = [record(first, second, nodeid=NODEID)]
    write_summary(folder, records)
    page = page_of(folder, records, traced, "other.json.gz")
    before, after = page.split(f"[trace]({traced})")
    assert all(each in before for each in (format_time(10.0), "No trace was taken here.", format_time(20.0)))
    assert "No trace" not in after
    assert "other.json.gz" not in page
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (arms(clocked("mine", 10.0), clocked("torch", 20.0)), ["as the reference", "as the candidate"]),
        (
            [Measurement(timing=clocked("f", 10.0, timer="wall", kernels=()), example="n=3")],
            ["The timer wall sees no kernels.", "at <code>n=3</code>"],
        ),
    ],
)
def test_roles_examples_and_timers_are_told(items: Sequence[Measurement], words: list[str], tmp_path: Path) -> None:
    page = page_of(tmp_path, [record(*items)])
    assert all(each in page for each in words)
    assert ("launch" in page.split("##", 1)[1]) == (len(items) == 2)


def test_what_was_not_measured_has_no_number_and_no_section(tmp_path: Path) -> None:
    item = Measurement(timing=unmeasured("f", "broke"))
    measured = Measurement(timing=clocked("f", 10.0))
    traced = trace_name(NODEID, "f", 1)
    assert "Nothing was measured." in page_of(tmp_path, [record(item, nodeid=NODEID)])
    assert NODEID not in page_of(tmp_path, [record(item, nodeid=NODEID)])
    assert f"({traced})" in page_of(tmp_path, [record(item, measured, nodeid=NODEID)], traced)


def test_the_printed_numbers_are_the_stored_ones(tmp_path: Path) -> None:
    kernels = (
        kernel("nvjet_gemm", 2, 30.0, mean_us=30.0),
        kernel("Memcpy DtoD (Device -> Device)", 1, 10.0, "memcpy", mean_us=10.0),
    )
    page = page_of(tmp_path, [record(Measurement(timing=clocked("f", 40.0, kernels=kernels)))])
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert "| <code>nvjet_gemm</code> | 2 | 30.00 us | 30.00 us | 75 % |" in rows
    assert rows[3].endswith("</code> | 1 | 10.00 us | 10.00 us | 25 % |")
    assert "| the call | 3 | 40.00 us | 40.00 us | 100 % |" in rows
    assert "3 launches" in page
    assert "40.00 us" in page


@pytest.mark.parametrize(("number", "rows", "more"), [(MOST_KERNELS, MOST_KERNELS, 0), (MOST_KERNELS + 1, 29, 2)])
def test_the_shortest_of_very_many_kernels_are_summed_up(tmp_path: Path, number: int, rows: int, more: int) -> None:
    kernels = tuple(kernel(f"kernel_{index}", 1, 1.0 + index) for index in range(number))
    page = page_of(tmp_path, [record(Measurement(timing=clocked("f", 500.0, kernels=kernels)))])
    assert page.count("<code>kernel") == rows
    assert ("more |" in page) == bool(more)
    if more:
        assert "| 2 more | 2 | 3.000 us |" in page
