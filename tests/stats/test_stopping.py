"""Stopping rules: every way in which a measurement ends."""

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.stats.stopping import Budget, is_held_up, is_precise, next_batch
from pytest_gpubench.stats.summary import median_interval
from tests.results.measured import present

MIN_REPS = 16
LEAST_REPS = 12
FIRST_BATCH_S = 0.07
MAX_FIRST_REPS = 250
MAX_REPS = 10_000
MAX_TICK_US = 0.1


def budget(
    reps: int | None = None,
    precision: float = 0.01,
    max_time_s: float = 10.0,
    cost_s: float = 1e-3,
    spent_s: float = 0.0,
) -> Budget:
    return Budget(reps, precision, max_time_s, cost_s, spent_s)


def spread_evenly(count: int, rel_width: float) -> list[float]:
    """Return samples whose 95 % interval of the median is about this wide, relative to the median."""
    interval = present(median_interval(range(count)))
    step = rel_width / interval.width
    return [100 * (1 + step * (index - (count - 1) / 2)) for index in range(count)]


STEADY = [100.0] * 50
UNSTEADY = spread_evenly(50, 0.5)


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize(("reps", "taken", "more"), [(1, 0, 1), (20, 0, 20), (20, 15, 5), (20, 20, 0), (20, 25, 0)])
def test_a_number_of_reps_is_taken_exactly(reps: int, taken: int, more: int, decided: bool) -> None:
    """Neither precision nor an open verdict nor the time that is left have a say."""
    assert next_batch(budget(reps, spent_s=100.0), UNSTEADY[:taken], decided) == more


@pytest.mark.parametrize(
    ("cost_s", "first"),
    [
        (1e-6, MAX_FIRST_REPS),
        (FIRST_BATCH_S / (MAX_FIRST_REPS + 0.5), MAX_FIRST_REPS),
        (FIRST_BATCH_S / 100.5, 100),
        (FIRST_BATCH_S / (MIN_REPS + 0.5), MIN_REPS),
    ],
)
@pytest.mark.parametrize("affordable", [-3, 0, LEAST_REPS - 1, LEAST_REPS, MIN_REPS - 1, 99, 101, 10**6])
@pytest.mark.parametrize("taken", [0, 3, LEAST_REPS - 1])
def test_the_first_batch_has_enough_within_time(cost_s: float, first: int, affordable: int, taken: int) -> None:
    """The few reps that a warm-up or a probe took count, however precise they are, paid for or not."""
    for spent_s, decided in itertools.product((0.0, 0.1), (True, False)):
        tight = budget(cost_s=cost_s, max_time_s=spent_s + cost_s * (affordable + 0.5), spent_s=spent_s)
        assert next_batch(tight, STEADY[:taken], decided) == max(min(affordable, first - taken), LEAST_REPS - taken)


@pytest.mark.parametrize(
    ("samples", "decided", "more"),
    [
        (STEADY, True, 0),
        (STEADY, False, 50),
        (spread_evenly(50, 0.0099), True, 0),
        (spread_evenly(50, 0.0101), True, MIN_REPS),  # growth by 1.12 is less than the smallest batch
        (spread_evenly(200, 0.0101), True, 24),
        (spread_evenly(200, 0.012), True, 116),
        (spread_evenly(200, 0.5), True, 200),
        (spread_evenly(200, 0.5), False, 200),
    ],
)
def test_more_is_taken_while_imprecise_or_undecided(samples: list[float], decided: bool, more: int) -> None:
    assert next_batch(budget(spent_s=0.1), samples, decided) == more


@pytest.mark.parametrize(
    ("left_reps", "more"),
    [(-1.0, 0), (0.0, 0), (MIN_REPS - 0.5, 0), (MIN_REPS + 0.5, MIN_REPS), (40.5, 40), (50.5, 50), (9_000, 50)],
)
def test_the_time_that_is_left_is_not_exceeded(left_reps: float, more: int) -> None:
    """A batch smaller than MIN_REPS is not worth a session: nothing is taken then."""
    spent = budget(spent_s=10.0 - 1e-3 * left_reps)
    assert next_batch(spent, UNSTEADY, True) == more
    assert next_batch(spent, UNSTEADY, False) == more


@pytest.mark.parametrize(
    ("decided", "worth_reps", "more"),
    [(True, -1.0, 0), (True, MIN_REPS - 0.5, 0), (True, 40.5, 40), (True, 60.5, 50), (False, -1.0, 50)],
)
def test_precision_alone_is_not_worth_all_the_time(decided: bool, worth_reps: float, more: int) -> None:
    """An undecided limit may take all of it."""
    spent = budget(spent_s=1.0)
    spent.precision_time_s = 1.0 + 1e-3 * worth_reps
    assert next_batch(spent, UNSTEADY, decided) == more


@pytest.mark.parametrize(
    ("spends", "spent_s", "cost_s"),
    [
        ([], 0.0, 1e-3),
        ([(0.5, 50)], 0.5, 0.01),
        ([(0.5, 50), (1.5, 50)], 2.0, 0.02),
        ([(0.5, 0)], 0.5, 1e-3),
        ([(0.5, 0), (0.5, 50)], 1.0, 0.02),
        ([(0.5, 50), (1.5, 0)], 2.0, 0.04),
        ([(0.0, 50)], 0.0, 1e-6),
    ],
)
def test_a_rep_costs_what_the_reps_so_far_took(spends: list[tuple[float, int]], spent_s: float, cost_s: float) -> None:
    tracked = budget()
    for seconds, reps in spends:
        tracked.spend(seconds, reps)
    assert tracked.taken == sum(reps for _, reps in spends)
    assert (tracked.spent_s, tracked.rep_cost_s, tracked.left_s) == pytest.approx((spent_s, cost_s, 10 - spent_s))


@pytest.mark.parametrize(
    ("samples", "precise"),
    [
        ([], False),
        ([100.0] * 5, False),  # five samples have no interval
        ([100.0] * 6, True),
        (spread_evenly(50, 0.0099), True),
        (spread_evenly(50, 0.0101), False),
        ([2.016, 2.048] * 10, True),  # one tick is 1.6 %, and more samples would not change that
        ([2.015] * 7 + [2.016, 2.047] * 3 + [2.048] * 7, True),  # rounding to nanoseconds is not a reading between
        ([1.0] + [2.016, 2.048] * 10 + [9.0], True),  # outliers are not in the interval
        ([2.0, 2.0 + 0.9 * MAX_TICK_US] * 10, True),
        ([2.0, 2.0 + 1.1 * MAX_TICK_US] * 10, False),
        ([2.016, 2.048, 2.08] * 10, False),
        ([10.016, 20.032] * 10, False),  # two modes have no median yet, however coarse the clock
    ],
)
def test_is_precise(samples: list[float], precise: bool) -> None:
    assert is_precise(samples, 0.01) is precise


shapes: dict[str, Callable[[random.Random], float]] = {
    "steady": lambda rng: 100.0,
    "normal": lambda rng: rng.gauss(100, 1),
    "wild": lambda rng: rng.lognormvariate(3, 2),
    "ticks": lambda rng: round(rng.gauss(2, 0.02) / 0.032) * 0.032,
    "two modes": lambda rng: rng.choice((10.0, 20.0)) + rng.random(),
}


def run(
    tracked: Budget, draw: Callable[[], float], cost_s: float, decided: Callable[[int], bool], warm: int = 0
) -> tuple[list[float], list[int]]:
    """Take batches as `take_sample` does, after the reps of a warm-up; return the samples and the batches."""
    samples = [draw() for _ in range(warm)]
    batches: list[int] = []
    while more := next_batch(tracked, samples, decided(len(samples))):
        assert more > 0
        samples += [draw() for _ in range(more)]
        batches.append(more)
        tracked.spend(more * cost_s, more)
        assert len(batches) < 100
    return samples, batches


@given(
    st.sampled_from(sorted(shapes)),
    st.integers(0, 2**32),
    st.builds(budget, st.none(), st.floats(1e-4, 0.5), st.floats(1e-3, 5), st.floats(1e-6, 10)),
    st.floats(1e-3, 10),
    st.just(10**9) | st.integers(0, 5_000),
    st.integers(0, 5),
)
def test_it_ends_in_time(shape: str, seed: int, tracked: Budget, cost_s: float, decided_from: int, warm: int) -> None:
    """Whatever the samples, the costs and the verdict: the first batch is the only one that may outlast the time."""
    rng, expected_cost_s, max_time_s = random.Random(seed), tracked.rep_cost_s, tracked.max_time_s
    samples, batches = run(tracked, lambda: shapes[shape](rng), cost_s, decided_from.__le__, warm)
    assert LEAST_REPS <= warm + batches[0] <= MAX_FIRST_REPS
    assert batches[0] * expected_cost_s <= max_time_s * (1 + 1e-9) or warm + batches[0] == LEAST_REPS
    assert all(batch >= MIN_REPS for batch in batches[1:])
    assert all(batch <= max(MIN_REPS, warm + sum(batches[:index])) for index, batch in enumerate(batches) if index)
    assert len(samples) <= MAX_REPS
    assert tracked.spent_s <= max(max_time_s, batches[0] * cost_s) * (1 + 1e-9)
    is_over = len(samples) >= decided_from and is_precise(samples, tracked.precision)
    assert is_over or len(samples) > MAX_REPS - MIN_REPS or tracked.left_s < MIN_REPS * tracked.rep_cost_s * (1 + 1e-9)


@pytest.mark.parametrize(("decided_from", "expected"), [(0, 50), (101, 200), (3_000, 3_200), (10**9, MAX_REPS)])
def test_an_open_verdict_keeps_it_going(decided_from: int, expected: int) -> None:
    """The reps double until the verdict is there, though they are precise from the first batch on."""
    samples, _ = run(budget(max_time_s=1e9, cost_s=FIRST_BATCH_S / 50.5), lambda: 100.0, 1e-9, decided_from.__le__)
    assert len(samples) == expected


@pytest.mark.parametrize(
    ("samples_us", "held_up"),
    [
        ([1.0] * 11, False),  # too few
        ([1.0] * 12, False),
        ([1.0] * 9 + [8.0] * 3, False),
        ([1.0] * 8 + [8.0] * 4, True),
        ([1.0] + [3.0] * 11, False),
        ([1.0] + [3.1] * 11, True),
        ([1.0] * 6 + [1.4] * 6, False),
        ([8.0] * 12, False),
    ],
)
def test_reps_that_others_hold_up(samples_us: list[float], held_up: bool) -> None:
    assert is_held_up(samples_us) is held_up


BUSY, QUIET, ALIKE = [1.0, 8.0], [1.0, 1.2], [12.0, 12.0]
"""What neighbouring reps take; a busy host's slices are as long as each other."""


@pytest.mark.parametrize(
    ("pair_us", "decided", "reps", "spent_s", "more"),
    [
        (BUSY, True, 16, 1.2, True),
        (BUSY, True, 16, 4.9, False),
        (BUSY, True, 40, 1.2, False),  # precision alone is worth no more than a few
        (BUSY, False, 40, 1.2, True),
        (BUSY, False, 40, 4.9, False),
        (QUIET, True, 16, 0.2, False),
        (QUIET, False, 16, 1.2, False),
        (ALIKE, True, 24, 0.3, True),
        (ALIKE, True, 40, 0.3, False),
    ],
)
def test_reps_that_are_held_up_have_longer(
    pair_us: list[float], decided: bool, reps: int, spent_s: float, more: bool
) -> None:
    samples_us = [1.0, *(pair_us * (reps // 2))[1:]]
    spent = Budget(None, 0.005, 1.0, 0.01, spent_s, reps, precision_time_s=0.1, held_up_time_s=5.0)
    assert (next_batch(spent, samples_us, decided) > 0) is more
