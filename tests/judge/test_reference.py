"""The reference of a case, whose inputs and graphs serve many candidates."""

import torch

from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.reference import Reference
from pytest_gpubench.judge.request import spec_of


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
