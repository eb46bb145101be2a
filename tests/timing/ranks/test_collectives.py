"""Bandwidth, as nccl-tests counts it."""

import pytest

from pytest_gpubench.timing.ranks.collectives import BUS_FACTORS, bus_bytes


@pytest.mark.parametrize(
    ("collective", "of_two", "of_eight"),
    [
        ("all_reduce", 1000, 1750),
        ("reduce_scatter", 500, 875),
        ("all_gather", 500, 875),
        ("all_to_all", 500, 875),
        ("broadcast", 1000, 1000),
        ("reduce", 1000, 1000),
    ],
)
def test_bus_bytes(collective: str, of_two: int, of_eight: int) -> None:
    assert bus_bytes(collective, 1000, 2) == of_two
    assert bus_bytes(collective, 1000, 8) == of_eight


def test_every_collective_has_a_row_above() -> None:
    assert len(BUS_FACTORS) == 6
