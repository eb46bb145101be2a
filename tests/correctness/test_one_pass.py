"""Checks in one pass over the memory."""

import pytest
import torch

from pytest_gpubench.correctness import one_pass


@pytest.mark.parametrize("part_bytes", [8, 16, 40])
@pytest.mark.parametrize("place", [0, 7, 8, 23, 24, 39, None])
def test_bytes_that_differ_in_any_part(place: int | None, part_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is compared in parts."""
    monkeypatch.setattr(one_pass, "COMPARED_ELEMENTS", part_bytes // 8)
    one, other = torch.zeros(40, dtype=torch.uint8), torch.zeros(40, dtype=torch.uint8)
    if place is not None:
        other[place] = 1
    assert one_pass.bytes_differ([(one, one), (one, other), (one, one)]) == [False, place is not None, False]
