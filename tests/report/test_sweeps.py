"""Sweeps: which parameters have an axis, where values lie on it, and which measurements make a series."""

from typing import Any

import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.report.sweeps import sweeps_of
from pytest_gpubench.results.model import MemoryPeak, Outcome, Peaks, TestRecord
from tests.report.page import content_of
from tests.results.measured import arms, clocked, record, verdict


def swept(*cases: dict[str, str], **others: Any) -> list[TestRecord]:
    """Return the records of a parametrised test; case by case it takes 10, 20, 30, ... us, and its reference 25."""
    found = []
    for place, params in enumerate(cases, 1):
        pair = arms(clocked("ours", 10.0 * place, **others), clocked("torch", 25.0, **others))
        found.append(record(*pair, nodeid=f"tests/test_a.py::test_it[{place}]", params=params))
    return found


def case(n: object, *arms: Measurement, **others: Any) -> TestRecord:
    """Return the record of a test with n of a value."""
    return record(*arms, nodeid=f"tests/test_a.py::test_it[{n}]", params={"n": str(n)}, **others)


def over(name: str, *texts: str) -> list[dict[str, str]]:
    return [{name: text} for text in texts]


@pytest.mark.parametrize(
    ("texts", "axis", "values"),
    [
        (("8", "16"), "n", {8: "8", 16: "16"}),
        (("16", "0.5", "1e3"), "n", {0.5: "0.5", 16: "16", 1000: "1e3"}),
        (("9e59", "2e-60", "0"), "n", {0: "0", 2e-60: "2e-60", 9e59: "9e59"}),
        (("(4, 8)", "(4, 16)"), "n[1]", {8: "(4, 8)", 16: "(4, 16)"}),
        (("torch.Size([4, 8])", "torch.Size([5, 8])"), "n[0]", {4: "torch.Size([4, 8])", 5: "torch.Size([5, 8])"}),
        (("(4, 4)", "(8, 8)"), "n[0]", {4: "(4, 4)", 8: "(8, 8)"}),
        (("(4, 8)", "(5, 9)"), "n, elements", {32: "(4, 8)", 45: "(5, 9)"}),
        (("(4, 8)", "(8, 4)"), "", {1: "(4, 8)", 2: "(8, 4)"}),
        (("(4,)", "(8,)"), "n", {4: "(4,)", 8: "(8,)"}),
    ],
)
def test_a_number_or_a_shape_has_an_axis(texts: tuple[str, ...], axis: str, values: dict[float, str]) -> None:
    (sweep,) = sweeps_of(swept(*over("n", *texts)))
    assert (sweep.axis, sweep.values) == (axis, values)
    numbers = {each.label: len(points) for each, points in sweep.series.items()}
    assert numbers == {"torch": len(texts), "ours": len(texts)}


@pytest.mark.parametrize(
    "texts",
    [
        *[(), ("8",), ("8", "8.0"), ("8", "(8, 8)"), ("a", "b"), ("True", "False"), ("", "()")],
        *[("8", number) for number in ("nan", "inf", "1e60", "-1e60", "1e-60")],
        ("(8, 8)", f"(8, {10**18})"),
    ],
)
def test_what_has_less_than_two_places_is_no_sweep(texts: tuple[str, ...]) -> None:
    assert sweeps_of(swept(*over("n", *texts))) == []
    examples = [case(n, Measurement(timing=clocked("ours", 9.0), example="x=1")) for n in (1, 2)]
    assert sweeps_of(examples) == []


def test_parameters_that_change_together_are_one_axis() -> None:
    (cube,) = sweeps_of(swept(*({"m": n, "n": n, "k": n} for n in ("8", "16"))))
    assert (cube.param, cube.axis, cube.values) == ("m x n x k", "m", {8: "8x8x8", 16: "16x16x16"})
    (others,) = sweeps_of(swept({"m": "2", "n": "3", "dtype": "a"}, {"m": "4", "n": "5", "dtype": "a"}))
    assert (others.axis, others.values) == ("m x n", {6: "2x3", 20: "4x5"})
    assert {each.fixed for each in others.series} == {"dtype=a"}
    (alike,) = sweeps_of(swept({"m": "2", "n": "3", "k": "1"}, {"m": "4", "n": "5", "k": "1"}))
    assert (alike.axis, {each.fixed for each in alike.series}) == ("m x n", {"k=1"})


def test_each_parameter_of_a_grid_has_a_sweep_the_longest_first() -> None:
    grid = [{"m": m, "n": n} for m in ("1", "2") for n in ("1", "2", "3")]
    found = sweeps_of(swept(*grid))
    assert [(each.param, len(each.series)) for each in found] == [("n", 4), ("m", 6)]
    again = [*swept(*grid), swept(*grid)[0]]  # a test that was run again replaces itself
    assert [each.param for each in sweeps_of(again)] == ["n", "m"]


def test_devices_and_ways_of_timing_are_apart() -> None:
    graph = [case(n, Measurement(timing=clocked("ours", 9.0, timer="graph"))) for n in (3, 4)]
    assert {each.timer for each in sweeps_of([*swept(*over("n", "1", "2")), *graph])} == {"profiler", "graph"}


@pytest.mark.parametrize(
    ("metric", "limits", "found"),
    [
        ("speedup", ("min_speedup=1.2", "min_speedup=1.2"), 1.2),
        ("speedup", ("min_speedup=1.2", "min_speedup=1.3"), None),
        ("median", ("min_speedup=1.2", "min_speedup=1.2"), None),
    ],
)
def test_the_limit_is_drawn_where_all_tests_have_one(metric: str, limits: list[str], found: float | None) -> None:
    pairs = [arms(clocked("ours", 9.0), clocked("torch", 9.0), verdict(limit, Outcome.PASS)) for limit in limits]
    (sweep,) = sweeps_of(case(n, *pair) for n, pair in enumerate(pairs))
    assert sweep.limit(metric) == found


def test_the_peak_is_that_of_the_largest_call() -> None:
    memory = tuple(MemoryPeak(read_share=0.5, moved_bytes=size, gbps=rate) for size, rate in ((10, 9.0), (1000, 4.0)))
    (sweep,) = sweeps_of(
        case(n, Measurement(timing=clocked("ours", 9.0, moved_bytes=10 * n)), peaks=peaks)
        for n, peaks in ((1, Peaks(memory=memory)), (100, Peaks(memory=memory)), (200, None))
    )
    assert sweep.peaks("gbps") == {"": 4.0}
    assert sweep.peaks("median") == {}


@pytest.mark.parametrize(
    "rates", [[{"bfloat16": 790.0, "float32": 52.0}, {}], [{"float32": 52.0}, {"bfloat16": 790.0}], [{}]]
)
def test_the_peaks_of_matmuls_are_those_of_their_dtypes(rates: list[dict[str, float]]) -> None:
    (sweep,) = sweeps_of(
        case(n, Measurement(timing=clocked("ours", 9.0, flops=10)), peaks=Peaks(matmul_tflops=rates[n % len(rates)]))
        for n in (1, 2)
    )
    assert sweep.peaks("tflops") == {name: peak for each in rates for name, peak in each.items()}
    assert sweep.peaks("gbps") == {}


@pytest.mark.parametrize(
    ("flops", "moved", "name"),
    [(None, None, ""), (8, None, "tflops"), (None, 8, "gbps"), (6000, 100, "gbps"), (6001, 100, "tflops")],
)
def test_the_rate_that_matters(flops: int | None, moved: int | None, name: str) -> None:
    item = Measurement(timing=clocked("ours", 9.0, flops=flops, moved_bytes=moved))
    assert content_of(record(item))["tests"][0]["rate"] == name


def test_the_page_names_where_a_candidate_is_faster() -> None:
    (sweep,) = content_of(*swept(*over("n", "8", "16", "32")))["sweeps"]
    assert sweep["faster"] == ["ours against torch: faster up to n=16"]
