import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench import BadRequest
from pytest_gpubench.stats.changepoints import change_points, smallest_step

LEAST_SERIES = 6
LEAST_RUNS = 3

Noise = Callable[[random.Random], float]
NOISES: dict[str, Noise] = {
    "normal": lambda chance: math.exp(chance.gauss(0, 0.01)),
    "heavy tails": lambda chance: math.exp(max(-50.0, min(50.0, 0.01 * math.tan(math.pi * (chance.random() - 0.5))))),
    "outliers": lambda chance: math.exp(chance.gauss(0, 0.01) + (0.5 if chance.random() < 0.1 else 0)),
    "ties": lambda chance: 1 + round(chance.gauss(0, 0.01), 2),
    "skewed": lambda chance: 1 + 0.01 * chance.expovariate(1),
}


def make_series(seed: int, length: int, noise: Noise, levels: dict[int, float]) -> list[float]:
    """Return values with a level that changes, by a factor, from each of these places on."""
    chance, level, values = random.Random(seed), 100.0, []
    for at in range(length):
        level *= levels.get(at, 1.0)
        values.append(level * noise(chance))
    return values


def is_found(values: Sequence[float], levels: dict[int, float], slack: int) -> bool:
    """Tell whether the changes are found, and no others, each about where it is and as large as it is."""
    found = change_points(values)
    return len(found) == len(levels) and all(
        abs(point.index - at) <= slack and abs(point.ratio / ratio - 1) < 0.02
        for point, (at, ratio) in zip(found, levels.items(), strict=True)
    )


@pytest.mark.parametrize("length", [6, 12, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", NOISES.values(), ids=list(NOISES))
def test_false_alarms_are_as_rare_as_alpha(noise: Noise, length: int) -> None:
    """Of 300 series without a change 3 are expected to have one, and more than 9 in one of 1,000 such tests."""
    assert sum(bool(change_points(make_series(seed, length, noise, {}))) for seed in range(300)) <= 9


def test_a_series_has_the_same_changes_each_time() -> None:
    """Random orders decide, and many of these series are close to alpha."""
    series = [make_series(seed, 18, NOISES["normal"], {9: 1.011}) for seed in range(40)]
    first, again = ([change_points(values, 0.05) for values in series] for _ in range(2))
    assert first == again
    assert 0 < sum(map(bool, first)) < 40


@pytest.mark.parametrize(
    ("alpha", "series", "most"),
    [(0.05, 100, 12), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0.05, 300, 24), (0.2, 300, 80)))],
)
def test_alpha_is_what_is_asked_for(alpha: float, series: int, most: int) -> None:
    """This share of the series is expected at most; so that it is no idle bound, half as many are at least."""
    found = [change_points(make_series(seed, 30, NOISES["normal"], {}), alpha) for seed in range(series)]
    assert 0.4 * series * alpha <= sum(map(bool, found)) <= most


SLOW = pytest.mark.slow
CHANGES = {
    "middle": (20, {10: 1.03}, 80),
    "five last": (30, {25: 1.03}, 80),
    "three last": (30, {27: 1.05}, 80),
    "short": (12, {6: 1.05}, 85),
    "repaired": (30, {10: 1.05, 20: 1 / 1.05}, 90),
    "two steps": (60, {20: 0.95, 40: 1.10}, 90),
    "ten of sixty": (60, {50: 1.03}, 85),
}
"""How long a series is, where its level changes by which factor, and in how many percent that is found at least."""


@pytest.mark.parametrize(
    ("name", "number"),
    [("middle", 20), ("short", 20), ("repaired", 20), *(pytest.param(each, 100, marks=SLOW) for each in CHANGES)],
)
def test_changes_are_found_where_they_are(name: str, number: int) -> None:
    """In so many series whose values scatter by 1 %."""
    length, levels, least = CHANGES[name]
    series = [make_series(seed, length, NOISES["normal"], levels) for seed in range(number)]
    assert sum(is_found(values, levels, slack=1) for values in series) >= number * least / 100


@pytest.mark.parametrize("seed", [1, 19, 21])
def test_a_large_change_is_found_at_its_first_run(seed: int) -> None:
    values = make_series(seed, 17, lambda chance: math.exp(chance.gauss(0, 0.001)), {5: 1 / 1.06})
    (found,) = change_points(values)
    assert found.index == 5
    assert found.ratio == pytest.approx(1 / 1.06, rel=0.01)


def test_a_change_is_found_among_outliers() -> None:
    levels = {20: 1.1}
    series = [make_series(seed, 40, NOISES["outliers"], levels) for seed in range(20)]
    assert sum(is_found(values, levels, slack=2) for values in series) >= 16


@pytest.mark.parametrize("slow", range(1, 6))
def test_one_or_two_slow_nights_are_no_change(slow: int) -> None:
    quiet = [100.0 + 0.1 * (at % 3) for at in range(40)]
    assert bool(change_points([*quiet, *[150.0] * slow])) is (slow >= 3)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(BadRequest, match="positive, finite"):
        change_points([100.0] * 10 + [value])


@settings(max_examples=50)
@given(st.lists(st.floats(1e-3, 1e9), max_size=40))
def test_places_are_the_same_each_time_in_order_and_inside(values: list[float]) -> None:
    found = change_points(values)
    assert found == change_points(values)
    assert [point.index for point in found] == sorted({point.index for point in found})
    assert all(LEAST_RUNS <= point.index <= len(values) - LEAST_RUNS for point in found)


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("length", [LEAST_SERIES, 14])
def test_a_plain_change_is_found_from_six_runs_on(length: int, alpha: float) -> None:
    values = [100.0 + at % 3 / 1000 for at in range(length)]
    changed = [value * (1.5 if at >= length - 3 else 1.0) for at, value in enumerate(values)]
    assert [point.index for point in change_points(changed, alpha)] == [length - 3]
    assert change_points([*values[:-1], 150.0], alpha) == []


@pytest.mark.parametrize(("length", "least"), [(6, 0.6), (8, 0.65), (10, 0.7), (12, 0.8)])
def test_a_step_three_runs_ago_is_found_in_short_series(length: int, least: float) -> None:
    """By 2 %, where values scatter by 0.5 %; its first run may be off by one."""
    series = [
        make_series(seed, length, lambda chance: math.exp(chance.gauss(0, 0.005)), {length - 3: 1.02})
        for seed in range(100)
    ]
    found = [change_points(values) for values in series]
    assert sum(len(each) == 1 and abs(each[0].index - length + 3) <= 1 for each in found) >= 100 * least


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([2.016] * 3 + [2.048] * 3, False),  # the two may be one tick apart
        ([2.016] * 5 + [2.048] * 5, True),
        ([2.0] * 3 + [4.0] * 3, True),  # no tick is as long
    ],
)
def test_times_that_are_a_tick_apart(values: list[float], found: bool) -> None:
    assert bool(change_points(values)) is found


@pytest.mark.parametrize("length", [5, 6, 14, 15])
def test_the_smallest_step_is_known_of_short_series(length: int) -> None:
    """A step of its size three runs ago is found in about nine of ten others like it."""
    number, steady = 100, NOISES["normal"]
    steps = [smallest_step(make_series(seed, length, steady, {}), 0.01) for seed in range(number)]
    if length in (5, 15):
        assert set(steps) == {None}
        return
    found = [
        bool(change_points(make_series(seed + number, length, steady, {length - 3: 1 + (step or 0.0)})))
        for seed, step in enumerate(steps)
    ]
    assert 0.7 * number <= sum(found) <= 0.97 * number
