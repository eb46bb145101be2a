"""The order cancels what it should, the samples scale and mirror, and a verdict is wrong as seldom as promised."""

import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.stats.speedup import (
    LOOKS,
    ORDER_BLOCK,
    Decision,
    compare,
    critical_ranks,
    log_ratio,
    needed_batch,
    pooled,
    round_orders,
    speedup_of,
)
from pytest_gpubench.stats.summary import Interval, median_interval, median_rank
from tests.stats.quads import decide, orders

SIGMAS = 4
"""By how many standard errors of a simulation a rate may miss what it is held against; the seeds are fixed."""

seeds = st.integers(0, 2**32)
times_us = st.floats(1e-2, 1e6)
quads = st.tuples(times_us, times_us)
log_ratios = st.lists(st.floats(-3, 3), min_size=1, max_size=60)
alphas = st.builds(lambda digits, power: digits / 10**power, st.integers(1, 4), st.integers(1, 6))
limits = st.floats(0.1, 10)
plans = st.lists(st.integers(1, 12), min_size=1, max_size=6).map(lambda steps: tuple(itertools.accumulate(steps)))
ORDER: dict[Decision, int] = {"pass": 0, "open": 1, "fail": 2}


# the order of the calls


@given(st.integers(0, 60), seeds)
def test_orders_are_the_same_for_the_same_seed_and_however_many_are_asked_for(count: int, seed: int) -> None:
    assert orders(count, seed) == orders(count, seed) == orders(count + 15, seed)[:count]


def test_orders_differ_from_seed_to_seed() -> None:
    assert len({orders(20, seed) for seed in range(50)}) > 45


@given(st.integers(0, 8), seeds)
def test_both_orders_come_equally_often_in_every_block(blocks: int, seed: int) -> None:
    planned = orders(blocks * ORDER_BLOCK, seed)
    for start in range(0, len(planned), ORDER_BLOCK):
        counts = Counter(planned[start : start + ORDER_BLOCK])
        assert counts == {"ABBA": ORDER_BLOCK // 2, "BAAB": ORDER_BLOCK // 2}


def test_the_block_is_shuffled() -> None:
    """Over seeds every place has both orders equally often, and no two places are tied: noise meets no pattern."""
    signs = np.array([[1 if order == "ABBA" else -1 for order in orders(ORDER_BLOCK, seed)] for seed in range(2_000)])
    assert np.abs(signs.mean(axis=0)).max() < SIGMAS / math.sqrt(2_000)
    together = (signs.T @ signs / 2_000)[np.triu_indices(ORDER_BLOCK, 1)]
    assert np.abs(together + 1 / (ORDER_BLOCK - 1)).max() < SIGMAS / math.sqrt(2_000)


def test_every_look_is_balanced() -> None:
    assert ORDER_BLOCK % 2 == 0
    assert all(look % ORDER_BLOCK == 0 for look in LOOKS)


@given(st.integers(2, 6), st.integers(1, 25), seeds)
def test_a_round_is_an_order_of_all_arms_and_its_mirror_image(arms: int, rounds: int, seed: int) -> None:
    planned = round_orders(range(arms), rounds, seed)
    assert len(planned) == rounds
    for order in planned:
        assert sorted(order[:arms]) == list(range(arms))
        assert order == order[::-1]


@given(st.integers(2, 6), seeds)
def test_each_of_two_arms_takes_the_outer_places_equally_often(arms: int, seed: int) -> None:
    planned = round_orders(range(arms), 2 * ORDER_BLOCK, seed)
    for one, other in itertools.combinations(range(arms), 2):
        assert sum(order.index(one) < order.index(other) for order in planned) == ORDER_BLOCK


@given(st.integers(2, 6), st.integers(1, 5), seeds, st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_a_linear_drift_cancels_in_every_round_for_every_pair(
    arms: int, rounds: int, seed: int, start: int, slope: int
) -> None:
    """Exactly: the drift is made of whole numbers."""
    clock = itertools.count()
    for order in round_orders(range(arms), rounds, seed):
        drift = [0] * arms
        for arm in order:
            drift[arm] += start + slope * next(clock)
        assert len(set(drift)) == 1


def test_a_slower_second_launch_cancels_in_every_quad() -> None:
    for order in orders(20, 7):
        times_us = {"A": [0.0] * 0, "B": [0.0] * 0}
        for slot, arm in enumerate(order):
            times_us[arm].append(10.0 * (1.03 if slot % 2 else 1))
        assert log_ratio(times_us["A"], times_us["B"]) == 0


@pytest.mark.parametrize("arms", ["", "A"])
def test_one_arm_is_no_comparison(arms: str) -> None:
    with pytest.raises(ValueError, match="two arms or more"):
        round_orders(arms, 4, 0)


# the samples


@pytest.mark.parametrize(
    ("reference_us", "candidate_us", "ratio"),
    [
        ((10.0, 10.0), (10.0, 10.0), 1),
        ((20.0, 20.0), (10.0, 10.0), 2),
        ((10.0, 40.0), (10.0, 10.0), 2),
        ((10.0, 40.0), (40.0, 10.0), 1),
        ((3.0, 3.0), (4.0, 4.0), 0.75),
    ],
)
def test_log_ratio(reference_us: tuple[float, float], candidate_us: tuple[float, float], ratio: float) -> None:
    assert math.exp(log_ratio(reference_us, candidate_us)) == pytest.approx(ratio, rel=1e-12)


@given(quads, quads, st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(
    reference_us: tuple[float, float], candidate_us: tuple[float, float], scale: float
) -> None:
    def scaled(pair: tuple[float, float]) -> tuple[float, float]:
        return pair[0] * scale, pair[1] * scale

    same = log_ratio(scaled(reference_us), scaled(candidate_us))
    assert same == pytest.approx(log_ratio(reference_us, candidate_us), abs=1e-12)


@given(quads, quads)
def test_swapping_the_arms_inverts_the_ratio_of_a_quad(
    reference_us: tuple[float, float], candidate_us: tuple[float, float]
) -> None:
    """To the last bit, and neither call of an arm is the first one."""
    found = log_ratio(reference_us, candidate_us)
    assert log_ratio(candidate_us, reference_us) == -found
    assert log_ratio(reference_us[::-1], candidate_us) == found == log_ratio(reference_us, candidate_us[::-1])


@given(quads)
def test_equal_arms_have_no_log_ratio(times: tuple[float, float]) -> None:
    assert log_ratio(times, times) == 0


@pytest.mark.parametrize("bad_us", [0.0, -1.0, -0.0, math.nan, math.inf, -math.inf])
def test_a_time_that_is_none_is_refused(bad_us: float) -> None:
    for arms in [((bad_us, 1), (1, 1)), ((1, bad_us), (1, 1)), ((1, 1), (bad_us, 1)), ((1, 1), (1, bad_us))]:
        with pytest.raises(ValueError, match="above 0 us and finite"):
            log_ratio(*arms)


@pytest.mark.parametrize("arms", [((1.0, 1.0), (1.0,)), ((), ())])
def test_arms_with_different_numbers_of_calls_are_refused(arms: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match="equally many"):
        log_ratio(*arms)


@pytest.mark.parametrize(
    ("tick_us", "time_us", "margin", "batch"),
    [
        (0.032, 2, 0.01, 4),  # 3.2 calls
        (0.032, 2, 0.032, 1),
        (0.032, 2, 0.0319, 2),
        (0.032, 6.4, 0.01, 1),
        (0.032, 6.3, 0.01, 2),
        (0.032, 20, 0.01, 1),
        (1.0, 1, 0.01, 200),
        (0, 1, 0.01, 1),
    ],
)
def test_needed_batch(tick_us: float, time_us: float, margin: float, batch: int) -> None:
    assert needed_batch(tick_us, time_us, margin) == batch


@given(st.floats(1e-3, 10), st.floats(0.1, 1e4), st.floats(1e-3, 0.5))
def test_the_batch_is_the_smallest_that_is_long_enough(tick_us: float, time_us: float, margin: float) -> None:
    batch = needed_batch(tick_us, time_us, margin)
    assert tick_us <= margin / 2 * batch * time_us * (1 + 1e-8)
    assert batch == 1 or tick_us > margin / 2 * (batch - 1) * time_us


@pytest.mark.parametrize("bad", [(-1, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, -0.1), (math.nan, 1, 1), (1, math.inf, 1)])
def test_no_batch_is_needed_for_what_cannot_be(bad: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="no batch"):
        needed_batch(*bad)


@pytest.mark.parametrize(("block", "expected"), [(1, (1, 2, 3, 6, 8)), (2, (1.5, 4.5)), (3, (2,)), (5, (4,)), (6, ())])
def test_pooled(block: int, expected: tuple[float, ...]) -> None:
    assert pooled((1, 2, 3, 6, 8), block) == expected


@pytest.mark.parametrize("block", [0, -1])
def test_an_empty_block_is_refused(block: int) -> None:
    with pytest.raises(ValueError, match="at least one quad"):
        pooled((1, 2), block)


# when the answer is certain


@pytest.mark.parametrize(
    ("looks", "alpha", "ranks"),
    [
        ((9,), 0.001, (None,)),
        ((10,), 0.001, (1,)),  # 2^-10 < 0.001
        ((20,), 0.001, (3,)),
        ((4,), 1 / 16, (1,)),  # exactly
        ((4,), 0.0624, (None,)),
        ((4, 5), 1 / 16, (None, 1)),
        ((3, 4), 1 / 8, (None, 1)),
        ((3, 4, 5), 1 / 4, (1, 1, 2)),  # 4/32 at the first look, none at the second, 3/32 at the third
        (LOOKS[:5], 0.001, (3, 10, 25, 57, 129)),
        (LOOKS, 0.001, (3, 10, 25, 57, 126, 275)),
        (LOOKS[:3], 0.001, (3, 10, 26)),
        ((*LOOKS[:2], 57), 0.001, (3, 10, 16)),
    ],
)
def test_critical_ranks(looks: tuple[int, ...], alpha: float, ranks: tuple[int | None, ...]) -> None:
    assert critical_ranks(looks, alpha) == ranks


@given(st.integers(1, 150), alphas)
def test_a_single_look_is_the_sign_test(count: int, alpha: float) -> None:
    """One-sided, so that either error has the chance alpha."""
    assert critical_ranks((count,), alpha) == (median_rank(count, 2 * alpha),)


def chances_of_failing(looks: tuple[int, ...], ranks: tuple[int | None, ...]) -> list[Fraction]:
    """Return how likely a fair walk has failed by each look, one coin at a time."""
    last_of = dict(zip(looks, ranks, strict=True))
    open_walks, failed, chances = Counter({0: 1}), Fraction(0), []
    for quads in range(1, looks[-1] + 1):
        open_walks += Counter({good + 1: walks for good, walks in open_walks.items()})
        if quads in last_of:
            lost = [good for good in open_walks if good < (last_of[quads] or 0)]
            failed += Fraction(sum(map(open_walks.pop, lost)), 2**quads)
            chances.append(failed)
    return chances


def spendable(looks: tuple[int, ...], alpha: float) -> list[Fraction]:
    shares = [Fraction(look, look + 1) for look in range(1, len(looks))]
    return [Fraction(alpha) * share for share in [*shares, Fraction(1)]]


def check_ranks(looks: tuple[int, ...], alpha: float) -> None:
    """Each look spends no more than it may, and with a larger rank it would."""
    ranks = critical_ranks(looks, alpha)
    allowed = [most * (1 + Fraction(1, 10**12)) for most in spendable(looks, alpha)]
    assert all(chance <= most for chance, most in zip(chances_of_failing(looks, ranks), allowed, strict=True))
    for look, rank in enumerate(ranks):
        larger = (*ranks[:look], (rank or 0) + 1)
        assert chances_of_failing(looks[: look + 1], larger)[look] * (1 + Fraction(1, 10**12)) > allowed[look]


@given(plans, alphas)
def test_the_ranks_are_the_largest_that_alpha_allows(looks: tuple[int, ...], alpha: float) -> None:
    check_ranks(looks, alpha)


@pytest.mark.parametrize("alpha", [0.05, 0.001, 1e-6])
def test_the_planned_looks_spend_what_they_may(alpha: float) -> None:
    check_ranks(LOOKS[:4], alpha)


def test_nearly_all_of_alpha_is_spent() -> None:
    spent = chances_of_failing(LOOKS, critical_ranks(LOOKS, 0.001))[-1]
    assert 0.00095 < spent <= 0.001


@pytest.mark.parametrize("alpha", [0.05, pytest.param(0.001, marks=pytest.mark.slow)])
def test_fair_walks_fail_as_often_as_worked_out(alpha: float) -> None:
    trials, ranks = 100_000, critical_ranks(LOOKS, alpha)
    rng, good, failed = np.random.default_rng(3), np.zeros(trials, int), np.zeros(trials, bool)
    for look, before, rank in zip(LOOKS, (0, *LOOKS), ranks, strict=False):
        good += rng.binomial(look - before, 0.5, trials)
        failed |= good < (rank or 0)
    expected = float(chances_of_failing(LOOKS, ranks)[-1])
    assert failed.mean() == pytest.approx(expected, abs=SIGMAS * math.sqrt(expected / trials))
    assert expected <= alpha


@given(plans, alphas, st.integers(1, 20))
def test_the_looks_already_taken_do_not_depend_on_the_later_ones(
    looks: tuple[int, ...], alpha: float, more: int
) -> None:
    """So a plan can be ended early, or be made longer, and a last look decides no less than one in between."""
    longer = critical_ranks((*looks, looks[-1] + more), alpha)
    ranks = critical_ranks(looks, alpha)
    assert ranks[:-1] == longer[: len(looks) - 1]
    assert (longer[len(looks) - 1] or 0) <= (ranks[-1] or 0)


def wrong_chance(looks: tuple[int, ...], ranks: list[int | None], good: float) -> tuple[float, float]:
    """Return how likely it is to fail, and the mean number of quads, if a quad is good with this chance."""
    walks, failed, mean_quads, taken = np.ones(1), 0.0, 0.0, 0
    for look, rank in zip(looks, ranks, strict=True):
        mean_quads += (look - taken) * walks.sum()
        ways = [
            math.comb(look - taken, k) * good**k * (1 - good) ** (look - taken - k) for k in range(look - taken + 1)
        ]
        walks, taken = np.convolve(walks, ways), look
        if rank:
            failed += float(walks[:rank].sum())
            walks[:rank] = walks[len(walks) - rank :] = 0
    return failed, mean_quads


@pytest.mark.parametrize("good", [0.5, 0.4, 0.35, 0.3, 0.2, 0.1, 0.02])
def test_the_exact_ranks_beat_the_splits_of_alpha(good: float) -> None:
    """Than an even split: as much power, for fewer quads where it is clear; than alpha/(k(k+1)): more for fewer."""
    power, mean_quads = wrong_chance(LOOKS, list(critical_ranks(LOOKS, 0.001)), good)
    even = wrong_chance(LOOKS, [median_rank(look, 2 * 0.001 / len(LOOKS)) for look in LOOKS], good)
    falling = wrong_chance(
        LOOKS, [median_rank(look, 2 * 0.001 / (k * (k + 1))) for k, look in enumerate(LOOKS, 1)], good
    )
    assert power >= even[0] - 1e-3
    assert power >= falling[0] - 1e-9
    assert mean_quads <= falling[1] + 1e-9
    assert mean_quads <= (1.05 if good > 0.35 else 1.005) * even[1]


@pytest.mark.parametrize("looks", [(), (0,), (-5, 3), (5, 5), (10, 8), (5, 10, 10)])
def test_looks_that_are_no_plan_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="increasing numbers of quads"):
        critical_ranks(looks, 0.01)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 0.5, 1.0, math.nan])
def test_an_alpha_that_is_no_risk_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be"):
        critical_ranks((20,), alpha)


# the speedup


def test_the_speedup_of_a_table() -> None:
    ratios = [math.log(2) + k / 100 for k in range(-9, 11)]
    speedup = speedup_of(ratios, 0.001)
    assert speedup.ratio == pytest.approx(2 * math.exp(0.005))
    assert speedup.interval == pytest.approx((2 * math.exp(-0.07), 2 * math.exp(0.08)))
    assert (speedup.quads, speedup.alpha) == (20, 0.001)


@given(log_ratios, alphas)
def test_the_interval_of_one_look_is_the_interval_of_the_median(samples: list[float], alpha: float) -> None:
    found, expected = speedup_of(samples, alpha), median_interval(samples, 2 * alpha)
    assert found.interval == (expected and (math.exp(expected.low), math.exp(expected.high)))
    if found.interval:
        assert found.interval.low <= found.ratio <= found.interval.high


@given(log_ratios, alphas)
def test_swapping_the_arms_mirrors_the_interval(samples: list[float], alpha: float) -> None:
    speedup, swapped = speedup_of(samples, alpha), speedup_of([-x for x in samples], alpha)
    assert swapped.ratio == pytest.approx(1 / speedup.ratio, rel=1e-12)
    mirrored = speedup.interval and (1 / speedup.interval.high, 1 / speedup.interval.low)
    assert swapped.interval == (mirrored and pytest.approx(mirrored, rel=1e-12))


@given(log_ratios, alphas, st.randoms(use_true_random=False))
def test_the_order_of_the_quads_does_not_matter(samples: list[float], alpha: float, shuffler: random.Random) -> None:
    shuffled = shuffler.sample(samples, len(samples))
    assert speedup_of(shuffled, alpha) == speedup_of(samples, alpha)


@given(st.lists(st.floats(-3, 3), min_size=20, max_size=20), alphas)
def test_an_early_look_is_no_narrower_than_the_last(samples: list[float], alpha: float) -> None:
    early, last = speedup_of(samples, alpha, LOOKS).interval, speedup_of(samples, alpha).interval
    if early and last:
        assert early.low <= last.low <= last.high <= early.high


def test_no_quads_have_no_speedup() -> None:
    with pytest.raises(ValueError, match="without a quad"):
        speedup_of((), 0.001)


def test_a_look_that_was_not_planned_is_refused() -> None:
    with pytest.raises(ValueError, match="30 quads are none of the planned looks"):
        speedup_of((0.0,) * 30, 0.001, LOOKS)


# the verdict


@pytest.mark.parametrize(
    ("ends", "limit", "expected"),
    [
        ((0.95, 0.98), 0.99, "fail"),
        ((0.95, 0.99), 0.99, "open"),
        ((0.95, 1.05), 1.0, "open"),
        ((0.99, 1.05), 0.99, "pass"),
        ((0.98999, 1.05), 0.99, "open"),
        ((1.5, 1.6), 2.0, "fail"),
        (None, 1.0, "open"),
    ],
)
def test_compare(ends: tuple[float, float] | None, limit: float, expected: Decision) -> None:
    assert compare(ends and Interval(*ends), limit) == expected


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_that_is_no_ratio_is_refused(limit: float) -> None:
    for interval in (None, Interval(1, 2)):
        with pytest.raises(ValueError, match="limit on the speedup"):
            compare(interval, limit)


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [(20, 0, "pass"), (18, 2, "pass"), (17, 3, "open"), (10, 10, "open"), (3, 17, "open"), (2, 18, "fail")],
)
def test_the_first_look_allows_two_quads_on_the_other_side(good: int, bad: int, expected: Decision) -> None:
    samples = [0.01 + k * 1e-4 for k in range(good)] + [-0.01 - k * 1e-4 for k in range(bad)]
    assert decide(samples, 1.0, 0.001, LOOKS) == expected


@pytest.mark.parametrize(("ratio", "expected"), [(0.97, "fail"), (0.98, "pass"), (0.99, "pass")])
def test_quads_that_all_tie_are_judged_by_their_value(ratio: float, expected: Decision) -> None:
    """A speedup of exactly the limit is at least the limit."""
    assert decide([math.log(ratio)] * 20, math.exp(math.log(0.98)), 0.001, LOOKS) == expected


def test_ties_at_the_limit_do_not_fail() -> None:
    """The median is the limit: half of the quads being there cannot be held against it."""
    assert decide([0.0] * 10 + [-0.01] * 10, 1.0, 0.001, LOOKS) == "open"
    assert decide([0.0] * 18 + [-0.01] * 2, 1.0, 0.001, LOOKS) == "pass"


@given(log_ratios, alphas, limits, limits)
def test_a_higher_limit_is_never_easier(samples: list[float], alpha: float, limit: float, other: float) -> None:
    low, high = sorted((limit, other))
    assert ORDER[decide(samples, low, alpha)] <= ORDER[decide(samples, high, alpha)]


@given(log_ratios, alphas, limits, st.floats(0, 2))
def test_a_faster_candidate_is_never_judged_worse(
    samples: list[float], alpha: float, limit: float, gain: float
) -> None:
    faster = [x + gain for x in samples]
    assert ORDER[decide(faster, limit, alpha)] <= ORDER[decide(samples, limit, alpha)]


@given(log_ratios, alphas, limits)
def test_without_an_interval_nothing_is_decided(samples: list[float], alpha: float, limit: float) -> None:
    assert speedup_of(samples, alpha).interval is not None or decide(samples, limit, alpha) == "open"


@given(log_ratios, alphas, limits)
def test_swapping_the_arms_swaps_the_decision(samples: list[float], alpha: float, limit: float) -> None:
    swapped = decide([-x for x in samples], 1 / limit, alpha)
    interval = speedup_of(samples, alpha).interval
    if interval is None or min(abs(end / limit - 1) for end in interval) > 1e-9:
        assert swapped == {"pass": "fail", "fail": "pass", "open": "open"}[decide(samples, limit, alpha)]
