"""A failed test's section: the cost of launching, and verdicts that its error does not say."""

import re

import pytest
from msgspec.structs import replace

from pytest_gpubench import Measurement
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.section import report_section
from pytest_gpubench.results.model import Outcome, Overhead
from tests.results.measured import arms, clocked, kernel, record, resources, verdict

NO_GRAPH = "'a' cannot be captured as a CUDA graph: it waits"


@pytest.mark.parametrize(
    ("host_us", "graph_us", "host", "graph"),
    [
        (30.0, 25.0, "takes the host 30.00 us", "on an idle GPU a CUDA graph of it is 2.00x as fast"),
        (30.0, 62.5, "takes the host 30.00 us", "on an idle GPU a CUDA graph of it is 0.80x as fast"),
        (None, None, "waits for the GPU", f"a CUDA graph of it cannot be timed: {NO_GRAPH}"),
    ],
)
def test_what_launching_costs(host_us: float | None, graph_us: float | None, host: str, graph: str) -> None:
    """It is the replay that is so many times as fast, not the call."""
    overhead = Overhead(label="a", host_us=host_us, busy_us=4, span_us=10, eager_us=50, graph_us=graph_us)
    overhead = replace(overhead, no_graph="" if graph_us else NO_GRAPH)
    reference, candidate = arms(clocked("a", 10.0), clocked("b", 10.0))
    found = report_section(record(reference, replace(candidate, overhead=overhead)))
    sentence = f"launching a {host}; the GPU waits for 6.000 us of its 10.00 us; {graph}"
    assert [line.strip() for line in found.splitlines() if "launching" in line] == [sentence]


def test_each_kernel_has_what_it_takes() -> None:
    """Of launches of several kinds the most frequent."""
    one = resources(registers=72, local_bytes=600, dynamic_shared_bytes=48 * 1024, blocks_per_sm=2)
    kinds = resources(registers=255), resources(launches=2, registers=1, grid=(100, 1, 1))
    kernels = kernel("a", median_us=6.0, resources=(one,)), kernel("b", 3, 3.0, resources=kinds), kernel("c")
    found = report_section(record(Measurement(timing=clocked("f", 10.0, kernels=kernels)))).splitlines()
    assert [line.partition(" % ")[2] for line in found if " % " in line] == [
        "1 x a: 72 registers, 600 B local, 48 KiB shared, 2 blocks per SM, 2.00 waves",
        "3 x b: 1 register, 1 block per SM, 0.758 waves (1 of 2 kinds of launches)",
        "1 x c",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_sentences_fit_the_screen(width: int) -> None:
    failed = replace(verdict("min_speedup=1", Outcome.FAIL, "too slow " * 20), reasons=("why " * 40,))
    reference, candidate = arms(clocked("candidate", 10.0), clocked("reference", 20.0), failed)
    candidate = replace(candidate, differences=("out PASS " * 20,))
    whole = record(reference, candidate, Measurement(timing=clocked("alone", 1.0)))
    lines = report_section(whole, screen=Screen(width)).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join("\n".join(lines).split()) == " ".join(report_section(whole).split())


@pytest.mark.parametrize(("reasons", "said"), [((), True), (("one",), False)])
def test_what_differs_from_the_reference_is_told_where_no_verdict_says_it(reasons: tuple[str, ...], said: bool) -> None:
    copies = kernel("a"), kernel("copy_", 1, 3.0)
    judged = replace(verdict("min_speedup=1", Outcome.FAIL, "slower"), reasons=reasons)
    pair = arms(clocked("a", 4.0, kernels=copies), clocked("b", 1.0, kernels=copies[:1]), judged)
    found = report_section(record(*pair))
    assert ("beside b: one more kernel: copy_ (75 % of the time)" in found) == said


@pytest.mark.parametrize(
    ("said", "told"), [("", ["FAIL", "PASS"]), ("LimitBroken: a is too slow, wanted less", ["PASS"])]
)
def test_what_the_error_says_is_not_said_again(said: str, told: list[str]) -> None:
    verdicts = (
        replace(verdict("max_time_us=1", Outcome.FAIL, "a is too slow, wanted less"), reasons=("one", "two")),
        verdict("max_rel_std=1", Outcome.PASS, "a is steady"),
    )
    found = report_section(record(Measurement(timing=clocked("a", 10.0), verdicts=verdicts)), said)
    assert re.findall("^  ([A-Z]+): ", found, re.MULTILINE) == told
    assert ("\n    with it: one\n    with it: two" in found) == ("FAIL" in told)
