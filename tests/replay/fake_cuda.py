"""A CUDA driver's library that answers from tables: what `replay.driver` calls by ctypes."""

import math
from dataclasses import dataclass, field
from typing import Any

from pytest_gpubench.replay.driver import LaunchConfig

INVALID_VALUE = 1
MEMCPY_NODE, MEMSET_NODE = 1, 2
SMS = 132


@dataclass(frozen=True)
class Function:
    """A kernel, and what the driver says of it."""

    symbol: str
    attributes: dict[int, int] = field(default_factory=dict)
    blocks_per_sm: int = 1
    clusters: int = 0
    """How many the GPU holds at once."""


@dataclass(frozen=True)
class Node:
    """A kernel of a graph as it is launched; or another kind of node, or a graph in it."""

    function: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    dynamic_shared_bytes: int = 0
    cluster: tuple[int, int, int] = (0, 0, 0)
    kind: int = 0
    child: int = 0
    by_kernel: bool = False
    """True if the node holds a CUkernel in place of a CUfunction: its number is the negative one."""


@dataclass
class FakeCuda:
    """The library; graphs and functions by handle, the first of which a stream is captured into."""

    graphs: dict[int, list[Node]]
    functions: dict[int, Function]
    capturing: int = 1
    fails: str = ""
    """The function that returns an error."""
    asked: list[Any] = field(default_factory=list)
    """The streams, and the sizes of blocks and clusters that were asked about."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and name == object.__getattribute__(self, "fails"):
            return lambda *args: INVALID_VALUE
        return object.__getattribute__(self, name)

    def node(self, handle: Any) -> Node:
        graph, place = divmod(handle.value, 1000)
        found: Node = self.graphs[graph][place - 1]
        return found

    def function(self, handle: Any) -> Function:
        return self.functions[handle.value]

    def cuStreamGetCaptureInfo_v2(self, stream: Any, status: Any, number: None, graph: Any, *others: None) -> int:
        self.asked.append(stream.value)
        status._obj.value, graph._obj.value = self.capturing, next(iter(self.graphs))
        return 0

    def cuGraphGetNodes(self, graph: Any, nodes: Any, number: Any) -> int:
        found = self.graphs[graph.value]
        number._obj.value = len(found)
        for place in range(len(found) if nodes is not None else 0):
            nodes[place] = 1000 * graph.value + place + 1
        return 0

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:
        kind._obj.value = self.node(node).kind
        return 0

    def cuGraphChildGraphNodeGetGraph(self, node: Any, graph: Any) -> int:
        graph._obj.value = self.node(node).child
        return 0

    def cuGraphKernelNodeGetParams_v2(self, node: Any, out: Any) -> int:
        found, params = self.node(node), out._obj
        params.grid[:], params.block[:] = found.grid, found.block
        params.dynamic_shared_bytes = found.dynamic_shared_bytes
        if found.by_kernel:
            params.kern = 2**64 - found.function
        else:
            params.func = found.function
        return 0

    def cuGraphKernelNodeGetAttribute(self, node: Any, attribute: Any, value: Any) -> int:
        assert attribute.value == 4
        value[:3] = self.node(node).cluster
        return 0

    def cuKernelGetFunction(self, function: Any, kernel: Any) -> int:
        function._obj.value = 2**64 - kernel.value
        return 0

    def cuFuncGetName(self, name: Any, function: Any) -> int:
        name._obj.value = self.function(function).symbol.encode()
        return 0

    def cuFuncGetAttribute(self, value: Any, attribute: Any, function: Any) -> int:
        value._obj.value = self.function(function).attributes.get(attribute.value, 0)
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, blocks: Any, function: Any, threads: Any, shared: Any) -> int:
        self.asked.append((threads.value, shared.value))
        blocks._obj.value = self.function(function).blocks_per_sm
        return 0

    def cuOccupancyMaxActiveClusters(self, clusters: Any, function: Any, config: Any) -> int:
        asked: LaunchConfig = config._obj
        attribute = asked.attributes[0]
        assert (asked.number, attribute.id) == (1, 4)
        self.asked.append((tuple(asked.grid), tuple(asked.block), tuple(attribute.dims[:3])))
        clusters._obj.value = self.function(function).clusters
        return 0

    def cuCtxGetDevice(self, device: Any) -> int:
        device._obj.value = 3
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: Any, device: Any) -> int:
        assert (attribute.value, device.value) == (16, 3)
        value._obj.value = SMS
        return 0


def played(launches: list[dict[str, Any]]) -> FakeCuda:
    """Return a library that holds a graph of launches that were recorded."""
    nodes, functions = [], {}
    for number, each in enumerate(launches, 1):
        cluster = tuple(each.get("cluster", (1, 1, 1)))
        attributes = {4: each["registers"], 3: each.get("local_bytes", 0), 1: each.get("static_shared_bytes", 0)}
        in_cluster = math.prod(cluster)
        functions[number] = Function(
            each["symbol"], attributes, each["blocks_per_sm"], each["resident_blocks"] // in_cluster
        )
        shared_bytes = each.get("dynamic_shared_bytes", 0)
        wide = cluster if in_cluster > 1 else (0, 0, 0)
        nodes.append(Node(number, tuple(each["grid"]), tuple(each["block"]), shared_bytes, wide))
    return FakeCuda({1: nodes}, functions)
