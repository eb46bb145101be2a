"""The reference of a case, whose inputs and graphs serve many candidates."""

from typing import Any

import pytest
import torch

from pytest_gpubench import BadRequest
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.reference import Reference
from pytest_gpubench.judge.request import spec_of


@pytest.mark.parametrize(
    ("tolerance", "message"),
    [
        ({"golden": "float32"}, "golden= must be 'float64' or a function, found 'float32'"),
        ({"golden_factor": 3}, "golden_factor=3 is given without golden="),
        ({"rtoll": 1}, r"tolerance = \{'rtoll': 1\} is not valid: .*'rtoll'"),
    ],
)
def test_a_tolerance_that_is_not_valid_is_refused(tolerance: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        Reference(spec_of(torch.tanh, lambda seed: torch.zeros(4), tolerance), {}, cpu_device())


def test_inputs_are_made_once_for_a_number_of_calls() -> None:
    """Graphs read them where they are: with other inputs, they are forgotten."""
    reference = Reference(spec_of(torch.tanh, lambda seed: torch.zeros(4), None), {}, cpu_device())
    reference.begin_case((torch.zeros(4),), 2)
    first = [*reference.sets]
    reference.runner._graphs[2] = (None, ())
    reference.begin_case((torch.ones(4),), 2)
    assert [each is other for each, other in zip(first, reference.sets, strict=True)] == [True, True]
    assert reference.runner.prepare([2])
    reference.begin_case((torch.ones(4),), 3)
    assert len(reference.sets) == 3
    assert not reference.runner.prepare([2])
