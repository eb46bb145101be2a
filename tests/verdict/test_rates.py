"""Rates against their limits: both sides of each, what cannot be judged, and in which words."""

from typing import Any

import pytest

from pytest_gpubench import Timing, Verdict
from pytest_gpubench.results.model import MemoryPeak, Outcome, Peaks
from pytest_gpubench.verdict.limits import Limits
from tests.results.test_roofline import BARE, MB, PEAKS, timing
from tests.verdict.judging import judge

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
INVALID, NOT_JUDGED = Outcome.INVALID, Outcome.NOT_JUDGED
MEASURED = Peaks(memory=(MemoryPeak(read_share=0.5, moved_bytes=1, gbps=4000.0),))

SPREAD = [96.0 + number / 2 for number in range(1, 21)]  # median 101.25, its interval at alpha 0.05: 99 to 103.5


def judged(what: Timing, alpha: float = 0.05, spent: float | None = None, **given: Any) -> tuple[Verdict, ...]:
    """Return the verdicts on a timing by limits and rules, told by their names."""
    limits = {name: given.pop(name) for name in list(given) if name.startswith("min_")}
    return judge(what, Limits(**limits), alpha, given.pop("enforced", True), spent, **given)


def judge_one(what: Timing, **given: Any) -> Verdict:
    [found] = judged(what, **given)
    return found


def test_what_cannot_be_true_is_invalid_whatever_the_limit() -> None:
    impossible = timing(moved_bytes=1050 * MB, flops=1)
    found = judged(impossible, min_gbps=1, min_tflops=1e9, min_peak_fraction=0.1, peaks=PEAKS, dtype="bfloat16")
    assert [verdict.outcome for verdict in found] == [INVALID] * 3
    assert found[0].sentence == (
        "softmax is faster than memory allows: 1.00 GB, what the L2 cache may keep not counted, in 100.0 us are "
        "10,000 GB/s, and this GPU's memory has at most 4,896; does it compute everything in every call? If it has "
        "less to move, say how much with bytes="
    )
    assert judge_one(impossible, min_gbps=1).outcome is PASS, "without peaks nobody knows"
    found = judged(timing(flops=2 * 10**11), min_tflops=1, peaks=PEAKS, dtype="bfloat16")
    assert found[0].sentence == (
        "softmax is faster than this GPU multiplies bfloat16: 200 GFLOP in 100.0 us are 2,000 TFLOP/s, and it has at "
        "most 1,090; does it compute everything in every call? If it has less to compute (causal attention is counted "
        "in full), say how much with flops="
    )


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


def test_too_few_reps_decide_nothing() -> None:
    found = judge_one(timing([100.0] * 5, moved_bytes=100 * MB), min_gbps=1)
    assert found.outcome is INCONCLUSIVE
    assert found.sentence == (
        "softmax cannot be judged: 1,000 GB/s, wanted at least 1 GB/s (100 MB in 100.0 us; 5 reps, too few for "
        "the 95 % interval: take at least 6)"
    )


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (677.9, "is too slow: 662.80 GB/s [648.39, 677.87], wanted at least 677.9 GB/s"),
        (3000, "is too slow: 662.8 GB/s [648.4, 677.9], wanted at least 3,000 GB/s"),
        (600, "is fast enough: 662.8 GB/s [648.4, 677.9], wanted at least 600 GB/s"),
        (660, "is too close to tell: 662.8 GB/s [648.4, 677.9], wanted at least 660 GB/s"),
    ],
)
def test_rates_in_words(wanted: float, words: str) -> None:
    found = judge_one(timing(SPREAD, moved_bytes=67108864), min_gbps=wanted)
    assert found.sentence == f"softmax {words} (67.1 MB in 101.2 us; 20 reps, 95 % interval)"
    assert found.limit == f"min_gbps={wanted!r}"
    assert judge_one(timing(SPREAD, flops=2 * 4096**3), min_tflops=2000).sentence == (
        "softmax is too slow: 1,357 TFLOP/s [1,328, 1,388], wanted at least 2,000 TFLOP/s "
        "(137 GFLOP in 101.2 us; 20 reps, 95 % interval)"
    )


def test_fraction_limits_in_words() -> None:
    found = judge_one(timing(SPREAD, moved_bytes=100 * MB), min_peak_fraction=0.8, peaks=PEAKS, read_share=0.5)
    assert found.sentence == (
        "softmax is too slow: 19.8 % [19.3 %, 20.2 %] of the 5,000 GB/s that this GPU's memory moves, wanted at least "
        "80 % (987.7 GB/s, 100 MB in 101.2 us; 20 reps, 95 % interval)"
    )
    assert found.found == "19.8 %"
    assert judge_one(timing(SPREAD, moved_bytes=0), min_peak_fraction=0.8, peaks=PEAKS).found == ""


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


MOVING, BOTH = timing(SPREAD, moved_bytes=100 * MB), timing(SPREAD, moved_bytes=300 * MB, flops=1000)


@pytest.mark.parametrize(
    ("what", "peaks", "wanted", "outcome"),
    [
        (MOVING, MEASURED, 0.2415, PASS),
        (MOVING, MEASURED, 0.2416, INCONCLUSIVE),
        (MOVING, MEASURED, 0.2525, INCONCLUSIVE),
        (MOVING, MEASURED, 0.2526, FAIL),
        (MOVING, MEASURED, 1.0, FAIL),
        # what is open is not given up for want of a matmul's peak: 300 MB in [99, 103.5] us are [2899, 3030] GB/s
        (BOTH, MEASURED, 0.7, PASS),
        (BOTH, MEASURED, 0.73, INCONCLUSIVE),
        (BOTH, MEASURED, 0.75, INCONCLUSIVE),
        (BOTH, MEASURED, 0.77, NOT_JUDGED),
        (timing(moved_bytes=1000), None, 0.5, NOT_JUDGED),
        (timing(moved_bytes=1000), Peaks(remarks=("memory: not measured",)), 0.5, NOT_JUDGED),
        (timing(flops=1000), PEAKS, 0.5, NOT_JUDGED),
        (timing(moved_bytes=1000, flops=1000), PEAKS, 0.5, NOT_JUDGED),  # of the matmuls' peak it may be more
        (timing(moved_bytes=300 * MB, flops=1000), PEAKS, 0.5, PASS),
        (timing(moved_bytes=1000, flops=1000), BARE, 0.5, NOT_JUDGED),
    ],
)
def test_both_sides_of_a_fraction(what: Timing, peaks: Peaks | None, wanted: float, outcome: Outcome) -> None:
    found = judge_one(what, min_peak_fraction=wanted, peaks=peaks, dtype="float64")
    assert found.outcome is outcome
    if peaks is not None and peaks.remarks:
        assert found.sentence.endswith("for memory is not known (memory: not measured)")
