"""Calls on the CPU whose graphs a driver of tables holds and plays: they are captured, proved and replayed there."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec
import pytest
import torch

from pytest_gpubench.bench.arguments import kept_arguments
from pytest_gpubench.gpu.device import Device, cpu_device
from pytest_gpubench.replay import images, resources
from pytest_gpubench.replay.builder import GraphBuilder
from pytest_gpubench.replay.capture import CapturedCall, capture_call
from pytest_gpubench.replay.resources import side_stream
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import make_call
from tests.replay.fake_graphs import FakeFunction, FakeGraphs, FakeNode
from tests.results.measured import BARE_GPU
from tests.timing.fake_gpu import FakeGpu, FakeGraph, FakeStream

N = 8
POOL = (0, 7)
IMAGE, OTHER = b"image of scale", b"another image of scale"


class CompiledKernel:
    """As Triton keeps one."""

    def __init__(self, function: int, image: bytes = IMAGE) -> None:
        self.function, self.asm = function, {"cubin": image}


def floats_at(address: int, number: int = N) -> torch.Tensor:
    """Return the floats at an address."""
    return torch.frombuffer((ctypes.c_float * number).from_address(address), dtype=torch.float32)


def numbers() -> torch.Tensor:
    """Return 0, 1, 2, ... in memory that is aligned as a GPU's is."""
    whole = torch.zeros(N + 128)
    start = -whole.data_ptr() % 512 // 4
    return whole[start : start + N].copy_(torch.arange(N))


def scale(x: int, y: int, out: int, factor: int) -> None:
    """Compute what the kernel of this name does."""
    floats_at(out).copy_(floats_at(x) * factor + floats_at(y))


def raising(error: Exception) -> Callable[..., NoReturn]:
    """Return a function that raises an error."""

    def fail(*args: object) -> NoReturn:
        raise error

    return fail


def with_node(call: CapturedCall, **changes: Any) -> CapturedCall:
    """Return a call whose only node is changed."""
    (node,) = call.data.graph.nodes
    graph = msgspec.structs.replace(call.data.graph, nodes=(msgspec.structs.replace(node, **changes),))
    return CapturedCall(msgspec.structs.replace(call.data, graph=graph), call.images)


@dataclass
class OnCpu:
    """A device whose driver captures one launch of `scale`."""

    cuda: FakeGraphs
    device: Device
    out: torch.Tensor = field(default_factory=lambda: torch.zeros(2 * N))
    """The pool of a graph; what calls return is its second half."""
    y: torch.Tensor = field(default_factory=lambda: numbers().square_())
    factor: int = 3
    by_image: bytes = IMAGE
    """The image that Triton says the kernel is from."""
    calls: int = 0
    changes: Callable[[torch.Tensor, torch.Tensor], None] = lambda x, y: None
    """What the call does to its inputs that its graph does not."""
    kept: list[Any] = field(default_factory=list)
    others: list[torch.Tensor] = field(default_factory=list)
    """The memory that torch has allocated beside the pool."""

    @property
    def builder(self) -> GraphBuilder:
        """The driver."""
        return GraphBuilder(self.cuda)

    def function(self, x: torch.Tensor, y: torch.Tensor, factor: int = 3) -> torch.Tensor:
        """Compute, and be captured: the graph is made anew by each call, as no capture is told of."""
        self.calls += 1
        function = self.cuda.function("scale", (8, 8, 8, 4))
        kernel = CompiledKernel(function, self.by_image)
        self.kept = [kernel]
        out = self.out[N:]
        pointers = [each.data_ptr().to_bytes(8, "little") for each in (x, y, out)]
        node = FakeNode(0, (*pointers, factor.to_bytes(4, "little")), function, (4, 1, 1))
        self.cuda.captured = self.cuda.graph(node)
        out.copy_(x * factor + y)
        self.changes(x, y)
        return out

    def call(self, *args: Any, function: Callable[..., object] | None = None) -> Call:
        """Return the call of the function, or of another one, with these arguments."""
        return make_call(function or self.function, kept_arguments([], args, None, None), label="scale")

    def captured(self, image: bytes = IMAGE, call: Call | None = None) -> CapturedCall:
        """Return a call as data, whose kernel is from an image; by default a call on new inputs."""
        self.by_image = image
        found = capture_call(call or self.call(numbers(), self.y), self.device, self.builder)
        self.by_image = IMAGE
        return found

    def snapshot(self) -> list[dict[str, Any]]:
        """Return torch's account of its memory."""
        pools = [(self.out, POOL), *((each, (0, 0)) for each in self.others)]
        return [
            {
                "address": each.data_ptr(),
                "total_size": each.nbytes,
                "segment_pool_id": pool,
                "blocks": [{"address": each.data_ptr(), "size": each.nbytes, "state": "active_allocated"}],
            }
            for each, pool in pools
        ]


def make_on_cpu(streams: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> OnCpu:
    """Return such a device, in place of torch.cuda."""
    cuda = FakeGraphs(
        {image: [FakeFunction("scale", (8, 8, 8, 4))] for image in (IMAGE, OTHER)}, kernels={"scale": scale}
    )
    found = OnCpu(cuda, Device(cpu_device().torch_device, BARE_GPU))
    monkeypatch.setattr(FakeStream, "cuda_stream", 77, raising=False)
    monkeypatch.setattr(FakeGraph, "pool", lambda self: POOL, raising=False)
    monkeypatch.setattr(Device, "synchronize", lambda self: None)
    monkeypatch.setattr("torch.cuda.memory_snapshot", found.snapshot)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(images, "_launched", {})
    monkeypatch.setattr(images, "COMPILED", {__name__: ("CompiledKernel",)})
    monkeypatch.setattr(resources, "call_on", lambda stream, call, calls: [call.prepare()() for _ in range(calls)])
    side_stream.cache_clear()
    return found
