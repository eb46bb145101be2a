"""Prove that a call that is data computes what the call does: for other values, in other memory, from its images."""

from collections.abc import Callable
from itertools import islice
from types import MappingProxyType

import torch

from pytest_gpubench.correctness import Variation
from pytest_gpubench.correctness.leaves import Leaves, tensors_of
from pytest_gpubench.correctness.variation import Way, tensors_for
from pytest_gpubench.errors import first_line
from pytest_gpubench.gpu.context import context_error
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.addresses import input_memory
from pytest_gpubench.replay.builder import GraphBuilder
from pytest_gpubench.replay.capture import CapturedCall, outputs_of
from pytest_gpubench.replay.driver import DriverError
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.replayed import Replayed, Values, memory_for, replaying
from pytest_gpubench.replay.scatter import Outputs, differing
from pytest_gpubench.timing.base import Call
from pytest_gpubench.units import format_bytes


def prove(call: Call, captured: CapturedCall, device: Device, cuda: GraphBuilder) -> None:
    """Raise NotReplayable, with the reason, unless replays of a call give what it returns.

    It is built from its images with all of its memory elsewhere, and replayed with the values that it was given and
    with others; what it changes among its inputs is compared too. Raises RuntimeError where that breaks CUDA.
    """
    assert call.inputs is not None, "it was captured"
    leaves, data = call.inputs(), captured.data
    inputs = input_memory(leaves, device.torch_device)
    try:
        memory = memory_for(data.regions, device.torch_device)
        with cuda.loaded(data, captured.images) as modules, replaying(data, modules, memory, cuda, device) as replayed:
            for way in ways_for(leaves):
                _prove_once(call, replayed, leaves, inputs, way)
    except torch.OutOfMemoryError as error:
        raise NotReplayable("there is no room for its memory twice") from error
    except (DriverError, RuntimeError) as error:
        if broken := context_error():
            raise RuntimeError(
                f"replayed from its data, {data.label} has broken CUDA in this process ({broken}): "
                "give perf(save_calls='no') to its test"
            ) from error
        if isinstance(error, DriverError):
            raise NotReplayable(f"rebuilt from its data, it fails: {first_line(error)}") from error
        raise


def ways_for(leaves: Leaves) -> list[Way]:
    """Return "as given", and the first way that gives the inputs other values, if any does."""
    tensors = [leaf for _, leaf in leaves]
    others = (way for way in Variation.WAYS if tensors_for(way, tensors))
    return ["as given", *islice(others, 1)]


def _prove_once(call: Call, replayed: Replayed, leaves: Leaves, inputs: Values, way: Way) -> None:
    expected, changed = _expected(call, way, leaves, inputs, lambda: give(replayed, inputs))
    replayed.launch()
    found = {name: tensor.clone() for name, tensor in replayed.outputs()}
    if found.keys() - expected.keys():
        raise NotReplayable("it returns other outputs for other values")
    wrong = differing(found, expected, lambda: _expected(call, way, leaves)[0])
    if wrong:
        other = sum(region.bytes for region in replayed.data.regions if region.kind == "other")
        suspect = f"; it uses {format_bytes(other)} that are no argument of it: give tensors as arguments"
        raise NotReplayable(f"replayed, it computes something else: {wrong[0].line}{suspect if other else ''}")
    if not all(torch.equal(memory, changed[names]) for names, memory in _inputs_of(replayed)):
        raise NotReplayable("replayed, it computes something else: what it changes among its inputs differs")


def _expected(
    call: Call,
    way: Way,
    leaves: Leaves,
    inputs: Values = MappingProxyType({}),
    before: Callable[[], None] = lambda: None,
) -> tuple[Outputs, Values]:
    """Return what a call computes of values varied in a way, and the inputs after it; before: called before it."""
    prepared = call.prepare()
    variation, tensors = Variation(), [leaf for _, leaf in leaves]
    variation.begin(way, tensors)
    try:
        before()
        returned = prepared()
        outputs = {name: tensor.detach().clone() for name, tensor in tensors_of(outputs_of(call, returned))}
        return outputs, {names: memory.clone() for names, memory in inputs.items()}
    finally:
        variation.end()


def give(replayed: Replayed, inputs: Values) -> None:
    """Write the values of inputs into the memory of a replayed call."""
    for names, memory in _inputs_of(replayed):
        memory.copy_(inputs[names])


def _inputs_of(replayed: Replayed) -> list[tuple[tuple[str, ...], torch.Tensor]]:
    """Return the memory of the inputs of a replayed call, by their names."""
    regions = zip(replayed.data.regions, replayed.memory, strict=True)
    return [(region.names, memory) for region, memory in regions if region.kind == "input"]
