"""Rates against peaks: which roof is meant, what cannot be true, both sides of each limit, and in which words."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import fraction_limit
from pytest_gpubench.results.model import MemoryPeak, Outcome, Peaks, Timing, Verdict
from pytest_gpubench.results.roofline import (
    grouped,
    highest_gbps,
    highest_tflops,
    judge_speed,
    matmul_tflops,
    memory_gbps,
    peak_fraction,
    too_fast,
)

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
INVALID, NOT_JUDGED = Outcome.INVALID, Outcome.NOT_JUDGED

MB = 10**6
SPREAD = [
    96.0 + number / 2 for number in range(1, 21)
]  # median 101.25, interval of the median at alpha 0.05: 99 to 103.5

POINTS = tuple(
    MemoryPeak(read_share=share, moved_bytes=size * MB, gbps=gbps)
    for share, size, gbps in [
        (0.5, 10, 3000.0),  # launching takes its part
        (0.5, 100, 5000.0),  # the cache keeps much of what is written
        (0.5, 1000, 4000.0),
        (1.0, 10, 2500.0),
        (1.0, 100, 4200.0),
        (1.0, 1000, 4400.0),
    ]
)
PEAKS = Peaks(
    copy_gbps=4000.0,
    read_gbps=4400.0,
    matmul_tflops={"bfloat16": 800.0, "float32": 50.0},
    datasheet_gbps=4800.0,
    datasheet_tflops={"bfloat16": 989.4, "float32": 66.9, "tfloat32": 494.7},
    boost=1.08,
    memory=POINTS,
    cache_bytes=50 * MB,
)
BARE = Peaks(copy_gbps=4000.0, read_gbps=4400.0, matmul_tflops={"bfloat16": 800.0, "float32": 50.0})


def timing(samples_us: list[float] | None = None, **given: Any) -> Timing:
    base = Timing(label="softmax", timer="profiler", cache="cold", device="NVIDIA H200")
    return msgspec.structs.replace(base, samples_us=tuple(samples_us or [100.0] * 20), **given)


def judge_one(what: Timing, alpha: float = 0.05, **given: Any) -> Verdict:
    [found] = judge_speed(what, alpha, **given)
    return found


# the roof


@pytest.mark.parametrize(
    ("megabytes", "read_share", "gbps"),
    [
        (1000, 0.5, 4000),
        (5000, 0.5, 4000),
        (999, 0.5, 5000),
        (100, 0.5, 5000),
        (99, 0.5, 5000),
        (1, 0.5, 5000),
        (1000, 1.0, 4400),
        (1, 1.0, 4400),
        (1000, None, 4400),
        (100, None, 5000),
        (1000, 0.0, 4000),
        (1000, 0.75, 2 / (1 / 4000 + 1 / 4400)),
    ],
)
def test_the_fastest_at_this_size_or_above(megabytes: int, read_share: float | None, gbps: float) -> None:
    assert memory_gbps(PEAKS, megabytes * MB, read_share) == pytest.approx(gbps)


@pytest.mark.parametrize(("read_share", "gbps"), [(0.5, 4000), (1.0, 4400), (None, 4400), (0.2, 4000)])
def test_without_points_copy_and_reader_stand_for_all(read_share: float | None, gbps: float) -> None:
    assert memory_gbps(BARE, 1, read_share) == pytest.approx(gbps)
    assert memory_gbps(Peaks(), 1, read_share) is None


@given(st.floats(0, 1), st.integers(1, 2 * 10**9))
def test_a_share_between_lies_between_and_unknown_is_no_slower(read_share: float, size: int) -> None:
    rates = [memory_gbps(PEAKS, size, share) for share in (0.5, 1.0, read_share, None)]
    copy, read, between, unknown = [rate for rate in rates if rate is not None]
    assert min(copy, read) * (1 - 1e-9) <= between <= max(copy, read) * (1 + 1e-9)
    assert unknown * (1 + 1e-9) >= between


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(0, 1))
def test_more_bytes_are_never_promised_a_higher_rate(one: int, other: int, share: float) -> None:
    less, more = (memory_gbps(PEAKS, size, share) for size in sorted([one, other]))
    assert less is not None
    assert more is not None
    assert less >= more * (1 - 1e-9)


def test_float32_is_held_against_what_torch_makes_of_it() -> None:
    assert matmul_tflops(PEAKS, "float32") == 50
    assert matmul_tflops(Peaks(matmul_tflops={"tfloat32": 400.0}), "float32") == 400
    assert matmul_tflops(Peaks(matmul_tflops={"tfloat32": 400.0}), "bfloat16") is None


@pytest.mark.parametrize(
    ("given", "dtype", "value", "bound"),
    [
        ({"moved_bytes": 1000 * MB}, None, 0.5, "memory"),
        ({"flops": 4 * 10**11}, "bfloat16", 1.0, "matmul"),
        ({"moved_bytes": 1000 * MB, "flops": 10**11}, "bfloat16", 0.5, "memory"),
        ({"moved_bytes": 1000 * MB, "flops": 3 * 10**11}, "bfloat16", 0.75, "matmul"),
        ({"moved_bytes": 1000 * MB, "flops": 3 * 10**11}, "float64", 0.5, "memory"),
        ({"moved_bytes": 1000 * MB, "flops": 10**11, "cache": "hot"}, "bfloat16", 0.25, "matmul"),
        ({"moved_bytes": 1000 * MB, "cache": "dirty"}, None, 0.5, "memory"),
    ],
)
def test_the_larger_part_says_what_bounds_it(given: dict[str, Any], dtype: str, value: float, bound: str) -> None:
    found = peak_fraction(timing([500.0] * 20, **given), PEAKS, dtype, 0.5)
    assert found is not None
    assert found.value == pytest.approx(value)
    assert found.bound == bound
    assert found.rate / found.peak == pytest.approx(found.value)


@pytest.mark.parametrize("given", [{}, {"flops": 1}, {"moved_bytes": 1, "cache": "hot"}])
def test_no_part_without_a_peak_or_work(given: dict[str, Any]) -> None:
    assert peak_fraction(timing(**given), PEAKS, "float64") is None
    assert peak_fraction(timing(moved_bytes=1), Peaks()) is None


def test_fractions_in_words() -> None:
    assert str(peak_fraction(timing([500.0], moved_bytes=1000 * MB), PEAKS, None, 0.5)) == (
        "50.0 % of the 4,000 GB/s that this GPU's memory moves"
    )
    assert str(peak_fraction(timing([500.0], flops=10**11), PEAKS, "bfloat16")) == (
        "25.0 % of the 800.0 TFLOP/s that this GPU's bfloat16 matmuls reach"
    )


def test_peaks_survive_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(PEAKS), type=Peaks) == PEAKS
    assert msgspec.json.encode(Peaks()) == b"{}"


# physics


@pytest.mark.parametrize(
    ("peaks", "gbps"),
    [
        (PEAKS, 1.02 * 4800),
        (BARE, 1.1 * 4400),
        (msgspec.structs.replace(PEAKS, read_gbps=4700.0), 1.1 * 4700),
        (Peaks(datasheet_gbps=1000.0), 1020),
        (Peaks(), None),
    ],
)
def test_highest_gbps(peaks: Peaks, gbps: float | None) -> None:
    assert highest_gbps(peaks) == (None if gbps is None else pytest.approx(gbps))


@pytest.mark.parametrize(
    ("peaks", "dtype", "tflops"),
    [
        (PEAKS, "bfloat16", 1.02 * 1.08 * 989.4),
        (PEAKS, "float32", 1.02 * 1.08 * 494.7),
        (PEAKS, "tfloat32", 1.02 * 1.08 * 494.7),
        (PEAKS, "float64", None),
        (PEAKS, None, None),
        (BARE, "bfloat16", 1.3 * 800),
        (BARE, "float32", None),
        (msgspec.structs.replace(PEAKS, matmul_tflops={"bfloat16": 1000.0}), "bfloat16", 1.1 * 1000),
    ],
)
def test_highest_tflops(peaks: Peaks, dtype: str | None, tflops: float | None) -> None:
    assert highest_tflops(peaks, dtype) == (None if tflops is None else pytest.approx(tflops))


AT_THE_LIMIT = int(1.02 * 4800 * 100e3)


@pytest.mark.parametrize(
    ("given", "invalid"),
    [
        ({"moved_bytes": AT_THE_LIMIT + 50 * MB - 1000}, False),
        ({"moved_bytes": AT_THE_LIMIT + 50 * MB + 1000}, True),
        ({"moved_bytes": 10 * AT_THE_LIMIT, "cache": "hot"}, False),
        ({"moved_bytes": 10 * AT_THE_LIMIT, "cache": "dirty"}, True),
        ({"moved_bytes": 49 * MB, "samples_us": (1.0,) * 20}, False),
        ({"flops": int(1.02 * 1.08 * 989.4 * 99.9e6)}, False),
        ({"flops": int(1.02 * 1.08 * 989.4 * 100.1e6)}, True),
        ({"flops": 10**14, "cache": "hot"}, True),
        ({}, False),
    ],
)
def test_too_fast(given: dict[str, Any], invalid: bool) -> None:
    found = too_fast(timing(**given), PEAKS, "bfloat16")
    assert (found is not None) is invalid


def test_as_slow_as_its_interval_allows() -> None:
    work = AT_THE_LIMIT + 50 * MB + 1000
    mostly = [90.0] * 12 + [101.0] * 8
    assert too_fast(timing(mostly, moved_bytes=work), PEAKS) is None
    assert too_fast(timing(mostly, moved_bytes=work), PEAKS, alpha=0.9) is not None
    assert too_fast(timing([90.0, 99.0], moved_bytes=work), PEAKS) is not None
    assert too_fast(timing([90.0, 101.0], moved_bytes=work), PEAKS) is None


def test_what_cannot_be_true_is_invalid_whatever_the_limit() -> None:
    impossible = timing(moved_bytes=1050 * MB, flops=1)
    found = judge_speed(
        impossible, 0.05, min_gbps=1, min_tflops=1e9, min_peak_fraction=0.1, peaks=PEAKS, dtype="bfloat16"
    )
    assert [verdict.outcome for verdict in found] == [INVALID] * 3
    assert found[0].sentence == (
        "softmax is faster than memory allows: 1.00 GB, what the L2 cache may keep not counted, in 100.0 us are "
        "10,000 GB/s, and this GPU's memory has at most 4,896; does it compute everything in every call? If it has "
        "less to move, say how much with bytes="
    )
    assert judge_one(impossible, min_gbps=1).outcome is PASS, "without peaks nobody knows"
    found = judge_speed(timing(flops=2 * 10**11), 0.05, min_tflops=1, peaks=PEAKS, dtype="bfloat16")
    assert found[0].sentence == (
        "softmax is faster than this GPU multiplies bfloat16: 200 GFLOP in 100.0 us are 2,000 TFLOP/s, and it has at "
        "most 1,090; does it compute everything in every call? If it has less to compute (causal attention is counted "
        "in full), say how much with flops="
    )


# limits


@pytest.mark.parametrize(
    ("wanted", "outcome"),
    [
        (100, PASS),
        (1e5 / 103.5 * 0.999, PASS),
        (1e5 / 103.5 * 1.001, INCONCLUSIVE),
        (1e5 / 99 * 0.999, INCONCLUSIVE),
        (1e5 / 99 * 1.001, FAIL),
        (5000, FAIL),
    ],
)
def test_both_sides_of_a_rate(wanted: float, outcome: Outcome) -> None:
    assert judge_one(timing(SPREAD, moved_bytes=100 * MB), min_gbps=wanted).outcome is outcome
    assert judge_one(timing(SPREAD, flops=10**11), min_tflops=wanted).outcome is outcome


@pytest.mark.parametrize(
    ("wanted", "outcome"),
    [(0.2415, PASS), (0.2416, INCONCLUSIVE), (0.2525, INCONCLUSIVE), (0.2526, FAIL), (1.0, FAIL)],
)
def test_both_sides_of_a_fraction(wanted: float, outcome: Outcome) -> None:
    what = timing(SPREAD, moved_bytes=100 * MB)
    peaks = Peaks(copy_gbps=4000.0)
    assert judge_one(what, min_peak_fraction=wanted, peaks=peaks).outcome is outcome


def test_exactly_at_the_limit_is_kept() -> None:
    assert judge_one(timing(moved_bytes=100 * MB), min_gbps=1000).outcome is PASS


def test_too_few_reps_decide_nothing() -> None:
    found = judge_one(timing([100.0] * 5, moved_bytes=100 * MB), min_gbps=1)
    assert found.outcome is INCONCLUSIVE
    assert found.sentence == (
        "softmax cannot be judged: 1,000 GB/s, wanted at least 1.000 GB/s (100 MB in 100.0 us; 5 reps, too few to "
        "decide: take at least 6, alpha 0.05)"
    )


def test_a_look_spends_its_part_of_alpha() -> None:
    what = timing([100.0] * 7, moved_bytes=100 * MB)
    assert judge_one(what, min_gbps=1).outcome is PASS
    assert judge_one(what, min_gbps=1, spent=0.01).outcome is INCONCLUSIVE


@pytest.mark.parametrize(
    ("samples_us", "wanted", "words"),
    [
        (SPREAD, 3000, "is too slow: 662.8 GB/s [648.4, 677.9], wanted at least 3,000 GB/s"),
        (SPREAD, 600, "is fast enough: 662.8 GB/s [648.4, 677.9], wanted at least 600.0 GB/s"),
        (SPREAD, 660, "is too close to tell: 662.8 GB/s [648.4, 677.9], wanted at least 660.0 GB/s"),
    ],
)
def test_rates_in_words(samples_us: list[float], wanted: float, words: str) -> None:
    found = judge_one(timing(samples_us, moved_bytes=67108864), min_gbps=wanted)
    assert found.sentence == f"softmax {words} (67.1 MB in 101.2 us; 20 reps, alpha 0.05)"
    assert found.limit == f"min_gbps={wanted!r}"


def test_tflops_in_words() -> None:
    assert judge_one(timing(SPREAD, flops=2 * 4096**3), min_tflops=2000).sentence == (
        "softmax is too slow: 1,357 TFLOP/s [1,328, 1,388], wanted at least 2,000 TFLOP/s "
        "(137 GFLOP in 101.2 us; 20 reps, alpha 0.05)"
    )


def test_fraction_limits_in_words() -> None:
    found = judge_one(timing(SPREAD, moved_bytes=100 * MB), min_peak_fraction=0.8, peaks=PEAKS, read_share=0.5)
    assert found.sentence == (
        "softmax is too slow: 19.8 % [19.3 %, 20.2 %] of the 5,000 GB/s that this GPU's memory moves, wanted at least "
        "80.0 % (987.7 GB/s, 100 MB in 101.2 us; 20 reps, alpha 0.05)"
    )


@pytest.mark.parametrize(
    ("limits", "given", "words"),
    [
        ({"min_gbps": 1}, {"flops": 1}, "min_gbps=1 cannot be judged, its bytes are not known: give bytes="),
        ({"min_tflops": 1}, {"moved_bytes": 1}, "min_tflops=1 cannot be judged, its flops are not known: give flops="),
        ({"min_peak_fraction": 0.5}, {}, "its bytes and flops are not known: give bytes= or flops="),
        ({"min_peak_fraction": 0.5}, {"moved_bytes": 1, "cache": "hot"}, "cache='hot'"),
    ],
)
def test_what_is_missing_is_asked_for(limits: dict[str, float], given: dict[str, Any], words: str) -> None:
    found = judge_one(timing(**given), peaks=PEAKS, **limits)
    assert found.outcome is INVALID
    assert words in found.sentence


@pytest.mark.parametrize(
    ("given", "peaks", "outcome"),
    [
        ({"moved_bytes": 1000}, None, NOT_JUDGED),
        ({"moved_bytes": 1000}, Peaks(remarks=("memory: not measured",)), NOT_JUDGED),
        ({"flops": 1000}, PEAKS, NOT_JUDGED),
        ({"moved_bytes": 1000, "flops": 1000}, PEAKS, NOT_JUDGED),  # of the matmuls' peak it may be more
        ({"moved_bytes": 300 * MB, "flops": 1000}, PEAKS, PASS),
        ({"moved_bytes": 1000, "flops": 1000}, BARE, NOT_JUDGED),
    ],
)
def test_no_peak_no_judgement(given: dict[str, Any], peaks: Peaks | None, outcome: Outcome) -> None:
    found = judge_one(timing(**given), min_peak_fraction=0.5, peaks=peaks, dtype="float64")
    assert found.outcome is outcome
    if peaks is not None and peaks.remarks:
        assert found.sentence.endswith("for memory is not known (memory: not measured)")


@pytest.mark.parametrize(
    ("wanted", "outcome"), [(0.7, PASS), (0.73, INCONCLUSIVE), (0.75, INCONCLUSIVE), (0.77, NOT_JUDGED)]
)
def test_more_reps_may_show_that_memory_alone_is_enough(wanted: float, outcome: Outcome) -> None:
    """What is open is not given up for want of a matmul's peak: 300 MB in [99, 103.5] us are [2899, 3030] GB/s."""
    peaks = Peaks(copy_gbps=4000.0, read_gbps=4000.0)
    found = judge_one(timing(SPREAD, moved_bytes=300 * MB, flops=1000), min_peak_fraction=wanted, peaks=peaks)
    assert found.outcome is outcome


@pytest.mark.parametrize("name", ["min_gbps", "min_tflops", "min_peak_fraction"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "fast"])
def test_limits_that_cannot_be_meant(name: str, value: object) -> None:
    asked: dict[str, Any] = {name: value}
    with pytest.raises(BadRequest, match=rf"perf\({name}="):
        judge_one(timing(moved_bytes=1, flops=1), peaks=PEAKS, **asked)


def test_a_fraction_is_at_most_one() -> None:
    assert fraction_limit(1) == 1.0
    with pytest.raises(ValueError, match="at most 1"):
        fraction_limit(1.0001)


def test_no_limit_no_verdict_and_enforced_is_passed_on() -> None:
    assert judge_speed(timing(), 0.05, peaks=PEAKS) == ()
    assert not judge_one(timing(moved_bytes=1), min_gbps=1, enforced=False).enforced


@pytest.mark.parametrize(
    ("value", "text"), [(2310.4, "2,310"), (12345.6, "12,350"), (999.96, "1,000"), (0.01234, "0.01234"), (0, "0")]
)
def test_grouped(value: float, text: str) -> None:
    assert grouped(value) == text
