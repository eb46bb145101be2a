"""Two versions measured by alternating runs: what is paired with what, when it is certain, and what is told apart."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest

from pytest_gpubench import DeviceFacts, Measurement
from pytest_gpubench.results.model import Outcome, SavedRun, TestRecord
from pytest_gpubench.stats.process_spread import noise_of
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.verdict.regression import Change
from pytest_gpubench.verdict.rounds import ArmRun, CommitArm, alpha_of_look, change_of_pairs, judge_rounds, order_of
from tests.results.measured import kernel, present, retimed, speedup_over, timing_of, verdict
from tests.stats.quads import decide_change

RULE = RegressionTolerance("speedup", margin=0.03), 0.01
GPU = DeviceFacts(type="cuda", name="a GPU", host="here", uuid="GPU-1")
TEST = "tests/test_a.py::test_it"


def timed(median_us: float, label: str = "f", **other: object) -> Measurement:
    """Return a measurement whose samples are a clock's finest steps apart."""
    samples = tuple(median_us * (1 + step * 1e-9) for step in range(-10, 11))
    return Measurement(timing=timing_of(samples, label), **other)  # type: ignore[arg-type]


def raced(median_us: float, reference_us: float, reference: str = "torch") -> Measurement:
    speedup = speedup_over(reference_us, reference_us / median_us, reference=reference)
    return timed(median_us, role="candidate", speedup=speedup)


Measured = Callable[[CommitArm, int], Sequence[Measurement]]
"""Told the version and the number of the run, from 0; returns what it measures."""


def take(
    measured: Measured,
    rounds: int = 3,
    ended: Mapping[CommitArm, Sequence[Any | None]] | None = None,
    device: DeviceFacts = GPU,
) -> list[ArmRun]:
    """Return the runs of a session; `ended` says how the test ended in the runs of each version."""
    runs: list[ArmRun] = []
    turns = [(round, arm) for round in range(rounds) for arm in order_of(round)]
    taken: Counter[CommitArm] = Counter()
    for number, (round, arm) in enumerate(turns):
        record = TestRecord(nodeid=TEST, device=device, measurements=tuple(measured(arm, number)))
        how: Any | None = ended[arm][taken[arm]] if ended else "passed"
        taken[arm] += 1
        run = SavedRun(records=(record,), datetime="2026-01-01T00:00:00+00:00")
        runs.append(ArmRun(arm, round, run, {TEST: how} if how else {}))
    return runs


def only(changes: Sequence[Change]) -> Change:
    assert len(changes) == 1, changes
    return changes[0]


def test_a_slower_head_has_its_reasons() -> None:
    """What its last run has that BASE's has not; the toolchain is that of each version's environment."""
    kernels = {"BASE": (kernel("softmax", 1, 10.0),), "HEAD": (kernel("softmax", 1, 10.0), kernel("copy_", 1, 5.0))}
    taken = take(lambda arm, number: (retimed(timed({"BASE": 10, "HEAD": 15}[arm]), kernels=kernels[arm]),))
    of = {arm: {"triton": f"of {arm}"} for arm in kernels}
    runs = [replace(each, run=msgspec.structs.replace(each.run, machine_info=of[each.arm])) for each in taken]
    found = only(judge_rounds(runs, *RULE))
    assert found.outcome is Outcome.FAIL
    assert found.reasons == ("one more kernel: copy_ (33 % of the time)", "triton of BASE -> of HEAD")
    tolerated = only(judge_rounds(runs, RegressionTolerance("speedup", margin=0.6), 0.01))
    assert (tolerated.outcome, tolerated.reasons) == (Outcome.PASS, ())


def test_a_linear_drift_cancels_between_the_pairs_of_a_round() -> None:
    runs = take(lambda arm, number: (timed(10 * math.exp(0.003 * number) * (1.05 if arm == "HEAD" else 1)),))
    estimate = present(only(judge_rounds(runs, *RULE)).estimate)
    assert estimate.ratio == pytest.approx(1.05)


def test_a_round_that_is_not_whole_is_left_out() -> None:
    found = only(judge_rounds(take(lambda arm, number: () if number == 5 else (timed(10 + number / 100),)), *RULE))
    assert ", 4 pairs of runs, " in found.sentence
    found = only(judge_rounds(take(lambda arm, number: () if number in (0, 5, 9) else (timed(10),)), *RULE))
    assert (found.outcome, found.estimate) == (Outcome.INCONCLUSIVE, None)
    assert found.sentence == "no round has it in all of its four runs: measure more rounds"


@pytest.mark.parametrize(("pairs", "ends"), [(7, (-3, 3)), (8, (-3.5, 3.5)), (14, (-4.5, 4.5))])
def test_order_statistics_from_where_alpha_allows_them(pairs: int, ends: tuple[float, float]) -> None:
    """At alpha 0.01 the extremes enclose the median from 7 pairs on, the third ones with 14: 106 / 2^14 is below it."""
    values = [0.01 * (index - (pairs - 1) / 2) for index in range(pairs)]
    change = change_of_pairs(values, "median", 0.01)
    assert change.interval == pytest.approx([math.exp(0.01 * end) for end in ends])
    assert change_of_pairs(values[:1], "median", 0.01).interval is None
    six = change_of_pairs([0.01, -0.01] * 3, "median", 0.01)
    half = 3.3649 * 0.01 * math.sqrt(6 / 5) / math.sqrt(6)
    assert six.interval == pytest.approx([math.exp(-half), math.exp(half)], abs=1e-6)


def test_two_pairs_at_a_tiny_alpha_leave_everything_open() -> None:
    low, high = present(change_of_pairs([0.0, 0.1], "median", 1e-12).interval)
    assert (low < 1e-9, 1e9 < high < math.inf) == (True, True)
    assert 1e9 < present(noise_of([[0.0, 0.1]])).smallest_change(2, 1e-12) < math.inf


@pytest.mark.parametrize("rounded_us", [0.0, 0.002])
def test_pairs_that_agree_within_ticks_are_not_certain(rounded_us: float) -> None:
    """Of a clock that ticks every 32 ns, two medians of 1 us may be a tick apart, or the same, by chance.

    Readings of one tick are up to 2 ns apart.
    """

    def ticking(arm: CommitArm, number: int) -> Sequence[Measurement]:
        ticks = (1.024, 1.056, 1.056, 9.0) if arm == "HEAD" else (1.024, 1.024, 1.024, 9.0)
        return (Measurement(timing=timing_of((*ticks, 9.0 + rounded_us), "f")),)

    found = only(judge_rounds(take(ticking, rounds=1), *RULE))
    assert found.outcome is Outcome.INCONCLUSIVE
    low, high = present(present(found.estimate).interval)
    assert low < 1 < 1.03 < high < 1e17, "the smallest step is the tick"


def session(rng: random.Random, rounds: int, slower: float, spread: float = 0.005, drift: float = 0.03) -> list[float]:
    """Return the pairs of a session in which runs differ by `spread` and everything drifts by `drift` in the end."""
    arms = [arm for round in range(rounds) for arm in order_of(round)]
    logs = [
        rng.gauss(0, spread) + drift * number / (len(arms) - 1) + math.log1p(slower * (arm == "HEAD"))
        for number, arm in enumerate(arms)
    ]
    return [(logs[at + 1] - logs[at]) * (1 if arms[at] == "BASE" else -1) for at in range(0, len(arms), 2)]


def shares(rounds: int, slower: float, alpha: float, sessions: int) -> dict[str, float]:
    rng = random.Random(f"{rounds} {slower} {alpha}")
    found = Counter(
        decide_change(change_of_pairs(session(rng, rounds, slower), "median", alpha), 0.03) for _ in range(sessions)
    )
    return {decision: found[decision] / sessions for decision in ("pass", "inconclusive", "fail")}


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 5])
def test_unchanged_code_never_fails_and_passes_from_three_rounds_on(rounds: int) -> None:
    found = shares(rounds, 0.0, 0.01, 2000)
    assert found["fail"] == 0
    assert found["pass"] > 0.99 or rounds < 3


@pytest.mark.parametrize("alpha", [0.01, 0.05])
@pytest.mark.parametrize("rounds", [2, 3, *(pytest.param(rounds, marks=pytest.mark.slow) for rounds in (4, 6))])
def test_a_change_by_just_the_margin_fails_as_rarely_as_alpha_says(rounds: int, alpha: float) -> None:
    found, sessions = shares(rounds, 0.03, alpha, 4000), 4000
    slack = 3 * math.sqrt(alpha / sessions)
    assert found["fail"] <= alpha + slack
    assert found["pass"] <= alpha + slack


@pytest.mark.parametrize(("rounds", "least"), [(2, 0.5), (3, 0.96), (4, 0.94), (6, 0.99)])
def test_a_planted_slowdown_of_5_percent_is_found(rounds: int, least: float) -> None:
    found = shares(rounds, 0.05, 0.01, 2000)
    assert found["fail"] >= least
    assert found["pass"] < 0.001


@pytest.mark.parametrize(("rounds", "looks"), [(1, [1]), (2, [2]), (3, [2, 3]), (4, [2, 3, 4]), (9, [*range(2, 10)])])
def test_all_looks_together_spend_alpha(rounds: int, looks: list[int]) -> None:
    spent = {taken: alpha_of_look(taken, rounds, 0.01) for taken in range(1, rounds + 1)}
    assert [taken for taken, alpha in spent.items() if alpha is not None] == looks
    assert sum(alpha or 0 for alpha in spent.values()) == pytest.approx(0.01)
    assert (spent[rounds] or 0) >= 0.005


def noisy(slower: float, spread: float) -> list[ArmRun]:
    """Return runs of a test that is slower by a steady factor, among nine tests that the machine makes noisy."""
    rng = random.Random(1)

    def measured(arm: CommitArm, number: int) -> Sequence[Measurement]:
        others = [timed(10 * math.exp(rng.gauss(0, spread)), f"g{index}") for index in range(9)]
        return timed(10 * (1 + slower * (arm == "HEAD"))), *others

    return take(measured)


def test_no_regression_below_what_the_machine_can_see() -> None:
    """With 1.5 % between runs, six pairs show 4 %: one test whose pairs agree by chance is not believed."""
    found = judge_rounds(noisy(0.035, 0.015), *RULE)[0]
    assert found.outcome is Outcome.INCONCLUSIVE
    assert re.search(r"; no regression: this machine sees [345]\.\d % or more$", found.sentence)
    assert judge_rounds(noisy(0.08, 0.015), *RULE)[0].outcome is Outcome.FAIL
    assert judge_rounds(noisy(0.035, 0.001), *RULE)[0].outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("change", "what"), [({"source": "other"}, "source"), ({"params": {"n": "8"}}, "parameters"), ({}, "")]
)
def test_a_test_that_changed_is_not_compared(change: dict[str, object], what: str) -> None:
    runs = take(lambda arm, number: (timed(20 if arm == "HEAD" else 10), timed(5, "g")))
    for index, each in enumerate(runs):
        facts = {"source": "this", "params": {"n": "4"}} | (change if each.arm == "HEAD" else {})
        record = msgspec.structs.replace(each.run.records[0], **facts)
        runs[index] = replace(each, run=msgspec.structs.replace(each.run, records=(record,)))
    changes = judge_rounds(runs, *RULE)
    if not what:
        assert [each.outcome for each in changes] == [Outcome.FAIL, Outcome.PASS]
        return
    sentence = f"its own {what} changed, so BASE and HEAD run two tests: --tests PATH takes HEAD's for both"
    assert only(changes) == Change(TEST, "", Outcome.NOT_JUDGED, sentence)


@pytest.mark.parametrize(
    ("factor", "outcome", "words"),
    [
        (1.0, Outcome.PASS, "f is as fast as in BASE: 1.000x"),
        (1.029, Outcome.PASS, "f is slower than in BASE, within what is tolerated: 1.029x"),
        (1.031, Outcome.FAIL, "f is slower than in BASE: 1.031x"),
        (0.5, Outcome.PASS, "f is faster than in BASE: 0.5000x"),
    ],
)
def test_both_sides_of_the_margin(factor: float, outcome: Outcome, words: str) -> None:
    found = only(judge_rounds(take(lambda arm, number: (timed(10 * (factor if arm == "HEAD" else 1)),)), *RULE))
    assert (found.outcome, found.nodeid, found.label) == (outcome, TEST, "f")
    assert found.sentence.startswith(words)
    assert "wanted at most 1.03x" in found.sentence
    assert found.sentence.endswith(f"({10 * factor:#.4g} us against 10.00 us, 6 pairs of runs, 99 % interval)")


@pytest.mark.parametrize(
    ("metric", "outcome"), [("speedup", Outcome.PASS), ("median", Outcome.FAIL), ("mean", Outcome.FAIL)]
)
def test_a_slower_reference_excuses(metric: Literal["speedup", "median", "mean"], outcome: Outcome) -> None:
    """HEAD always ran on a clock that was 10 % lower: the ratio of speedups is 1."""

    def measured(arm: CommitArm, number: int) -> Sequence[Measurement]:
        clock = 1.1 if arm == "HEAD" else 1.0
        return timed(20 * clock, "torch", role="reference"), raced(10 * clock, 20 * clock)

    found = judge_rounds(take(measured), RegressionTolerance(metric, margin=0.03), 0.01)
    assert [each.label for each in found] == (["f"] if metric == "speedup" else ["torch", "f"])
    assert {each.outcome for each in found} == {outcome}
    assert present(found[-1].estimate).metric == metric


def test_a_speedup_that_fell_is_a_regression() -> None:
    found = only(judge_rounds(take(lambda arm, number: (raced(12 if arm == "HEAD" else 10, 20),)), *RULE))
    assert (found.outcome, round(present(found.estimate).ratio, 6)) == (Outcome.FAIL, 1.2)


@pytest.mark.parametrize("head", [timed(10, role="candidate"), raced(10, 30, "another reference")])
def test_without_one_reference_in_both_the_median_is_compared(head: Measurement) -> None:
    found = only(judge_rounds(take(lambda arm, number: (head if arm == "HEAD" else raced(10, 20),)), *RULE))
    estimate = present(found.estimate)
    assert (estimate.metric, round(estimate.ratio, 6)) == ("median", 1)


@pytest.mark.parametrize("change", [{"timer": "wall"}, {"cache": "hot"}])
def test_what_was_measured_in_two_ways_is_not_compared(change: dict[str, str]) -> None:
    runs = take(lambda arm, number: (retimed(timed(10), **(change if number == 7 else {})),))
    found = only(judge_rounds(runs, *RULE))
    assert (found.outcome, found.estimate) == (Outcome.INVALID, None)
    assert found.sentence.startswith("not measured in one way: a GPU GPU-1, profiler timer, cold cache and ")


INVALID = verdict("min_speedup=1", Outcome.INVALID, "faster than the memory allows")
UNMEASURED = Measurement(timing=timing_of((), "f", unmeasured="skipped here"))


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        ((), "not measured in HEAD, which has no measurement of this name"),
        ((UNMEASURED,), "not measured in HEAD: skipped here"),
        ((timed(10, verdicts=(INVALID,)),), "not measured in HEAD: faster than the memory allows"),
    ],
)
def test_what_one_version_did_not_measure_is_not_judged(head: Sequence[Measurement], sentence: str) -> None:
    found = only(judge_rounds(take(lambda arm, number: head if arm == "HEAD" else (timed(10),)), *RULE))
    assert (found.outcome, found.sentence, found.estimate) == (Outcome.NOT_JUDGED, sentence, None)


BESIDE = retimed(timed(10), neighbours="pid 7 computed")


@pytest.mark.parametrize(
    ("disturbed", "outcome", "words"),
    [
        (range(8), Outcome.INVALID, "not measured in BASE and HEAD: pid 7 computed"),
        ((1, 2, 4, 7), Outcome.INVALID, "not measured in HEAD: pid 7 computed"),
        ((1, 5), Outcome.INCONCLUSIVE, "no round has it in all of its four runs (pid 7 computed): measure more rounds"),
        ((), Outcome.PASS, "f is as fast as in BASE"),
    ],
)
def test_times_beside_another_process_are_not_compared(disturbed: Sequence[int], outcome: Outcome, words: str) -> None:
    runs = take(lambda arm, number: (BESIDE if number in disturbed else timed(10),), rounds=2)
    found = only(judge_rounds(runs, *RULE))
    assert (found.outcome, found.sentence.startswith(words)) == (outcome, True), found.sentence


def test_what_one_version_alone_has_is_not_judged_whatever_the_other_was_beside() -> None:
    runs = take(lambda arm, number: (BESIDE if number == 1 else timed(10),) if arm == "HEAD" else ())
    assert only(judge_rounds(runs, *RULE)).outcome is Outcome.NOT_JUDGED


PASSED: Sequence[Any | None] = ["passed"] * 6
FAILED: Sequence[Any | None] = ["failed"] * 6
ABSENT: Sequence[Any | None] = [None] * 6
FAILS = "fails in {} of 6 runs of HEAD and in {} of 6 of BASE: {}"


@pytest.mark.parametrize(
    ("base", "head", "outcome", "sentence"),
    [
        (PASSED, FAILED, Outcome.FAIL, FAILS.format(6, 0, "see its own error there")),
        (FAILED, PASSED, Outcome.NOT_JUDGED, FAILS.format(0, 6, "HEAD mended it")),
        (FAILED, FAILED, Outcome.NOT_JUDGED, FAILS.format(6, 6, "both versions fail it")),
        (PASSED, [*FAILED[:5], "passed"], Outcome.INCONCLUSIVE, FAILS.format(5, 0, "it is not dependable")),
        ([*PASSED[:5], "failed"], FAILED, Outcome.INCONCLUSIVE, FAILS.format(6, 1, "it is not dependable")),
        (PASSED, ABSENT, Outcome.NOT_JUDGED, "BASE alone has it: removed, or renamed"),
        (ABSENT, PASSED, Outcome.NOT_JUDGED, "HEAD alone has it: a new test"),
        (ABSENT, FAILED, Outcome.NOT_JUDGED, "HEAD alone has it: a new test, which fails"),
    ],
)
def test_tests_that_end_otherwise_are_told_apart(
    base: Sequence[Any | None], head: Sequence[Any | None], outcome: Outcome, sentence: str
) -> None:
    def measured(arm: CommitArm, number: int) -> Sequence[Measurement]:
        return () if {"BASE": base, "HEAD": head}[arm] is not PASSED else (timed(10),)

    found = only(judge_rounds(take(measured, ended={"BASE": base, "HEAD": head}), *RULE))
    assert (found.outcome, found.sentence, found.label) == (outcome, sentence, "")
