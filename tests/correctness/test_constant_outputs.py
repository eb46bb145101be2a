"""Outputs that one number matches: which tolerance lets it pass, and which would not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench.correctness import Tolerance, compare_outputs
from pytest_gpubench.correctness.constant_outputs import extents_of

numbers = st.floats(-1e6, 1e6, width=32)


@pytest.mark.parametrize(
    ("outputs", "tolerance", "flat"),
    [
        (torch.tensor([0.0, 0.99e-5]), Tolerance(), True),
        (torch.tensor([0.0, 1.01e-5]), Tolerance(), True),  # half of it is near enough to both
        (torch.tensor([0.0, 2.01e-5]), Tolerance(), False),
        (torch.tensor([-0.99e-5, 0.99e-5]), Tolerance(), True),
        (torch.tensor([-1.01e-5, 1.01e-5]), Tolerance(), False),
        (torch.tensor([1.0, 1.01]), Tolerance(1e-2, 0), True),
        (torch.tensor([1.0, 1.03]), Tolerance(1e-2, 0), False),
        (torch.tensor([5e-6] * 3), Tolerance(), True),
        (torch.tensor(5e-6), Tolerance(), True),
        (torch.tensor(5e-5), Tolerance(), False),
        (torch.zeros(3), Tolerance(), False),  # nothing else is right
        (torch.full((3,), 2.0), Tolerance(), False),
        (torch.tensor([1, 1]), Tolerance(), False),
        (torch.tensor([0, 1]), Tolerance(), False),
        (torch.tensor([0.0, math.inf]), Tolerance(), False),
        (torch.tensor([0.0, math.nan]), Tolerance(), False),
        (torch.tensor([1e-6j, 2e-6j]), Tolerance(), True),
        (torch.tensor([2.0**-10, 2.0**-9]).to(torch.float8_e4m3fn), Tolerance(), True),
        (3e-8, Tolerance(), True),
        (3e-7, Tolerance(), False),
        (torch.tensor([0.0, 1e-6], requires_grad=True), Tolerance(), True),
        (1, Tolerance(), False),  # exact, as are integer tensors
        (0, Tolerance(), False),
        (10**400, Tolerance(), False),
    ],
)
def test_which_outputs_are_flat(outputs: object, tolerance: Tolerance, flat: bool) -> None:
    (extent,) = extents_of(outputs, tolerance)
    assert extent.is_flat is flat


@given(values=st.lists(numbers, min_size=2, max_size=5), rtol=st.floats(0, 0.5), atol=st.floats(0, 1e3))
def test_a_flat_output_is_one_that_some_number_matches(values: list[float], rtol: float, atol: float) -> None:
    """The number is the one that the sentence names, but for what its three digits round away."""
    expected, tolerance = torch.tensor(values, dtype=torch.float64), Tolerance(rtol, atol)
    (extent,) = extents_of(expected, tolerance)
    middle = (extent._highest_allowed() + extent._lowest_allowed()) / 2
    candidates = [torch.full_like(expected, number) for number in (0.0, middle, *values)]
    passes = any(compare_outputs(each, expected, tolerance)[0].passed for each in candidates)
    if extent.is_flat:
        loose = Tolerance(rtol, atol * (1 + 1e-9) + 1e-9)
        assert any(compare_outputs(each, expected, loose)[0].passed for each in candidates)
    elif not extent.is_constant:
        assert not passes or extent._highest_allowed() - extent._lowest_allowed() > -1e-6


@pytest.mark.parametrize(
    ("ends", "tolerance", "sentence"),
    [
        (
            (1e-6, 4e-6),
            Tolerance(1.3e-6, 1e-5),
            "out lies between 1e-06 and 4e-06, so that 0 everywhere is within rtol=1.3e-06 and atol=1e-05; rtol=0, "
            "atol=4e-07 would tell",
        ),
        (
            (0.49, 0.51),
            Tolerance(0.1, 0.0),
            "out lies between 0.49 and 0.51, so that 0.499 everywhere is within rtol=0.1 and atol=0; rtol=0, "
            "atol=0.002 would tell",
        ),
    ],
)
def test_the_sentence_names_a_tolerance_that_would_tell(
    ends: tuple[float, float], tolerance: Tolerance, sentence: str
) -> None:
    output = torch.tensor(ends, dtype=torch.float64)
    (extent,) = extents_of(output, tolerance)
    assert extent.is_flat
    assert extent.sentence == sentence
    atol = float(sentence.rpartition("atol=")[2].partition(" ")[0])
    (told,) = extents_of(output, Tolerance(0, atol))
    assert not told.is_flat


def test_every_output_is_looked_at_but_empty_ones() -> None:
    outputs = {"a": torch.ones(2), "b": [torch.empty(0), 2.0, "text", None, 3], "c": torch.arange(3)}
    assert [each.name for each in extents_of(outputs, Tolerance())] == [
        "out['a']",
        "out['b'][1]",
        "out['b'][4]",
        "out['c']",
    ]
