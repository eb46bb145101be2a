"""The resources of a call's kernels: registers, memory, blocks per multiprocessor; from an untimed call, captured."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from pytest_gpubench.errors import first_line
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.cuda_graphs import has_cuda_graphs, used_cuda_graphs
from pytest_gpubench.replay.driver import Driver, Launch, find_driver
from pytest_gpubench.replay.images import note_launched
from pytest_gpubench.replay.triton_code import codes_of, noting_compiled
from pytest_gpubench.results.model import Kernel, Resources, Timing
from pytest_gpubench.timing.base import Call, Prepared
from pytest_gpubench.timing.graph import REPLAYS, Captured, NotCaptured, call_on, capture_on
from pytest_gpubench.timing.measurement import demangled
from pytest_gpubench.timing.windows import describe_difference

if TYPE_CHECKING:
    import torch

ByName = Mapping[str, tuple[Resources, ...]]
"""The resources of each kind of launch, by the kernel's name as the profiler has it."""


def with_resources(timing: Timing, call: Call, device: Device) -> Timing:
    """Return a timing with the resources of its kernels, or with the reason why they are not known.

    The call has to be warm. It is made on another stream, then captured, which computes nothing, and last as ever.
    """
    cuda = find_driver()
    if device.type != "cuda" or cuda is None or not timing.kernels:
        return timing
    with made_again(call, device):
        found, reason = found_or_reason(call, device, cuda)
    captured = Counter({name: sum(each.launches for each in kinds) for name, kinds in found.items()})
    if reason := reason or difference(timing.kernels, captured):
        return msgspec.structs.replace(timing, no_resources=reason)
    kernels = tuple(msgspec.structs.replace(each, resources=found.get(each.name, ())) for each in timing.kernels)
    return msgspec.structs.replace(timing, kernels=kernels)


def found_or_reason(call: Call, device: Device, cuda: Driver) -> tuple[ByName, str]:
    """Return the resources of the kernels that a call launches, or the reason why they are not known."""
    import torch

    launches: list[Launch] = []
    compiled: list[object] = []
    try:
        with noting_compiled(compiled):
            capture_read(call, device, cuda, lambda graph: launches.extend(cuda.launches(graph)))
        note_launched(compiled)
        with torch.cuda.stream(side_stream(device.torch_device)):  # the driver answers for the current device
            codes, found = codes_of(compiled), dict[str, list[Resources]]()
            for launch, number in Counter(launches).items():
                taken = msgspec.structs.replace(cuda.resources(launch, number), code=codes.get(launch.function))
                found.setdefault(demangled(cuda.symbol(launch.function)), []).append(taken)
            return {name: tuple(each) for name, each in found.items()}, ""
    except Exception as error:
        return {}, why_uncaptured(error)


@contextmanager
def made_again(call: Call, device: Device) -> Iterator[None]:
    """Make a call as ever at the end, so that what it keeps is what it computes; warnings are not repeated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            call.prepare()()
            device.synchronize()


def why_uncaptured(error: Exception) -> str:
    """Return why a call cannot be captured."""
    if isinstance(error, NotCaptured):
        return f"it cannot be captured as a CUDA graph: {error}"
    return f"captured as a CUDA graph, it raises {type(error).__name__}: {first_line(error)}"


@cache
def side_stream(device: "torch.device") -> "torch.cuda.Stream":
    """Return the stream for captures, always the same: libraries keep memory for each stream that they are used on."""
    import torch

    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def capture_read(call: Call, device: Device, cuda: Driver, read: Callable[[int], None]) -> Captured:
    """Return a call as a graph, which is read before the capture ends; raises what `capture_on` does."""
    if has_cuda_graphs():
        call.prepare()()
        if used_cuda_graphs():  # of torch.compile's: a capture that fails would make it record them anew
            raise NotCaptured(REPLAYS)
    stream = side_stream(device.torch_device)

    def prepare() -> Prepared:
        timed = call.prepare()

        def run() -> object:
            output = timed()
            read(cuda.graph_captured_on(stream.cuda_stream))
            return output

        return replace(timed, run=run)

    call_on(stream, call, 1)
    return capture_on(stream, replace(call, prepare=prepare), device)


def difference(kernels: Iterable[Kernel], captured: "Counter[str]") -> str:
    """Return in words in what the kernels that were captured are not those that were timed; empty where they are.

    captured: the launches of each kernel, by its name as the profiler has it.
    """
    timed = Counter({each.name: each.launches for each in kernels if each.kind == "kernel"})
    if timed == captured:
        return ""
    differences = describe_difference(timed, captured, ("when timed", "when captured"))
    return f"captured as a CUDA graph, it launches other kernels: {differences}"
