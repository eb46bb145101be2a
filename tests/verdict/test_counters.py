"""Limits on counters and their change: both sides of each, what differs from capture to capture, what says nothing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pytest_gpubench import Measurement, Timing, Verdict
from pytest_gpubench.cli.compare import compare_runs
from pytest_gpubench.report.table import limit_text
from pytest_gpubench.results.counterpart import KeyReader
from pytest_gpubench.results.model import Counts, Outcome, TestRecord
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.limits.base import Seen
from pytest_gpubench.verdict.reasons import reasons
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.rounds import judge_rounds
from pytest_gpubench.verdict.saved_runs import BaselineLimit, compare_with_baseline
from tests.results.measured import BARE_GPU as GPU
from tests.results.measured import present, run, timing_of
from tests.verdict.test_rounds import TEST, take
from tests.verdict.test_saved_runs import known, reps

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
INVALID, NOT_JUDGED = Outcome.INVALID, Outcome.NOT_JUDGED
MIB = 2**20
CACHE = 50 * MIB


def counting(captures: dict[str, Sequence[float]] | Counts | None, **others: Any) -> Timing:
    if isinstance(captures, dict):
        captures = Counts(captures={name: tuple(of) for name, of in captures.items()}, cache_bytes=CACHE)
    return timing_of((5.0,), "norm", counts=captures, **others)


def judged(limits: Limits, timing: Timing) -> list[Verdict]:
    return list(limits.judge("counters", Seen(timing)))


@pytest.mark.parametrize(
    ("limit", "captures", "outcome", "words"),
    [
        ({"max_instructions": 1000}, [1000] * 3, PASS, "executes 1,000 instructions, wanted at most 1,000 (3 captures"),
        ({"max_instructions": 999}, [1000] * 3, FAIL, "1,000 instructions, wanted at most 999 (3 captures, all the"),
        ({"max_instructions": 1e3}, [1000, 1001, 1000], INCONCLUSIVE, "(3 captures that differ by 0.10 %)"),
        ({"max_instructions": 1e3}, [1001, 1001, 1002], FAIL, "executes 1,001 instructions"),
        ({"max_instructions": {"H200": 1000}}, [1000], PASS, "(1 capture)"),
        ({"max_dram_bytes": "64MiB"}, [64 * MIB], PASS, "reads 64 MiB from memory, wanted at most 64 MiB (1 capture)"),
        ({"max_dram_bytes": 64 * MIB - 1}, [64 * MIB], FAIL, "reads 67,108,864 B from memory, wanted at most 67,108,8"),
        ({"max_dram_bytes": "1.28x"}, [64 * MIB], PASS, "at most 64 MiB, 1.28x of the 50 MiB that it has to read"),
        ({"max_dram_bytes": "1.27x"}, [64 * MIB], FAIL, "at most 63.5 MiB, 1.27x of the 50 MiB that it has to read"),
        ({"max_counters": {"atomics": 0}}, [0, 0], PASS, "has atomics of 0, wanted at most 0 (2 captures, all the sa"),
        ({"max_counters": {"atomics": 0}}, [1, 1], FAIL, "has atomics of 1, wanted at most 0"),
    ],
)
def test_both_sides_of_a_limit(limit: dict[str, Any], captures: list[float], outcome: Outcome, words: str) -> None:
    limits = Limits(**limit)
    (name,) = next(iter(limits)).counters
    timing = counting({name: captures}, device="NVIDIA H200", read_bytes=50 * MIB)
    (found,) = judged(limits, timing)
    assert found.outcome is outcome
    assert words in found.sentence
    assert limit_text(found, Measurement(timing=timing)).startswith(f"{found.found} <= ")


def test_several_counters_have_a_verdict_each() -> None:
    limits = Limits(max_counters={"atomics": 0, "smsp__cycles_active.sum": 10})
    found = judged(limits, counting({"atomics": [0], "smsp__cycles_active.sum": [11]}))
    assert [(each.asked, each.outcome) for each in found] == [
        ("{'atomics': 0}", PASS),
        ("{'smsp__cycles_active.sum': 10}", FAIL),
    ]


@pytest.mark.parametrize(
    ("limit", "counts", "outcome", "words"),
    [
        ({"max_instructions": 1}, None, NOT_JUDGED, "its counters were not taken"),
        ({"max_instructions": 1}, Counts(untaken="no ncu"), NOT_JUDGED, "was not judged by max_instructions=1: no ncu"),
        ({"max_instructions": 1}, Counts(wrong="NaN"), INVALID, "max_instructions=1 cannot be judged: NaN"),
        ({"max_instructions": {"A100": 1}}, {"instructions": [1]}, NOT_JUDGED, "no max_instructions for"),
        ({"max_dram_bytes": "1x"}, {"dram_read_bytes": [CACHE]}, NOT_JUDGED, "not known how many bytes it has to read"),
        ({"max_dram_bytes": "1GiB"}, {"dram_read_bytes": [CACHE - 1]}, NOT_JUDGED, "50 MiB that it reads fit into"),
        ({"max_dram_bytes": "1GiB"}, {"dram_read_bytes": [CACHE]}, PASS, "reads 50 MiB"),
    ],
)
def test_what_says_nothing_is_no_pass(limit: dict[str, Any], counts: Any, outcome: Outcome, words: str) -> None:
    (found,) = judged(Limits(**limit), counting(counts))
    assert (found.outcome, words in found.sentence) == (outcome, True), found.sentence


def counted(*captures: float, name: str = "instructions") -> Measurement:
    return Measurement(timing=counting({name: captures}))


def change(tolerance: str, old: Measurement, *news: Measurement) -> Change:
    earlier = [TestRecord(nodeid="t", device=GPU, measurements=(each,)) for each in news[:-1]]
    limit = BaselineLimit(known(old), parse_tolerance(tolerance), "max_regression", tolerance, earlier)
    (found,) = compare_with_baseline(limit, KeyReader().read_after([], news[-1:]), news[-1:], 0.001, True)
    return found


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ([1000, 1000], [1001, 1001], PASS),
        ([1000, 1000], [1002, 1002], FAIL),
        ([1000, 1000], [900, 900], PASS),
        ([1000, 1000], [1000, 1004], INCONCLUSIVE),
        ([1000, 1000], [1000, 1000.9], INCONCLUSIVE),
        ([1000, 1000], [1000, 1000.4], PASS),
        ([1000, 1010], [1020, 1022], INCONCLUSIVE),
        ([1000, 1010], [1030, 1032], FAIL),
        ([0, 0], [0, 0], PASS),
        ([0, 0], [1, 1], FAIL),
        ([0, 0], [0, 1], INCONCLUSIVE),
        ([0, 5], [9, 9], INCONCLUSIVE),
        ([0, 5], [0, 0], INCONCLUSIVE),
        ([5, 5], [0, 0], PASS),
    ],
)
def test_a_change_is_judged_by_what_captures_allow(old: list[float], new: list[float], outcome: Outcome) -> None:
    found = change("instructions:0.1%", counted(*old), counted(*new), counted(*new))
    assert found.outcome is outcome, found.sentence
    assert present(found.new).verdicts[0].outcome is outcome


def test_a_fail_is_one_of_two_processes_that_agree() -> None:
    old = counted(1000, 1000, 1000)
    first = change("instructions:0.1%", old, counted(1010, 1010, 1010))
    assert (first.outcome, first.further) == (INCONCLUSIVE, 1)
    assert first.sentence.endswith("(3 and 3 captures, each the same); a second process has to confirm it")
    both = change("instructions:0.1%", old, counted(1010, 1010, 1010), counted(1010, 1010, 1010))
    assert (both.outcome, both.further) == (FAIL, 0)
    assert both.sentence == (
        "norm executes 1,010 instructions against 1,000 in the baseline 'main': 1.010x, wanted at most 1.001x "
        "(6 and 3 captures in 2 processes, each the same)"
    )
    near = change("instructions:0.1%", old, counted(1002), counted(1002)).sentence
    assert ": 1.002x, wanted at most 1.001x" in near
    apart = change("instructions:0.1%", old, counted(1010, 1010, 1010), counted(990, 990, 990))
    assert (apart.outcome, apart.further) == (INCONCLUSIVE, 0)
    assert "(6 and 3 captures in 2 processes that differ by 2.0 %)" in apart.sentence


def test_what_counted_nothing_before_fails_in_two_processes_too() -> None:
    """As where an autotuner chose to spill in one; of a ratio that is no number nothing is kept."""
    old, new = counted(0, 0), counted(4, 4)
    first, both = change("instructions:0.1%", old, new), change("instructions:0.1%", old, new, new)
    assert [(each.outcome, each.further) for each in (first, both)] == [(INCONCLUSIVE, 1), (FAIL, 0)]
    assert both.sentence == (
        "norm executes 4 instructions against 0 in the baseline 'main', wanted at most 1.001x (4 and 2 captures in 2 "
        "processes, each the same)"
    )
    assert present(both.new).change is None
    apart = change("instructions:0.1%", old, new, old)
    assert (apart.outcome, apart.further) == (INCONCLUSIVE, 0)


@pytest.mark.parametrize("now", [0, 4])
def test_a_reference_is_not_judged_by_its_counters(now: int) -> None:
    items = (structs.replace(counted(each), role="reference") for each in (0, now))
    old, new = (run(TestRecord(nodeid="t", device=GPU, measurements=(item,))) for item in items)
    (found,) = compare_runs(old, new, parse_tolerance("instructions:1%"), 0.001)
    assert (found.outcome, found.sentence.startswith("the reference is not judged: ")) == (NOT_JUDGED, True)


@pytest.mark.parametrize(
    ("old", "new", "outcome", "words"),
    [
        (Measurement(timing=counting(None)), counted(1), NOT_JUDGED, "save a new one with --gpu-bench-counters=all"),
        (counted(1), Measurement(timing=counting(Counts(untaken="no ncu"))), NOT_JUDGED, "instructions:1%: no ncu"),
        (counted(1), Measurement(timing=counting(Counts(wrong="NaN"))), INVALID, "cannot be judged: NaN"),
        (Measurement(timing=counting(Counts(wrong="NaN"))), counted(1), INVALID, "of the baseline 'main' cannot be"),
        (counted(1, name="atomics"), counted(1), NOT_JUDGED, "instructions was not taken, or ncu has none"),
    ],
)
def test_an_unknown_change_is_no_pass(old: Measurement, new: Measurement, outcome: Outcome, words: str) -> None:
    found = change("instructions:1%", old, new)
    assert (found.outcome, words in found.sentence) == (outcome, True), found.sentence
    assert (found.missing is not None) == (outcome is NOT_JUDGED)


BESIDE, HOT = {"neighbours": "pid 7 computed"}, {"throttle_reasons": ("SwPowerCap",)}


@pytest.mark.parametrize(
    ("tolerance", "surroundings", "now", "outcome"),
    [
        # a throttled GPU counts as ever, and its times say nothing of the code
        ("instructions:1%", HOT, 2.0, FAIL),
        ("dram_read_bytes:1%", HOT, 2.0, FAIL),
        ("median:1%", HOT, 2.0, INVALID),
        # what the cache does not hold is more beside another process
        ("instructions:1%", BESIDE, 2.0, FAIL),
        ("load_sectors:1%", BESIDE, 2.0, FAIL),
        ("dram_read_bytes:1%", BESIDE, 2.0, INVALID),
        ("dram_read_bytes:1%", BESIDE, 1.0, PASS),
        ("l2_bytes:1%", BESIDE, 2.0, INVALID),
    ],
)
def test_surroundings_invalidate(tolerance: str, surroundings: dict[str, Any], now: float, outcome: Outcome) -> None:
    name = tolerance.partition(":")[0]
    old, new = (
        Measurement(timing=reps("norm", 10.0 * times, counts=Counts(captures={name: (1e9 * times,) * 3}), **others))
        for times, others in ((1.0, {}), (now, surroundings))
    )
    limit = BaselineLimit(known(old), parse_tolerance(tolerance), "max_regression", repr(tolerance))
    limit = replace(limit, earlier=[TestRecord(nodeid="t", device=GPU, measurements=(new,))])
    (found,) = compare_with_baseline(limit, KeyReader().read_after([], [new]), [new], 0.001, True, "fail")
    assert found.outcome is outcome
    assert ("says more about the GPU" in found.sentence) is (outcome is INVALID)
    assert all(name in each.asked for each in present(found.new).verdicts)


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    st.sampled_from(["0.1%", "5%", "100%"]),
)
def test_no_change_fails_whose_captures_overlap(old: list[int], new: list[int], allowed: str) -> None:
    found = change(f"instructions:{allowed}", counted(*old), counted(*new), counted(*new))
    if found.outcome is FAIL:
        assert min(new) > max(old)
    if found.outcome is PASS:
        assert max(new) <= min(old) * (1 + float(allowed[:-1]) / 100)


@pytest.mark.parametrize(("extra", "runs", "outcome"), [(2, 4, FAIL), (2, 2, INCONCLUSIVE), (1, 2, PASS)])
def test_commits_are_compared_by_counters(extra: int, runs: int, outcome: Outcome) -> None:
    """One run of each version passes; a FAIL has to be seen in two."""
    taken = take(lambda arm, number: (counted(1000 + extra * (arm == "HEAD")),), rounds=2)[:runs]
    (found,) = judge_rounds(taken, parse_tolerance("instructions:0.1%"), 0.01)
    assert (found.nodeid, found.outcome) == (TEST, outcome)


@pytest.mark.parametrize(("name", "outcome"), [("instructions", PASS), ("dram_read_bytes", INVALID)])
def test_between_commits_a_counter_that_others_do_not_change_is_compared(name: str, outcome: Outcome) -> None:
    captures = Counts(captures={name: (1e9,) * 3})
    item = Measurement(timing=timing_of((5.0,), "norm", counts=captures, neighbours="pid 7 computed"))
    (found,) = judge_rounds(take(lambda arm, number: (item,), rounds=1)[:2], parse_tolerance(f"{name}:1%"), 0.01)
    assert found.outcome is outcome


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("instructions", (1000, 1100), (1110, 1300), None),  # which captures leave open
        ("dram_read_bytes", 256 * MIB, 512 * MIB, "reads 2.0x the bytes from memory: 256 MiB -> 512 MiB"),
        ("dram_read_bytes", 20 * MIB, 49 * MIB, None),
        ("instructions", 1000, 1051, "executes 1.1x the instructions: 1,000 -> 1,051"),
        ("instructions", 1000, 1050, None),
        ("instructions", 1000, 500, None),
        ("local_loads", 0, 64, "makes the loads from local memory: 0 -> 64"),
        ("atomics", 8, 64, "makes 8.0x the atomic operations: 8 -> 64"),
        ("loads", 8, 32, "makes 4.0x the loads from memory: 8 -> 32"),
        ("stores", 8, 16, "makes 2.0x the stores to memory: 8 -> 16"),
        ("divergent_branches", 0, 64, "takes the branches that part a warp: 0 -> 64"),
        ("l2_bytes", 8, 16, None),
    ],
)
def test_a_slower_call_that_counts_more_says_so(name: str, old: Any, new: Any, words: str | None) -> None:
    before, now = (counted(*(of if isinstance(of, tuple) else (of,)), name=name) for of in (old, new))
    assert reasons(before, now) == (() if words is None else (words,))
    assert reasons(Measurement(timing=counting(None)), now) == ()
