"""A failed test's section: the cost of launching, and verdicts that its error does not say."""

import re

import msgspec
import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.section import report_section
from pytest_gpubench.results.model import Outcome, Overhead
from tests.report.records import record, speedup, timing
from tests.results.measured import kernel, resources, verdict


@pytest.mark.parametrize(
    ("host_us", "graph_us", "no_graph", "sentence"),
    [
        (
            30.0,
            25.0,
            "",
            "launching a takes the host 30.00 us; the GPU waits for 6.000 us of its 10.00 us; "
            "on an idle GPU a CUDA graph of it is 2.00x as fast",
        ),
        (
            30.0,
            62.5,
            "",
            "launching a takes the host 30.00 us; the GPU waits for 6.000 us of its 10.00 us; "
            "on an idle GPU a CUDA graph of it is 0.80x as fast",
        ),
        (
            None,
            None,
            "'a' cannot be captured as a CUDA graph: it waits",
            "launching a waits for the GPU; the GPU waits for 6.000 us of its 10.00 us; "
            "a CUDA graph of it cannot be timed: 'a' cannot be captured as a CUDA graph: it waits",
        ),
    ],
    ids=["faster", "slower", "none"],
)
def test_what_launching_costs(host_us: float | None, graph_us: float | None, no_graph: str, sentence: str) -> None:
    """It is the replay that is so many times as fast, not the call."""
    overhead = Overhead(
        label="a", host_us=host_us, busy_us=4.0, span_us=10.0, eager_us=50.0, graph_us=graph_us, no_graph=no_graph
    )
    reference = timing("b", 10.0)
    candidate = Measurement(
        timing=timing("a", 10.0), speedup=speedup(reference, 1.0), overhead=overhead, role="candidate"
    )
    found = report_section(record(Measurement(timing=reference, role="reference"), candidate))
    assert [line.strip() for line in found.splitlines() if "launching" in line] == [sentence]


def test_each_kernel_has_what_it_takes() -> None:
    """Of launches of several kinds the most frequent."""
    one = resources(registers=72, local_bytes=600, dynamic_shared_bytes=48 * 1024, blocks_per_sm=2)
    kinds = resources(registers=255), resources(launches=2, registers=1, grid=(100, 1, 1))
    kernels = kernel("a", median_us=6.0, resources=(one,)), kernel("b", 3, 3.0, resources=kinds), kernel("c")
    found = report_section(record(Measurement(timing=timing("f", 10.0, kernels=kernels)))).splitlines()
    assert [line.partition(" % ")[2] for line in found if " % " in line] == [
        "1 x a: 72 registers, 600 B local, 48 KiB shared, 2 blocks per SM, 2.00 waves",
        "3 x b: 1 register, 1 block per SM, 0.758 waves (1 of 2 kinds of launches)",
        "1 x c",
    ]


def test_a_verdict_has_a_line_for_each_reason() -> None:
    failed = msgspec.structs.replace(verdict("max_time_us=1", Outcome.FAIL, "too slow"), reasons=("one", "two"))
    found = report_section(record(Measurement(timing=timing("a", 10.0), verdicts=(failed,)))).splitlines()
    assert found[-3:] == ["  FAIL: too slow", "    with it: one", "    with it: two"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_sentences_fit_the_screen(width: int) -> None:
    reference = timing("reference", 20.0)
    failed = msgspec.structs.replace(verdict("min_speedup=1", Outcome.FAIL, "too slow " * 20), reasons=("why " * 40,))
    candidate = Measurement(
        timing=timing("candidate", 10.0), speedup=speedup(reference, 2.0), role="candidate", verdicts=(failed,),
        differences=("out PASS " * 20,),
    )  # fmt: skip
    whole = record(Measurement(timing=reference, role="reference"), candidate, Measurement(timing=timing("alone", 1.0)))
    lines = report_section(whole, screen=Screen(width)).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join("\n".join(lines).split()) == " ".join(report_section(whole).split())


def test_what_differs_from_the_reference_is_told_where_no_verdict_says_it() -> None:
    copies = kernel("a"), kernel("copy_", 1, 3.0)
    reference, candidate = timing("b", 1.0, kernels=copies[:1]), timing("a", 4.0, kernels=copies)
    judged = verdict("min_speedup=1", Outcome.FAIL, "slower")
    for reasons, said in (((), True), (("one",), False)):
        item = Measurement(
            timing=candidate,
            speedup=speedup(reference, 0.25),
            role="candidate",
            verdicts=(msgspec.structs.replace(judged, reasons=reasons),),
        )
        found = report_section(record(Measurement(timing=reference, role="reference"), item))
        assert ("beside b: one more kernel: copy_ (75 % of the time)" in found) == said


@pytest.mark.parametrize(
    ("said", "told"), [("", ["FAIL", "PASS"]), ("LimitBroken: a is too slow, wanted less", ["PASS"])]
)
def test_what_the_error_says_is_not_said_again(said: str, told: list[str]) -> None:
    verdicts = (
        verdict("max_time_us=1", Outcome.FAIL, "a is too slow, wanted less"),
        verdict("max_rel_std=1", Outcome.PASS, "a is steady"),
    )
    found = report_section(record(Measurement(timing=timing("a", 10.0), verdicts=verdicts)), said)
    assert re.findall("^  ([A-Z]+): ", found, re.MULTILINE) == told
