"""Memory beside outputs in a pool; what a GPU has to do with it is in tests/on_gpu/test_correctness.py."""

import pytest

from pytest_gpubench.correctness.pool import spans_beside

FAR = 10 * 2**20


@pytest.mark.parametrize(
    ("storages", "filled", "beside"),
    [
        ({}, [(0, 100)], {}),
        ({20: 10}, [], {}),
        ({20: 10}, [(0, 100)], {20: [(0, 20), (30, 100)]}),
        ({0: 100}, [(0, 100)], {0: [(0, 0), (100, 100)]}),
        ({100: 10}, [(0, 100)], {}),  # in memory that was in use
        ({20: 10, 30: 40}, [(0, 100)], {20: [(0, 20), (30, 30)], 30: [(30, 30), (70, 100)]}),
        ({220: 10, 20: 10}, [(0, 100), (200, 300)], {20: [(0, 20), (30, 100)], 220: [(200, 220), (230, 300)]}),
        (
            {FAR: 10},
            [(0, 2 * FAR)],
            {FAR: [(FAR - 2**20, FAR), (FAR + 10, FAR + 10 + 2**20)]},
        ),
    ],
)
def test_memory_beside_outputs(
    storages: dict[int, int], filled: list[tuple[int, int]], beside: dict[int, list[tuple[int, int]]]
) -> None:
    assert spans_beside(storages, filled) == beside
