"""Capture a call as data: its graph, its memory, its images; or the reason why it cannot be replayed."""

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch

from pytest_gpubench.correctness.leaves import Leaves, flatten, tensors_of
from pytest_gpubench.correctness.memory import bytes_at, memory_of
from pytest_gpubench.correctness.tolerance import dtype_name
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.addresses import OtherMemory, Segments, input_regions, inputs_elsewhere
from pytest_gpubench.replay.builder import GraphBuilder
from pytest_gpubench.replay.call_data import CallData, Graph, TensorData
from pytest_gpubench.replay.driver import DriverError, handle, out
from pytest_gpubench.replay.elf import variables_of
from pytest_gpubench.replay.images import Images
from pytest_gpubench.replay.loaded_images import LoadedImages
from pytest_gpubench.replay.memory import POINTER_BYTES, Locating, Placed, is_structure, placed
from pytest_gpubench.replay.reader import ImagesMissing, NotReplayable
from pytest_gpubench.replay.resources import capture_read, made_again, side_stream, why_uncaptured
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import backward_of
from pytest_gpubench.timing.graph import Captured

NEAR_BYTES = 2**36
"""So far from torch's memory other memory of the GPU may lie whose addresses are looked for."""
WORDS_AT_ONCE = 2**24
MOST_ASKED = 64
"""The most words of so many that the driver is asked about."""
NUMBERS = (bool, int, float, complex, str, type(None))


@dataclass(frozen=True)
class CapturedCall:
    """A call as data, and the images of its kernels by their SHA-256."""

    data: CallData
    images: dict[str, bytes] = field(repr=False)
    starts: tuple[int, ...] = ()
    """The addresses of its regions in the process that captured it; empty in any other."""


def capture_call(
    call: Call, device: Device, cuda: GraphBuilder, libraries: bool = False, outputs_decide: bool = False
) -> CapturedCall:
    """Return a call as data; it is made on another stream, captured, and made as ever.

    The call has to be warm. libraries: True looks for the images of kernels that Triton has not compiled.
    outputs_decide: True where a replay's outputs are compared before it is used, as in `Locating`. Raises NotReplayable
    with the reason; whatever the call itself raises, when it is made as ever, goes through.
    """
    if call.inputs is None:
        raise NotReplayable("setup= gives each call other arguments")
    pass_ = backward_of(call)
    if pass_ is not None and not pass_.with_forward:
        raise NotReplayable("a backward run reads what its forward run made anew: give backward='both'")
    images, graphs = Images(LoadedImages(cuda.module) if libraries else None), list[Graph]()

    def capture(call: Call) -> Captured:
        return capture_read(call, device, cuda, lambda graph: graphs.append(cuda.read(graph, images.of)))

    with made_again(call, device):
        try:
            leaves, captured = call.inputs(), capture(call)
            if images.missing:
                raise ImagesMissing(images.why_missing)
            outputs = outputs_of(call, captured.output)
            if any(is_structure(node, number) for node in graphs[0].all_nodes() for number in range(len(node.values))):
                capture(inputs_elsewhere(call, leaves, device.torch_device))
            with torch.cuda.stream(side_stream(device.torch_device)):  # the driver answers for the current device
                refuse_written({(name, cuda.module(each)) for name, each in images.functions}, images.found, cuda)
                found = leaves, captured, outputs, images
                return _located(call, graphs, *found, device.torch_device, cuda, outputs_decide)
        except (NotReplayable, DriverError):
            raise
        except Exception as error:
            raise NotReplayable(why_uncaptured(error)) from error


def outputs_of(call: Call, returned: object) -> Leaves:
    """Return what a call that returned this has written: its outputs, or the gradients of a backward run."""
    pass_ = backward_of(call)
    if pass_ is None:
        return flatten(returned)
    return [(f"gradient {number}", leaf.grad) for number, leaf in enumerate(pass_.leaves or ())]


def _located(
    call: Call,
    graphs: Sequence[Graph],
    leaves: Leaves,
    captured: Captured,
    outputs: Leaves,
    images: Images,
    device: torch.device,
    cuda: GraphBuilder,
    outputs_decide: bool,
) -> CapturedCall:
    """Return a captured call with its regions, and the places of their addresses in its graphs."""
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    known = [place for place, _ in input_regions(leaves, device)]
    own = [each for each in segments if tuple(each.get("segment_pool_id", ())) == tuple(captured.graph.pool())]
    known += [placed("own", each["address"], each["total_size"]) for each in own]
    other = OtherMemory(cuda, segments)
    locating = Locating(known, other.memory_at, outputs_decide)
    graph = locating.locate(*graphs)
    refuse_addresses(locating.used, other, device)
    data = CallData(
        label=call.label,
        capability=torch.cuda.get_device_capability(device),
        graph=graph,
        outputs=tensors_in(outputs, locating, locating.regions, device),
        inputs=tensors_in(leaves, locating, locating.used, device),
        regions=tuple(each.region for each in locating.used),
        numbers=tuple(f"{name}={leaf!r}" for name, leaf in leaves if isinstance(leaf, NUMBERS)),
    )
    return CapturedCall(data, images.found, tuple(each.start for each in locating.used))


def tensors_in(
    leaves: Leaves, locating: Locating, wanted: Sequence[Placed], device: torch.device
) -> tuple[TensorData, ...]:
    """Return the tensors that lie in wanted regions, as data; raise NotReplayable for one on another device."""
    found = []
    for name, tensor in tensors_of(leaves):
        for _, memory in memory_of([(name, tensor)]):
            if memory.device != device:
                raise NotReplayable(f"{name} is on {memory.device}, and not on {device}")
            if not any(each.start <= memory.start < each.stop for each in wanted):
                continue
            region, distance = locating.place_of(memory.start)
            dtype, shape, strides = dtype_name(tensor.dtype), tuple(tensor.shape), tensor.stride()
            where = {"region": region, "distance": distance}
            found.append(TensorData(name=name, dtype=dtype, shape=shape, strides=strides, **where))
    return tuple(found)


def refuse_written(modules: Iterable[tuple[str, int]], images: Mapping[str, bytes], cuda: GraphBuilder) -> None:
    """Raise NotReplayable where a module has a variable that differs from that of its image loaded anew.

    Kernels find a variable by its name, to which no parameter leads; an image holds what it is when it is loaded, and
    what a host or a kernel has written since is kept nowhere.

    modules: those of this process, each after the SHA-256 of its image. One that holds an address as its image says
    differs from load to load. Memory that the driver does not know by a name cannot be compared, and is refused.
    """
    for name, module in modules:
        if variables := variables_of(images[name]):
            with ExitStack() as held:
                fresh = cuda.load(images[name], held)
                for each in variables:
                    if value_of(each, module, cuda) != value_of(each, fresh, cuda):
                        text = each.decode(errors="backslashreplace")
                        raise NotReplayable(
                            f"{text}, a variable of a kernel's module, was written, or holds an address"
                        )


def value_of(variable: bytes, module: int, cuda: GraphBuilder) -> bytes:
    """Return the bytes of a variable; raise NotReplayable where the driver knows none of this name."""
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    try:
        cuda.call("cuModuleGetGlobal_v2", out(address), out(size), handle(module), ctypes.c_char_p(variable))
    except DriverError as error:
        raise NotReplayable("a kernel's module has variables that the driver does not know by their names") from error
    value = ctypes.create_string_buffer(size.value)
    cuda.call("cuMemcpyDtoH_v2", value, address, size)
    return value.raw


def refuse_addresses(places: Sequence[Placed], other: OtherMemory, device: torch.device) -> None:
    """Raise NotReplayable for memory that holds addresses, unless the call itself writes them.

    A replay would follow them to where nothing is moved to, as to memory of another process. A number that happens to
    be an address is taken for one.
    """
    for place in (each for each in places if each.region.kind != "own"):
        start = place.start + -place.start % POINTER_BYTES
        size = max(place.stop - start, 0) // POINTER_BYTES * POINTER_BYTES
        words = bytes_at(start, size, device).view(torch.int64)
        if any(map(other.knows, _near(other.segments, words))):
            names = " and ".join(place.region.names) or "memory that is no argument of it"
            raise NotReplayable(f"{names} holds addresses of memory, which cannot be moved")


def _near(segments: Segments, words: torch.Tensor) -> Iterator[int]:
    """Yield some of the words, each once, that are near the addresses of torch's memory."""
    low = min((each["address"] for each in segments), default=0) - NEAR_BYTES
    high = max((each["address"] + each["total_size"] for each in segments), default=0) + NEAR_BYTES
    for start in range(0, len(words), WORDS_AT_ONCE):
        part = words[start : start + WORDS_AT_ONCE]
        found = part[(part >= low) & (part < high)]
        yield from torch.unique(found)[:MOST_ASKED].tolist()
