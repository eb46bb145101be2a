"""How often a test FAILs or is INCONCLUSIVE against a saved run, by what processes differ by: unchanged, and slower.

From 60 tests of a few cells, and with `-m slow` from 2,000 of each.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest

from pytest_gpubench import Measurement
from pytest_gpubench.results.model import Outcome
from pytest_gpubench.stats.process_spread import UNKNOWN_TIME, spread_of, spread_of_suite
from pytest_gpubench.stats.tolerance import parse_tolerance
from pytest_gpubench.verdict.sessions import Sessions, compare_measurements
from tests.results.measured import ALPHA, alone
from tests.stats.simulation import Floats, slack

PASS, FAIL, INCONCLUSIVE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
JITTER = 0.003
"""The standard deviation of the reps of one process."""
REPS = (30,)
SLOWER = 0.1
TESTS = 2_000

Draw = Callable[[np.random.Generator, int, int], Floats]
"""Takes a generator, tests and sessions; returns the logarithm of the factor on each session's time, a test a row."""


def spread(rng: np.random.Generator, tests: int, sessions: int, std: float) -> Floats:
    return std * rng.standard_normal((tests, sessions))


def modes(rng: np.random.Generator, tests: int, sessions: int, share: float, apart: float = 0.08) -> Floats:
    """A share of the processes take longer."""
    slow = rng.random((tests, sessions)) < share
    return spread(rng, tests, sessions, 0.001) + math.log1p(apart) * slow


def odd(rng: np.random.Generator, tests: int, sessions: int, at: int) -> Floats:
    """One session, of which the first five are saved, takes 10 % longer."""
    logs = spread(rng, tests, sessions, 0.003)
    logs[:, at] += math.log1p(0.1)
    return logs


def one_noisy(rng: np.random.Generator, tests: int, sessions: int) -> Floats:
    """The last test differs by 3 %, the others by 0.3 %."""
    logs = spread(rng, tests, sessions, 0.003)
    logs[-1] *= 10
    return logs


@dataclass(frozen=True)
class Cell:
    """A suite of tests that is compared with its saved sessions."""

    name: str
    draw: Draw
    saved: int = 5
    suite: int = 1
    tolerance: str = "median:5%"
    reps: Sequence[int] = REPS
    """The reps of a session are one of these."""
    counted: slice = field(default_factory=partial(slice, None))
    """The tests of a suite that are counted."""
    slower: slice = field(default_factory=partial(slice, None))
    """Those that get slower, where any do."""


def measured(rng: np.random.Generator, log: float, reps: Sequence[int]) -> Measurement:
    samples_us = 100 * np.exp(log + JITTER * rng.standard_normal(rng.choice(reps)))
    return alone(samples_us=tuple(samples_us.tolist()))


def judge_suite(cell: Cell, slower: float, rng: np.random.Generator) -> list[Outcome]:
    """Return the outcome of each test that is counted."""
    logs = cell.draw(rng, cell.suite, cell.saved + 1 + 10)
    logs[cell.slower, cell.saved :] += math.log1p(slower)
    saved = [[measured(rng, log, cell.reps) for log in row[: cell.saved]] for row in logs]
    owns = [spread_of([math.log(each.timing.median_us) for each in row]) for row in saved]
    suite = {"time": spread_of_suite([own for own in owns if own], UNKNOWN_TIME)}
    tolerance, found = parse_tolerance(cell.tolerance), []
    for old, row in list(zip(saved, logs[:, cell.saved :], strict=True))[cell.counted]:
        new: list[Measurement] = []
        further = 1
        while further:
            new.append(measured(rng, row[len(new)], cell.reps))
            sessions = Sessions(old[:-1], new[1:], suite)
            judged = compare_measurements(old[-1], new[0], tolerance, ALPHA, "the baseline", sessions)
            further = judged.further
        found.append(judged.outcome)
    return found


def shares(cell: Cell, slower: float, tests: int) -> dict[Outcome, float]:
    """Return the share of each outcome among at least so many tests."""
    found: list[Outcome] = []
    rng = np.random.default_rng(20261124)
    while len(found) < tests:
        found += judge_suite(cell, slower, rng)
    return {outcome: found.count(outcome) / len(found) for outcome in Outcome}


ORDINARY = [
    Cell(f"sd {std:.1%}", partial(spread, std=std), saved, suite)
    for std, saved, suite in itertools.product((0.003, 0.008), (1, 5), (1, 3, 10, 30))
]
MODES = [
    Cell(f"two modes 8 % apart, {share:.0%} slow", partial(modes, share=share), saved)
    for share, saved in itertools.product((0.2, 0.5, 0.8), (1, 5))
]
HARD = [
    *MODES,
    *(
        Cell("heavy tails: t(2), 0.3 %", lambda rng, *shape: 0.003 * rng.standard_t(2, shape), suite=suite)
        for suite in (1, 10)
    ),
    Cell("one of five saved sessions 10 % slower", partial(odd, at=1), suite=10),
    Cell("the first new session 10 % slower", partial(odd, at=5), suite=10),
    Cell("sessions of 12, 30 and 200 reps, sd 0.8 %", partial(spread, std=0.008), suite=10, reps=(12, 30, 200)),
    Cell("30 tests of sd 0.3 % beside one of 3 %: these", one_noisy, suite=31, counted=slice(0, -1)),
    Cell("30 tests of sd 0.3 % beside one of 3 %: that one", one_noisy, suite=31, counted=slice(-1, None)),
    Cell("sessions creep by 0.3 % each", lambda rng, n, m: spread(rng, n, m, 0.003) + 0.003 * np.arange(m), suite=10),
    *(
        Cell(f"half slower: {name} half", partial(spread, std=0.008), suite=30, counted=counted, slower=slice(15))
        for name, counted in (("that", slice(15)), ("the other", slice(15, None)))
    ),
]


def test_five_sessions_decide_what_one_does() -> None:
    """Few tests: what 2,000 come to is a slow test's."""
    cell = Cell("", partial(spread, std=0.008), suite=3)
    unchanged = shares(cell, 0.0, 60)
    assert unchanged[FAIL] == 0
    assert unchanged[INCONCLUSIVE] <= 0.05 + slack(0.05, 60)
    assert shares(cell, SLOWER, 60)[FAIL] >= 0.95 - slack(0.05, 60)


@pytest.mark.parametrize("cell", MODES, ids=lambda cell: f"{cell.name}, {cell.saved} saved")
def test_modes_fail_no_unchanged_code(cell: Cell) -> None:
    assert shares(cell, 0.0, 60)[FAIL] == 0


@pytest.mark.slow
@pytest.mark.parametrize("cell", [*ORDINARY, *HARD], ids=lambda cell: f"{cell.name}, {cell.saved}, {cell.suite}")
def test_unchanged_code_fails_once_in_a_thousand_tests_at_most(cell: Cell) -> None:
    assert shares(cell, 0.0, TESTS)[FAIL] <= ALPHA + slack(ALPHA, TESTS)


@pytest.mark.slow
@pytest.mark.parametrize("suite", [1, 3, 10, 30])
def test_five_sessions_decide_where_processes_differ_by_eight_in_a_thousand(suite: int) -> None:
    cell = Cell("", partial(spread, std=0.008), suite=suite)
    assert shares(cell, 0.0, TESTS)[INCONCLUSIVE] <= 0.05
    assert shares(cell, SLOWER, TESTS)[FAIL] >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("suite", [1, 10])
@pytest.mark.parametrize("std", [0.003, 0.008, 0.03])
@pytest.mark.parametrize("tolerance", [0.01, 0.05])
def test_code_at_the_tolerance_seldom_fails(tolerance: float, std: float, suite: int) -> None:
    """36 of 20,000 tests that are alone in their suite, and differ by 0.8 %."""
    cell = Cell("", partial(spread, std=std), suite=suite, tolerance=f"median:{100 * tolerance:g}%")
    assert shares(cell, tolerance, 10_000)[FAIL] <= 2 * ALPHA + slack(2 * ALPHA, 10_000)
