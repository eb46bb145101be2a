"""Trends over sizes: ranks, rank correlation, and steps."""

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench.stats.trend import Point, size_that_matters, steps

LEAST_POINTS = 5
LEAST_STRENGTH = 0.3
LEAST_VALUES = 3
ROUNDING = 1e-9

RATIOS = st.floats(1e-3, 1e3)
POINTS = st.lists(st.builds(Point, st.dictionaries(st.sampled_from("abc"), st.integers(0, 20)), RATIOS), max_size=40)


def points(ratios: Sequence[float], **columns: Sequence[int]) -> list[Point]:
    return [Point({name: of[index] for name, of in columns.items()}, ratio) for index, ratio in enumerate(ratios)]


def plain_ranks(values: Sequence[float]) -> list[float]:
    """Return ranks by their definition: of those below, and the mean of its own places."""
    return [sum(each < value for each in values) + (sum(each == value for each in values) - 1) / 2 for value in values]


def plain_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the product-moment correlation of the ranks; 0 for too few."""
    if len(first) < LEAST_POINTS or len(set(first)) < LEAST_VALUES or len(set(second)) < 2:
        return 0.0
    pairs = [
        (one - (len(first) - 1) / 2, two - (len(first) - 1) / 2)
        for one, two in zip(*map(plain_ranks, (first, second)), strict=True)
    ]
    products = [sum(one * two for one, two in pairs), sum(one**2 for one, _ in pairs), sum(two**2 for _, two in pairs)]
    return float(products[0] / math.sqrt(products[1] * products[2]))


@pytest.mark.parametrize(
    ("columns", "ratios", "expected"),
    [
        ({"rows": [1, 2, 3, 4]}, [1, 2, 3, 4], None),
        ({"rows": [1, 2, 3, 4, 5]}, [1, 2, 3, 4, 5], "rows"),
        ({"rows": [5, 4, 3, 2, 1], "width": [2, 1, 3, 4, 5]}, [1, 2, 3, 4, 5], "rows"),  # falling counts as rising
        ({"rows": [8, 8, 8, 8, 8]}, [1, 2, 3, 4, 5], None),
        ({"rows": [1, 2, 3, 4, 5]}, [1, 1, 1, 1, 1], None),
        ({"rows": [1, 1, 2, 2, 2]}, [1, 2, 3, 4, 5], None),  # a value too few
        ({"rows": [1, 10, 100, 1000, 10**9], "width": [1, 2, 3, 5, 4]}, [0.1, 0.2, 0.3, 0.4, 0.5], "rows"),  # of ranks
        ({"b": [1, 2, 3, 4, 5], "a": [1, 2, 3, 4, 5]}, [1, 2, 3, 4, 5], "a"),  # of equals the first by name
    ],
)
def test_the_size_that_matters(columns: Mapping[str, list[int]], ratios: list[float], expected: str | None) -> None:
    assert size_that_matters(points(ratios, **columns)) == expected


@settings(max_examples=50)
@given(POINTS)
def test_the_size_that_matters_goes_best_with_the_ratio(found: list[Point]) -> None:
    having = {name: [(each.sizes[name], each.value) for each in found if name in each.sizes] for name in "abc"}
    strengths = {
        name: abs(plain_correlation([size for size, _ in pairs], [value for _, value in pairs]))
        for name, pairs in having.items()
    }
    name = size_that_matters(found)
    if name:
        assert strengths[name] >= max(*strengths.values(), LEAST_STRENGTH) - ROUNDING
    else:
        assert max(strengths.values()) < LEAST_STRENGTH + ROUNDING


@pytest.mark.parametrize(
    ("sizes", "ratios", "expected"),
    [
        ([], [], []),
        ([4], [1.5], [(4, 1.5)]),
        ([4, 4, 4], [1, 5, 2], [(4, 2)]),
        ([2, 1], [20, 10], [(1, 10), (2, 20)]),
        ([*range(8)], [*range(8)], [(size, size) for size in range(8)]),
        ([*range(9)], [*range(9)], [(1, 0.5), (3, 2.5), (5, 4.5), (7, 6.5), (8, 8)]),
        ([*range(16, 0, -1)], [1] * 15 + [9], [(2, 5), (4, 1), (6, 1), (8, 1), (10, 1), (12, 1), (14, 1), (16, 1)]),
    ],
)
def test_steps(sizes: list[int], ratios: list[float], expected: list[tuple[int, float]]) -> None:
    assert steps(points(ratios, rows=sizes), "rows") == expected
    assert steps(points(ratios, rows=sizes), "width") == []


@settings(max_examples=50)
@given(POINTS)
def test_steps_are_ordered_few_and_cover_all(found: list[Point]) -> None:
    having = [(point.sizes["a"], point.value) for point in found if "a" in point.sizes]
    taken = steps(found, "a")
    ends, ratios = [end for end, _ in taken], [ratio for _, ratio in taken]
    assert ends == sorted(ends)
    assert len(taken) <= min(8, len({size for size, _ in having}))
    assert bool(taken) == bool(having)
    if having:
        assert ends[-1] == max(size for size, _ in having)
        assert set(ends) <= {size for size, _ in having}
        assert min(ratio for _, ratio in having) <= min(ratios)
        assert max(ratios) <= max(ratio for _, ratio in having)
