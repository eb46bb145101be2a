"""Outputs that differ, and by how much they may."""

from collections.abc import Iterator, Mapping

import pytest
import torch

from pytest_gpubench.replay.scatter import differing

ONES = {"out": torch.ones(4)}


def at(value: float, name: str = "out") -> Mapping[str, torch.Tensor]:
    return {name: torch.full((4,), value)}


def calls(*values: float) -> Iterator[Mapping[str, torch.Tensor]]:
    yield from map(at, values)


def never() -> Mapping[str, torch.Tensor]:
    raise AssertionError("equal outputs need no further calls")


def test_equal_outputs_are_not_computed_again() -> None:
    assert differing(ONES, ONES, never) == []
    assert differing(at(1 + 1e-7), ONES, never) == []


@pytest.mark.parametrize(("off", "wrong"), [(0.99, 0), (1.01, 1)])
def test_outputs_may_differ_by_a_multiple_of_their_scatter(off: float, wrong: int) -> None:
    further = calls(1.0, 1.01, 0.995, 1.0)
    found = differing(at(1 + off * 0.04), ONES, lambda: next(further))
    assert len(found) == wrong
    assert next(further, None) is None, "4 calls were made"


@pytest.mark.parametrize(("off", "wrong"), [(0.99, 0), (1.01, 1)])
def test_outputs_that_scatter_widely_prove_nothing(off: float, wrong: int) -> None:
    """As those of dropout, of which another call's are as far away as anything is."""
    further = calls(0.0, 1.0, 0.0, 1.0)
    assert len(differing(at(1 + off * 0.05), ONES, lambda: next(further))) == wrong


def test_numbers_that_are_not_finite_give_no_room() -> None:
    expected = {"out": torch.tensor([torch.inf, torch.nan, 1.0])}
    further = {"out": torch.tensor([torch.inf, torch.nan, 2.0])}
    assert len(differing({"out": torch.tensor([torch.inf, torch.nan, 1.1])}, expected, lambda: further)) == 1


def test_outputs_that_do_not_scatter_may_not_differ() -> None:
    assert len(differing(at(1.01), ONES, lambda: ONES)) == 1


def test_an_output_of_another_shape_differs() -> None:
    assert len(differing({"out": torch.ones(3)}, ONES, lambda: ONES)) == 1


def test_whole_numbers_have_to_be_equal() -> None:
    whole = {"out": torch.tensor([1, 2])}
    assert differing(whole, whole, never) == []
    assert len(differing({"out": torch.tensor([1, 3])}, whole, lambda: {"out": torch.tensor([5, 9])})) == 1


def test_only_outputs_that_both_have_are_compared() -> None:
    assert differing(at(7.0, "other"), ONES, never) == []
