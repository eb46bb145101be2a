"""Time a stored call by itself, on inputs that are made up: random numbers, and 0 where numbers are whole."""

import torch

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.builder import find_builder
from pytest_gpubench.replay.capture import CapturedCall
from pytest_gpubench.replay.driver import DriverError
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.replayed import Replayed, memory_for, replaying
from pytest_gpubench.results.model import Timing
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing import make_timer
from pytest_gpubench.timing.base import call_of
from pytest_gpubench.timing.measurement import Plan, measure_call

__tracebackhide__ = True

SEED = 0


def time_stored(captured: CapturedCall, device: Device, settings: Settings, plan: Plan) -> Timing:
    """Return the timing of a stored call; raise MeasurementError where this GPU or its driver cannot run it."""
    data, cuda = captured.data, find_builder()
    capability = torch.cuda.get_device_capability(device.torch_device)
    if capability != data.capability:
        was, now = (".".join(map(str, each)) for each in (data.capability, capability))
        raise MeasurementError(f"{data.label} was compiled for compute capability {was}, and this GPU has {now}")
    if cuda is None:
        raise MeasurementError("the CUDA driver is too old to build graphs with")
    try:
        memory = memory_for(data.regions, device.torch_device)
        with replaying(data, captured.images, memory, cuda, device) as replayed:
            fill_inputs(replayed)
            call = call_of(data.label, replayed.launch)
            timer = make_timer(settings.timer, device, settings.cache)
            return measure_call(call, timer, device, plan, lambda timing: True, lambda text: None)
    except (DriverError, NotReplayable) as error:
        raise MeasurementError(f"{data.label} cannot be replayed: {error}") from error


def fill_inputs(replayed: Replayed) -> None:
    """Fill inputs of floating-point numbers with random ones; all others hold 0, which is an index of anything."""
    generator = torch.Generator(replayed.device.torch_device).manual_seed(SEED)
    for each in replayed.data.inputs:
        tensor = replayed.tensor(each)
        if tensor.is_floating_point() and tensor.element_size() > 1:
            tensor.normal_(generator=generator)
