"""Time stored calls without their code: one by itself, or two in turn. Their inputs are made up, or given as bytes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from pytest_gpubench.correctness.inputs import InputMemory
from pytest_gpubench.correctness.leaves import Leaves
from pytest_gpubench.errors import GpuBenchError, MeasurementError, first_line
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.addresses import input_memory
from pytest_gpubench.replay.builder import GraphBuilder, find_builder
from pytest_gpubench.replay.call_data import CallData
from pytest_gpubench.replay.capture import CapturedCall
from pytest_gpubench.replay.comparison import ReplayedPair, launching, refuse_other_capability
from pytest_gpubench.replay.replayed import Values, memory_for, new_memory, replaying, tensor_in
from pytest_gpubench.results.model import Timing
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import Call, Prepared
from pytest_gpubench.timing.measurement import Plan, measure_call
from pytest_gpubench.verdict.replays import Replay

SEED = 0
NO_ROOM = "there is no room for its memory beside today's"


@dataclass(frozen=True)
class StoredPair:
    """Two stored calls to be timed in turn, and how."""

    old: CapturedCall
    new: CapturedCall
    tolerance: RegressionTolerance
    settings: Settings
    plan: Plan
    inputs: Values | None = None
    """The values of the inputs of the new one, for both; None makes them up."""

    def compare(self, device: Device, say: Callable[[str], None]) -> Replay:
        """Return how the new call compares with the old one; raises what `ReplayedPair.compare` does."""
        cuda = builder_for(self.new.data, device)
        call = stored_call(self.new.data, device.torch_device, self.inputs)
        pair = ReplayedPair(self.old, self.new, call, device, cuda)
        return pair.compare(self.tolerance, self.settings, self.plan, say)


def time_stored(captured: CapturedCall, device: Device, settings: Settings, plan: Plan) -> Timing:
    """Return the timing of a stored call; raise MeasurementError where this GPU or its driver cannot run it."""
    data = captured.data
    try:
        cuda = builder_for(data, device)
        call = stored_call(data, device.torch_device)
        assert call.inputs is not None, "a stored call has them"
        memory = memory_for(data.regions, device.torch_device, input_memory(call.inputs(), device.torch_device))
        with cuda.loaded(data, captured.images) as modules, replaying(data, modules, memory, cuda, device) as replayed:
            timed = launching(call, data.label, replayed.launch)
            timer = make_timer(settings.timer, device, settings.cache)
            return measure_call(timed, timer, device, plan, lambda timing: True, lambda text: None)
    except (GpuBenchError, RuntimeError) as error:  # the last is torch's, of what made-up inputs break
        raise MeasurementError(f"{data.label} cannot be replayed: {first_line(error)}") from error


def builder_for(data: CallData, device: Device) -> GraphBuilder:
    """Return the driver; raise NotReplayable where it is too old, or the call was compiled for another GPU."""
    refuse_other_capability(data, torch.cuda.get_device_capability(device.torch_device))
    return find_builder()


def stored_call(data: CallData, device: torch.device, values: Values | None = None) -> Call:
    """Return a call that gives each rep the inputs of a stored one as they were first, and launches nothing.

    values: the bytes of the inputs. None makes random numbers, and 0 where numbers are whole: they may be indices.
    """
    memory = {at: new_memory(each, device) for at, each in enumerate(data.regions) if each.kind == "input"}
    leaves: Leaves = [(each.name, tensor_in(memory[each.region], each)) for each in data.inputs]
    if values is None:
        generator = torch.Generator(device).manual_seed(SEED)
        for _, tensor in leaves:
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.element_size() > 1:
                # not the tensor itself: one that was expanded lies several times in one place
                elements = 1 + sum(
                    (side - 1) * stride for side, stride in zip(tensor.shape, tensor.stride(), strict=True)
                )
                tensor.as_strided((elements if tensor.numel() else 0,), (1,)).normal_(generator=generator)
    else:
        for at, bytes_ in memory.items():
            bytes_.copy_(values[data.regions[at].names])
    kept = InputMemory(lambda: leaves)

    def prepare() -> Prepared:
        kept.restore()
        return Prepared(lambda: None, on_device=kept.launched)

    return Call(data.label, prepare, lambda: None, inputs=lambda: leaves)
