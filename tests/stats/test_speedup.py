"""Speedups: balanced orders, scaling, symmetry, and exact error rates."""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.stats.speedup import (
    LOOKS,
    Quad,
    critical_ranks,
    log_ratios,
    next_look,
    round_orders,
    speedup_of,
)
from tests.stats.quads import decide, orders, steady
from tests.stats.simulation import SIGMAS

seeds = st.integers(0, 2**32)
times_us = st.floats(1e-2, 1e6)
quads = st.tuples(times_us, times_us)
noisy_quads = st.lists(st.builds(Quad, quads, quads), min_size=1, max_size=40)
alphas = st.builds(lambda digits, power: digits / 10**power, st.integers(1, 4), st.integers(1, 6))
limits = st.floats(0.1, 10)
plans = st.lists(st.integers(1, 12), min_size=1, max_size=6).map(lambda steps: tuple(itertools.accumulate(steps)))


@given(st.integers(0, 60), seeds)
def test_orders_are_the_same_for_the_same_seed_and_however_many_are_asked_for(count: int, seed: int) -> None:
    assert orders(count, seed) == orders(count, seed) == orders(count + 15, seed)[:count]


def test_the_six_orders_come_equally_often_and_differ_from_seed_to_seed() -> None:
    counts = Counter(orders(6_000, 1))
    assert set(counts) == {"AABB", "ABAB", "ABBA", "BAAB", "BABA", "BBAA"}
    assert max(abs(number - 1000) for number in counts.values()) < SIGMAS * math.sqrt(1000)
    assert len({orders(20, seed) for seed in range(50)}) > 45


@given(st.integers(2, 6), st.integers(1, 25), seeds)
def test_a_round_has_every_arm_twice(arms: int, rounds: int, seed: int) -> None:
    planned = round_orders(range(arms), rounds, seed)
    assert len(planned) == rounds
    assert all(sorted(order) == sorted([*range(arms), *range(arms)]) for order in planned)


def log_ratio_of(reference_us: tuple[float, ...], candidate_us: tuple[float, ...]) -> float:
    quad = Quad(reference_us, candidate_us)
    (found,) = log_ratios([quad])
    return found


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
    assert math.exp(log_ratio_of(reference_us, candidate_us)) == pytest.approx(ratio, rel=1e-12)


def test_of_the_fastest_times_what_held_up_a_call_is_left_out() -> None:
    quads = [Quad((10.0, 40.0), (5.0, 5.0)), Quad((10.0, 10.0), (90.0, 5.0))]
    assert [math.exp(each) for each in log_ratios(quads, fastest=True)] == pytest.approx([2.0, 2.0])


@given(quads, quads)
def test_the_votes_of_a_quad(reference_us: tuple[float, float], candidate_us: tuple[float, float]) -> None:
    *pairs, mean = Quad(reference_us, candidate_us).votes
    assert pairs == [math.log(ours) - math.log(theirs) for ours in reference_us for theirs in candidate_us]
    assert mean == pytest.approx(log_ratio_of(reference_us, candidate_us), abs=1e-12)
    assert len(pairs) + 1 == 5


@pytest.mark.parametrize(
    ("looks", "alpha", "ranks"),
    [
        ((4,), 0.001, (None,)),
        ((5,), 0.001, (2,)),  # 4^-5 < 0.001, and no quad has one vote
        ((2,), 1 / 16, (2,)),  # exactly
        ((2,), 0.0624, (None,)),
        (LOOKS[:5], 0.001, (2, 5, 10, 15, 25)),
        ((*LOOKS[:4], 20), 0.001, (2, 5, 10, 15, 23)),
    ],
)
def test_critical_ranks(looks: tuple[int, ...], alpha: float, ranks: tuple[int | None, ...]) -> None:
    assert critical_ranks(looks, alpha) == ranks


def chances_of_failing(looks: tuple[int, ...], ranks: tuple[int | None, ...]) -> list[Fraction]:
    """Return how likely a walk has failed by each look, one quad at a time."""
    last_of = dict(zip(looks, ranks, strict=True))
    open_walks, failed, chances = Counter({0: 1}), Fraction(0), []
    for quads in range(1, looks[-1] + 1):
        walks: Counter[int] = Counter()
        for votes, number in open_walks.items():
            for more in (0, 2, 3, 5):
                walks[votes + more] += number
        open_walks = walks
        if quads in last_of:
            lost = [votes for votes in open_walks if votes < (last_of[quads] or 0)]
            failed += Fraction(sum(map(open_walks.pop, lost)), 4**quads)
            chances.append(failed)
    return chances


def spendable(looks: tuple[int, ...], alpha: float) -> list[Fraction]:
    shares = [Fraction(look, look + 1) for look in range(1, len(looks))]
    return [Fraction(alpha) * share for share in [*shares, Fraction(1)]]


def check_ranks(looks: tuple[int, ...], alpha: float) -> None:
    """Each look spends no more than it may, and with a larger rank it would."""
    ranks = critical_ranks(looks, alpha)
    allowed = [most * (1 + Fraction(1, 10**11)) for most in spendable(looks, alpha)]
    assert all(chance <= most for chance, most in zip(chances_of_failing(looks, ranks), allowed, strict=True))
    for look, rank in enumerate(ranks):
        larger = (*ranks[:look], (rank or 0) + 1)
        failing = chances_of_failing(looks[: look + 1], larger)[look]
        assert failing * (1 + Fraction(1, 10**11)) > spendable(looks, alpha)[look]


@given(plans, alphas)
def test_the_ranks_are_the_largest_that_alpha_allows(looks: tuple[int, ...], alpha: float) -> None:
    check_ranks(looks, alpha)


@pytest.mark.parametrize(
    ("taken", "cost_s", "left_s", "following"),
    [
        (0, 1.0, -1.0, 6),
        (6, 1.0, 3.0, 9),
        (6, 1.0, 2.9, 8),  # the last look is at what the time is long enough for
        (6, 1.0, 1.9, None),
        (9, 1.0, 99.0, 12),
        (12, 1.0, 99.0, None),
        (6, 0.0, 1.0, 9),
        (6, -0.001, 1.0, 9),
        (6, 0.0, -1.0, None),
    ],
)
def test_the_next_look(taken: int, cost_s: float, left_s: float, following: int | None) -> None:
    assert next_look((6, 9, 12), 2, taken, cost_s, left_s) == following


def test_the_speedup_of_a_table() -> None:
    ratios = [math.log(2) + k / 100 for k in range(-9, 11)]
    speedup = speedup_of(steady(ratios), 0.001)
    assert speedup.ratio == pytest.approx(2 * math.exp(0.005))
    assert speedup.interval == pytest.approx((2 * math.exp(-0.04), 2 * math.exp(0.05)))  # rank 26 of 100 votes
    assert (speedup.quads, speedup.alpha) == (20, 0.001)


@given(noisy_quads, alphas)
def test_swapping_the_arms_mirrors_the_interval(samples: list[Quad], alpha: float) -> None:
    speedup, swapped = speedup_of(samples, alpha), speedup_of([Quad(*quad[::-1]) for quad in samples], alpha)
    assert swapped.ratio == pytest.approx(1 / speedup.ratio, rel=1e-12)
    mirrored = speedup.interval and (1 / speedup.interval.high, 1 / speedup.interval.low)
    assert swapped.interval == (mirrored and pytest.approx(mirrored, rel=1e-12))


@given(st.lists(st.floats(-3, 3), min_size=9, max_size=9), alphas)
def test_an_early_look_is_no_narrower_than_the_last(samples: list[float], alpha: float) -> None:
    early, last = (speedup_of(steady(samples), alpha, looks).interval for looks in (LOOKS[:4], None))
    if early and last:
        assert early.low <= last.low <= last.high <= early.high


def test_a_part_of_a_tick_widens_the_interval() -> None:
    """Of the shortest time."""
    quads_of_10_us = [Quad((20.0, 20.0), (10.0, 10.0))] * 20
    found = speedup_of(quads_of_10_us, 0.001, tick_us=1.0)
    assert found.interval == pytest.approx((2 * math.exp(-0.005), 2 * math.exp(0.005)))
    assert found.ratio == pytest.approx(2)


@pytest.mark.parametrize(("ratio", "expected"), [(0.97, "fail"), (0.98, "pass"), (0.99, "pass")])
def test_quads_that_all_tie_are_judged_by_their_value(ratio: float, expected: str) -> None:
    """A speedup of exactly the limit is at least the limit."""
    assert decide([Quad((ratio, ratio), (1.0, 1.0))] * 6, math.exp(math.log(0.98)), 0.001, LOOKS) == expected
    assert decide(steady([0.0] * 8 + [-0.01] * 8), 1.0, 0.001, LOOKS) == "inconclusive"
    assert decide(steady([0.0] * 14 + [-0.01] * 2), 1.0, 0.001, LOOKS) == "pass"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        *[(partial(critical_ranks, (20,), alpha), "alpha must be") for alpha in (0.0, -0.1, 0.5, 1.0, math.nan)],
        *[
            (partial(log_ratio_of, arms[:2], arms[2:]), "above 0 us and finite")
            for bad_us in (0.0, -1.0, -0.0, math.nan, math.inf, -math.inf)
            for arms in ((bad_us, 1, 1, 1), (1, bad_us, 1, 1), (1, 1, bad_us, 1), (1, 1, 1, bad_us))
        ],
    ],
)
def test_what_is_no_comparison_is_refused(asked: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        asked()
