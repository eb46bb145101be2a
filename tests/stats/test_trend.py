"""Trends over sizes: ranks, rank correlation, and steps."""

from collections.abc import Mapping, Sequence

import pytest

from pytest_gpubench.stats.trend import Point, size_that_matters, steps


def points(ratios: Sequence[float], **columns: Sequence[int]) -> list[Point]:
    return [Point({name: of[index] for name, of in columns.items()}, ratio) for index, ratio in enumerate(ratios)]


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
        ({"rows": [1, 2, 3, 4, 5]}, [1, 3, 4, 5, 2], "rows"),  # a rank correlation of 0.4
        ({"rows": [1, 2, 3, 4, 5]}, [1, 4, 5, 2, 3], None),  # of 0.2
        ({"b": [1, 2, 3, 4, 5], "a": [1, 2, 3, 4, 5]}, [1, 2, 3, 4, 5], "a"),  # of equals the first by name
    ],
)
def test_the_size_that_matters(columns: Mapping[str, list[int]], ratios: list[float], expected: str | None) -> None:
    assert size_that_matters(points(ratios, **columns)) == expected


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
