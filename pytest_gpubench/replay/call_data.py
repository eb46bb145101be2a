"""A call as data: its CUDA graph, the memory that it uses and the images of its kernels, for any process."""

import ctypes
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from pytest_gpubench.errors import BadFile
from pytest_gpubench.replay.structures import PORTS_BYTES, PROGRAMMATIC, STRUCTURES
from pytest_gpubench.results.files import UNREADABLE
from pytest_gpubench.units import repr_of

Dim = tuple[int, int, int]
NodeKind = Literal["kernel", "memcpy", "memset", "empty", "child"]
RegionKind = Literal["input", "own", "other"]
SYMBOL = re.compile(r"[\w$%.]+")
"""A kernel's name, as compilers make them: the records of what is no kernel have names with spaces."""
FORMAT = 1
"""The version of the form below: a new one where readers of the last would misread it."""


class Pointer(msgspec.Struct, frozen=True, array_like=True):
    """Name a place in a node's values that holds an address; the saved values hold 0 there."""

    value: int
    offset: int
    region: int
    distance: int
    """From the region's beginning, in bytes."""


class Kernel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describe a kernel as it is launched."""

    symbol: str
    image: str
    """The SHA-256 of the image of its module."""
    grid: Dim
    block: Dim
    dynamic_shared_bytes: int = 0
    launch_attributes: dict[int, bytes] = {}
    """By the driver's numbers; one that is not here is 0."""
    function_attributes: dict[int, int] = {}
    """Those that a host may set, in the same form."""


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold one node of a graph."""

    kind: NodeKind
    values: tuple[bytes, ...] = ()
    """A kernel's parameters; of a memcpy or memset, the driver's structure."""
    pointers: tuple[Pointer, ...] = ()
    kernel: Kernel | None = None
    child: "Graph | None" = None


class Edge(msgspec.Struct, frozen=True, array_like=True):
    """Let one node follow another, both by their numbers."""

    start: int
    end: int
    ports: bytes
    """The driver's CUgraphEdgeData, which tells programmatic launches."""


class Graph(msgspec.Struct, frozen=True):
    """Hold a graph; the nodes are in an order in which each follows those that it waits for."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def all_nodes(self) -> Iterator[Node]:
        """Yield the nodes of the graph and of the graphs in it."""
        for node in self.nodes:
            yield node
            if node.child is not None:
                yield from node.child.all_nodes()

    @property
    def launches(self) -> int:
        """The number of kernels, copies and fills."""
        return sum(node.kind not in ("empty", "child") for node in self.all_nodes())

    @property
    def in_turn(self) -> "Graph":
        """A graph of which each node follows the one before it; itself where that is so already.

        Two kernels beside a third one took 84 us in a graph, 57 us in turn, and 57 us launched as ever on two streams,
        on an H200. While a queue holds launches on several streams the GPU does not switch to another process.
        """
        nodes = tuple(msgspec.structs.replace(each, child=each.child and each.child.in_turn) for each in self.nodes)
        chain = [(at, at + 1) for at in range(len(nodes) - 1)]
        if [(each.start, each.end) for each in self.edges] == chain:
            return Graph(nodes, self.edges)
        return Graph(tuple(map(_not_programmatic, nodes)), tuple(Edge(*each, bytes(PORTS_BYTES)) for each in chain))


def _not_programmatic(node: Node) -> Node:
    """Return a node that begins when the one before it has ended."""
    if node.kernel is None:
        return node
    attributes = {at: value for at, value in node.kernel.launch_attributes.items() if at != PROGRAMMATIC}
    return msgspec.structs.replace(node, kernel=msgspec.structs.replace(node.kernel, launch_attributes=attributes))


class Region(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describe a stretch of memory that a call uses."""

    kind: RegionKind
    """An input, an allocation of the call, or anything else: a workspace, a tensor that is no argument."""
    bytes: int
    misalignment: int
    """Its address modulo what torch aligns such memory to; it has it wherever it is put."""
    names: tuple[str, ...] = ()
    """Of the inputs in it."""


class TensorData(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a tensor in a region."""

    name: str
    region: int
    distance: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class CallData(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a call."""

    format: int = FORMAT
    label: str
    capability: tuple[int, int]
    """The compute capability that its images are for."""
    graph: Graph
    regions: tuple[Region, ...]
    inputs: tuple[TensorData, ...]
    outputs: tuple[TensorData, ...]
    numbers: tuple[str, ...] = ()
    """The arguments that are no tensors, as text: parameters of kernels were made of them."""

    @property
    def images(self) -> tuple[str, ...]:
        """The SHA-256 of each image, in the order of their first use."""
        return tuple(dict.fromkeys(node.kernel.image for node in self.graph.all_nodes() if node.kernel))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The symbols of its kernels, in the order of the graph."""
        return tuple(node.kernel.symbol for node in self.graph.all_nodes() if node.kernel)


def encode_call(call: CallData) -> bytes:
    """Return a call as bytes."""
    return msgspec.msgpack.encode(call)


def decode_call(data: bytes) -> CallData:
    """Read what `encode_call` wrote; raise BadFile for anything else."""
    try:
        call = msgspec.msgpack.decode(data, type=CallData)
        is_whole = _is_whole(call.graph, len(call.regions))
    except UNREADABLE as error:
        raise BadFile(f"a saved call is damaged: {error}; save the run again") from error
    if call.format != FORMAT:
        raise BadFile(f"a saved call has format {call.format}, and this pytest-gpubench reads {FORMAT}: save it again")
    if not is_whole or not all(0 <= each.region < len(call.regions) for each in (*call.inputs, *call.outputs)):
        raise BadFile("a saved call is damaged: a number in it leads nowhere; save the run again")
    if odd := [each for each in call.kernels if not SYMBOL.fullmatch(each)]:
        raise BadFile(f"a saved call is damaged: {repr_of(odd[0])} is no kernel's name; save the run again")
    return call


def _is_whole(graph: Graph, regions: int) -> bool:
    """Tell whether all numbers of a graph lead to what they count."""
    last = len(graph.nodes)
    edges = all(0 <= each.start < each.end < last and len(each.ports) == PORTS_BYTES for each in graph.edges)
    return edges and all(_is_whole_node(node, regions) for node in graph.nodes)


def _is_whole_node(node: Node, regions: int) -> bool:
    if (node.kernel is None) == (node.kind == "kernel") or (node.child is None) == (node.kind == "child"):
        return False
    if node.child is not None:
        return _is_whole(node.child, regions)
    if node.kind in STRUCTURES and [*map(len, node.values)] != [ctypes.sizeof(STRUCTURES[node.kind])]:
        return False
    return all(
        each.value in range(len(node.values))
        and each.offset in range(len(node.values[each.value]) - 7)
        and each.region in range(regions)
        for each in node.pointers
    )
