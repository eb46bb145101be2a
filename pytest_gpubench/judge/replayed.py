"""A candidate's call as data: its process saves it, and a process that never loads the candidate replays it."""

import ctypes
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_gpubench.correctness import flatten
from pytest_gpubench.correctness.memory import bytes_at
from pytest_gpubench.errors import BadFile, GpuBenchError, InvalidResult, first_line
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.judge.layout import Node, describe, rebuild
from pytest_gpubench.judge.runner import Runner
from pytest_gpubench.results.files import UNREADABLE
from pytest_gpubench.units import format_bytes

if TYPE_CHECKING:
    import torch

    from pytest_gpubench.replay.builder import Modules
    from pytest_gpubench.replay.call_data import CallData
    from pytest_gpubench.replay.replayed import Memory, Replayed

MOST_KEPT_BYTES = 2**29
MOST_OWN_BYTES = 2**30
"""Of memory that a replay has beside its inputs; each set of inputs has its own as long as these suffice."""
MOST_GRAPH_BYTES = 2**24
"""Of a graph, which has some hundred bytes for each kernel; to read so many takes the referee 3 s at most."""


class SavedCall(msgspec.Struct, frozen=True):
    """A call, and what its process had for it; all of it may be lies."""

    call: bytes
    images: dict[str, bytes]
    """By their SHA-256."""
    node: Node
    """The structure of what it returns."""
    contents: dict[int, bytes]
    """Of memory that is neither an input nor the call's own, as packed weights, by the number of its region."""


def saved_call(runner: Runner, device: Device) -> bytes | str:
    """Return a warm call as data, or the reason why it cannot be replayed."""
    from pytest_gpubench.replay.builder import find_builder
    from pytest_gpubench.replay.call_data import encode_call
    from pytest_gpubench.replay.capture import capture_call

    try:
        captured = capture_call(runner.first_call(), device, find_builder(), libraries=True, outputs_decide=True)
        node, tensors = describe(runner.output, "the output")
        if len(tensors) != len(captured.data.outputs):
            return "it returns tensors that need no memory, or lie elsewhere"
    except GpuBenchError as error:
        return first_line(error)
    kept = {number: each for number, each in enumerate(captured.data.regions) if each.kind == "other"}
    if sum(each.bytes for each in kept.values()) > MOST_KEPT_BYTES:
        return f"it keeps more than {format_bytes(MOST_KEPT_BYTES)} of memory beside its inputs"
    contents = {}
    for number, each in kept.items():
        found = bytes_at(captured.starts[number], each.bytes, device.torch_device).cpu()
        contents[number] = ctypes.string_at(found.data_ptr(), each.bytes)
    return msgspec.msgpack.encode(SavedCall(encode_call(captured.data), captured.images, node, contents))


class _Graph(msgspec.Struct):
    """Read a saved call without the rest, which may unpack to many times its size."""

    call: bytes


def launches_of(saved: bytes) -> int:
    """Return how many kernels, copies and fills a saved call launches; raise BadFile where it is damaged, or huge.

    The process that replays it is not asked: a kernel may write there.
    """
    from pytest_gpubench.replay.call_data import decode_call

    try:
        call = msgspec.msgpack.decode(saved, type=_Graph).call
    except UNREADABLE as error:
        raise BadFile(f"a saved call is damaged: {error}") from error
    if len(call) > MOST_GRAPH_BYTES:
        raise BadFile(f"its graph takes {format_bytes(len(call))}, and may take {format_bytes(MOST_GRAPH_BYTES)}")
    return decode_call(call).graph.launches


class ReplayedCall:
    """A saved call as a function: it is rebuilt on the memory of each set of inputs that it is called with.

    Its kernels run one after another.
    """

    def __init__(self, saved: bytes, device: Device) -> None:
        from pytest_gpubench.replay.builder import find_builder
        from pytest_gpubench.replay.call_data import decode_call

        found = msgspec.msgpack.decode(saved, type=SavedCall)
        data, self.images, self.node, self.device = decode_call(found.call), found.images, found.node, device
        refuse_other_memory(data)
        self.data = msgspec.structs.replace(data, graph=data.graph.in_turn)
        self.contents = found.contents
        self.cuda = find_builder()
        self._built: dict[tuple[int, ...], tuple[Replayed, object]] = {}
        self._memories: list[dict[int, torch.Tensor]] = []
        """Memory of regions that are no input, by their numbers; sets take it in turn, as times depend on it."""
        self._modules: Modules | None = None
        """All sets share them, too: the first launch from new memory finds none of its code in a cache."""
        self._held = ExitStack()

    def __call__(self, *args: object, whole: bool = False) -> object:
        """Launch it, as it was captured or as one graph, and return what the last launch on these inputs returns."""
        replayed, output = self._on(args)
        replayed.launch(whole)
        return output

    def _on(self, args: tuple[object, ...]) -> "tuple[Replayed, object]":
        from pytest_gpubench.replay.replayed import replaying

        key = tuple(each.data_ptr() for each in describe(args, "the inputs")[1])
        if key not in self._built:
            memory = self._memory_for(args)
            if self._modules is None:
                self._modules = self._held.enter_context(self.cuda.loaded(self.data, self.images))
            replayed = self._held.enter_context(replaying(self.data, self._modules, memory, self.cuda, self.device))
            self._built[key] = replayed, rebuild(self.node, [tensor for _, tensor in replayed.outputs()])
        return self._built[key]

    def close(self) -> None:
        """Unload it, and free its memory."""
        self._built.clear()
        self._held.close()
        self._modules = None
        self._memories.clear()

    def _memory_for(self, args: tuple[object, ...]) -> "Memory":
        from pytest_gpubench.replay.addresses import input_memory

        inputs, regions = input_memory(flatten(args), self.device.torch_device), [*enumerate(self.data.regions)]
        for _, region in regions:
            if region.kind == "input" and region.names not in inputs:
                raise InvalidResult(f"the saved call has no input {', '.join(region.names)}")
        own_bytes = sum(region.bytes for _, region in regions if region.kind != "input")
        if (len(self._memories) + 1) * own_bytes <= MOST_OWN_BYTES or not self._memories:
            self._memories.append({at: self._own(at) for at, region in regions if region.kind != "input"})
        own = self._memories[len(self._built) % len(self._memories)]
        return [inputs[region.names] if region.kind == "input" else own[at] for at, region in regions]

    def _own(self, number: int) -> "torch.Tensor":
        """Return new memory for a region that is no input, with what it held."""
        import torch

        from pytest_gpubench.replay.replayed import new_memory

        memory = new_memory(self.data.regions[number], self.device.torch_device)
        if saved := self.contents.get(number, b""):
            if len(saved) != memory.nbytes:
                raise InvalidResult("the saved call has contents of another length than their memory")
            memory.copy_(torch.frombuffer(bytearray(saved), dtype=memory.dtype))
        return memory


def refuse_other_memory(call: "CallData") -> None:
    """Raise InvalidResult for copies that could read or write memory of the host."""
    from pytest_gpubench.replay.structures import DEVICE_MEMORY, MemcpyEnd, MemcpyParams

    for node in call.graph.all_nodes():
        if node.kind != "memcpy":
            continue
        params, moved = MemcpyParams.from_buffer_copy(node.values[0]), {each.offset for each in node.pointers}
        for name in ("source", "destination"):
            at: Any = getattr(MemcpyParams, name).offset + MemcpyEnd.device.offset
            if getattr(params, name).memory_type != DEVICE_MEMORY or at not in moved:
                raise InvalidResult("the saved call copies from or to memory that is no region of it")
