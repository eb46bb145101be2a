"""The table of metrics: each row is shown wherever it has a name, with the stored number."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.cli import main
from pytest_gpubench.counters import COUNTERS
from pytest_gpubench.metrics import METRICS
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.properties import median_properties
from pytest_gpubench.report.section import report_section
from pytest_gpubench.report.table import render
from pytest_gpubench.results.model import Counts, TestRecord
from pytest_gpubench.results.store import write_run
from pytest_gpubench.settings import Resolver, Settings
from tests.report.page import content_of
from tests.results.measured import arms, clocked, kernel, record, resources, unmeasured
from tests.results.saved import make_run

RUN = make_run(1)
NAMED = {each.name: each for each in METRICS}
CANDIDATE = RUN.records[0].measurements[1]
WITH_WORK = msgspec.structs.replace(
    CANDIDATE,
    timing=msgspec.structs.replace(
        CANDIDATE.timing,
        moved_bytes=10**6,
        flops=10**7,
        counts=Counts(captures={each.name: (3.0, 1.0, 2.0) for each in COUNTERS}),
    ),
)


def written(whole: TestRecord, folder: Path) -> Path:
    write_run(msgspec.structs.replace(RUN, records=(whole,)), folder / "run.json")
    return folder / "run.json"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_writer_shows_a_metric_that_has_a_name_there(
    metric: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = (RUN.records[0].measurements[0], WITH_WORK)
    whole = msgspec.structs.replace(RUN.records[0], measurements=pair)
    value, text = metric.value(WITH_WORK), metric.text(WITH_WORK)
    assert value is not None
    if metric.header:
        shown = render([whole], Settings(columns=(metric.name,), time_unit="us"), Screen(300))
        assert metric.header.format(unit="us") in shown
        assert text in shown
        assert Resolver(Settings(), frozenset()).override(Settings(), {"sort": metric.name}, "{}").sort == metric.name
    if metric.section:
        assert f"  {metric.section} " in report_section(whole)
        assert metric.told(value) in report_section(whole)
    if metric.csv:
        assert main(["show", str(written(whole, tmp_path)), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[1][metric.csv] == value
    assert dict(median_properties(whole)).keys() >= (
        {f"gpu_bench.{pair[1].timing.label}.{metric.csv}"} if metric.junit else set()
    )
    content = content_of(whole)
    assert ([metric.name, metric.page, metric.unit] in content["metrics"]) == bool(metric.page)
    assert not metric.page or metric.name in content["tests"][0]["items"][1]
    assert metric.text(Measurement(timing=unmeasured("f", "switched off"))) == "-"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("median", "0.01200", "12.00 us"),
        ("interval", "[0.01196, 0.01204]", "[11.96, 12.04] us"),
        ("rel_std", "0.27 %", "0.27 %"),
        ("reps", "9", "9"),
        ("clock", "1980", "1980 MHz"),
        ("cycles", "23,760", "23,760"),
        ("gbps", "2000", "2000 GB/s"),
        ("speedup", "2.000x", "2.000x"),
    ],
)
def test_a_number_is_written_by_its_unit(name: str, text: str, told: str) -> None:
    pair = arms(clocked("fused", 12.0, moved_bytes=24_000_000), clocked("eager", 24.0))
    metric = NAMED[name]
    assert metric.text(pair[1], "ms") == text
    assert metric.told(metric.value(pair[1]), "us") == told


def test_what_kernels_take_is_that_of_the_worst() -> None:
    first = resources(registers=72, local_bytes=8, blocks_per_sm=3, resident_blocks=132)
    other = resources(registers=64, dynamic_shared_bytes=512, blocks_per_sm=2, grid=(99, 1, 1))
    kernels = kernel("a", resources=(first,)), kernel("b", resources=(other,))
    item = Measurement(timing=clocked("fused", 12.0, kernels=kernels))
    found = {name: NAMED[name].value(item) for name in ("registers", "local_bytes", "shared", "blocks", "tail")}
    assert found == {"registers": 72, "local_bytes": 8, "shared": 512, "blocks": 2, "tail": 0.25}


def test_rows_are_sorted_by_any_column() -> None:
    """Those without a number are last."""
    fast = arms(clocked("fast", 1.0), clocked("eager", 4.0))
    slow = arms(clocked("slow", 2.0), clocked("eager", 4.0))
    whole = record(Measurement(timing=clocked("alone", 3.0)), *fast, *slow)
    for key, order in (("median", ["fast", "slow", "alone"]), ("speedup", ["slow", "fast", "alone"])):
        text = render([whole], Settings(sort=key, columns=("median",)), Screen(200))
        assert sorted(order, key=text.index) == order
