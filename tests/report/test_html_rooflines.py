"""The rooflines of the page: which calls have a place, and what they lie under."""

from typing import Any

import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.results.model import MemoryPeak, Outcome, Peaks, TestRecord
from tests.report.page import content_of
from tests.results.measured import alone, facts, pair, record, timing_of, verdict

MB = 10**6
PEAKS = Peaks(
    matmul_tflops={"float32": 52.0, "bfloat16": 790.0, "float16": 751.0, "float8_e4m3fn": 1580.0, "tfloat32": 713.0},
    memory=(
        MemoryPeak(read_share=0.5, moved_bytes=MB, gbps=5000.0),
        MemoryPeak(read_share=0.5, moved_bytes=100 * MB, gbps=4000.0),
    ),
)
OTHER_GPU = facts("NVIDIA A100")


def call(us: float = 100.0, moved_bytes: int = 10 * MB, flops: int = 20 * MB, **others: Any) -> Measurement:
    return alone(us=us, moved_bytes=moved_bytes, flops=flops, **others)


def roof_of(*records: TestRecord) -> dict[str, Any]:
    (found,) = content_of(*records)["rooflines"]
    return dict(found)


def test_calls_are_found_by_their_test_and_place() -> None:
    records = [record(call(), alone()), record(alone()), record(alone(), call(), nodeid="b.py::test_b")]
    roof = roof_of(*records)
    assert (roof["device"], roof["points"], roof["more"]) == ("NVIDIA H200", [[0, 0], [2, 1]], 0)


@pytest.mark.parametrize(
    "item",
    [
        *[call(cache=cache) for cache in ("hot", "producer f")],
        *[call(**{work: 0}) for work in ("flops", "moved_bytes")],
        Measurement(timing=call().timing, verdicts=(verdict("too fast", Outcome.INVALID),)),
        Measurement(timing=timing_of(moved_bytes=MB, flops=MB, unmeasured="off")),
    ],
)
def test_what_reads_no_memory_or_has_no_number_that_can_be_true_has_no_place(item: Measurement) -> None:
    content = content_of(record(item))
    assert content["rooflines"] == []
    assert 0 not in content["tests"][0]["items"][0].values()


def test_references_have_a_place_too() -> None:
    arms = [Measurement(timing=call().timing, role=item.role, speedup=item.speedup) for item in pair("triton", 90)]
    assert roof_of(record(*arms))["points"] == [[0, 0], [0, 1]]


@pytest.mark.parametrize(("moved_bytes", "gbps"), [(99 * MB, 5000), (100 * MB, 4000)])
def test_the_roof_of_memory_is_that_of_the_largest_call(moved_bytes: int, gbps: float) -> None:
    roof = roof_of(record(call()), record(call(us=1e6, moved_bytes=moved_bytes), peaks=PEAKS))
    assert (roof["measured"], roof["gbps"]) == (True, gbps)


def test_matmuls_of_nearly_the_same_rate_share_a_roof() -> None:
    assert roof_of(record(call(), peaks=PEAKS))["tflops"] == [
        ["float8_e4m3fn", 1580], ["bfloat16, float16", 790], ["tfloat32", 713], ["float32", 52],
    ]  # fmt: skip


def test_of_two_measurements_of_the_peaks_the_higher_counts() -> None:
    lower = Peaks(matmul_tflops={"float32": 60.0}, memory=(MemoryPeak(read_share=1.0, moved_bytes=MB, gbps=3000.0),))
    roof = roof_of(record(call(), peaks=lower), record(call(), peaks=PEAKS))
    assert (roof["gbps"], dict(roof["tflops"])["float32"]) == (5000, 60)


def test_without_measured_peaks_the_most_that_a_call_reached_stands_for_them() -> None:
    roof = roof_of(record(call(us=100)), record(call(us=50)), record(call(us=100, flops=200 * MB)))
    assert (roof["measured"], roof["gbps"], roof["tflops"][0][0]) == (False, pytest.approx(200, 0.01), "")
    assert [rate for _, rate in roof["tflops"]] == pytest.approx([2], 0.01)


def test_each_device_has_its_own() -> None:
    records = record(call()), record(call(), device=OTHER_GPU), record(alone(), device=facts("L4"))
    assert [(each["device"], each["points"]) for each in content_of(*records)["rooflines"]] == [
        ("NVIDIA H200", [[0, 0]]),
        ("NVIDIA A100", [[1, 0]]),
    ]


def test_very_many_are_not_all_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpubench.report.html.page.MOST_POINTS", 2)
    roof = roof_of(record(call(), call(), call()))
    assert (roof["points"], roof["more"]) == ([[0, 0], [0, 1]], 1)
