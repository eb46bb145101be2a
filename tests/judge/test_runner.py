"""Plain and graph launches of an arm."""

import pytest
import torch

from pytest_gpubench import MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.reference import Reference
from pytest_gpubench.judge.request import spec_of
from pytest_gpubench.judge.runner import GraphedCall
from tests.timing.test_events import FakeGpu, gpu
from tests.timing.test_graph import streams

__all__ = ["gpu", "streams"]  # fixtures


def test_a_graphed_call_is_captured_once_for_each_set_of_inputs(streams: FakeGpu) -> None:
    graphed, sets = GraphedCall(torch.neg, cpu_device()), [torch.ones(4), torch.ones(4)]
    for number in (0, 1, 0, 1):
        graphed(sets[number])
    assert streams.log.count("captured") == 2
    assert streams.log.count("replay") == 4


def test_a_reference_is_launched_as_a_graph_while_that_is_asked_for(
    streams: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph is kept for the next candidate, and for the same inputs only."""
    reference = Reference(spec_of(torch.neg, lambda seed: torch.ones(4), None), cpu_device())
    reference.begin_case((torch.ones(4),), 2)
    for wanted, captured in ((False, 0), (True, 2), (True, 2), (False, 2), (True, 2)):
        reference.launch(as_graph=wanted)
        assert isinstance(reference.runner.function, GraphedCall) is wanted
        assert streams.log.count("captured") == captured
    reference.begin_case((torch.ones(4),), 3)
    assert reference.runner.function is reference.function
    reference.launch(as_graph=True)
    assert streams.log.count("captured") == 5


def test_a_reference_that_cannot_be_captured_is_launched_as_ever(
    streams: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise MeasurementError("it waits")

    monkeypatch.setattr("pytest_gpubench.judge.runner.capture", fail)
    reference = Reference(spec_of(torch.neg, lambda seed: torch.ones(4), None), cpu_device())
    reference.begin_case((torch.ones(4),), 2)
    reference.launch(as_graph=True)
    assert reference.runner.function is reference.function
