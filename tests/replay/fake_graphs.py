"""A CUDA driver's library that holds graphs: they are captured (given), read, built, launched and destroyed."""

import ctypes
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_gpubench.replay.driver import LaunchConfig
from pytest_gpubench.replay.structures import MemcpyParams

INVALID_VALUE = 1
LAST_ATTRIBUTE = 15
"""The last that a function has."""
OF_STREAMS = 3
"""An attribute that no launch has."""
SMS = 132
NUMBERS = {"kernel": 0, "memcpy": 1, "memset": 2, "child": 4, "empty": 5}
HANDLES = itertools.count(1000)
"""Of all libraries: kernels of one that is gone may still be found."""


def put(out: Any, value: Any) -> int:
    """Answer with a value; return the status of success."""
    out._obj.value = value
    return 0


@dataclass
class FakeFunction:
    """A kernel of a module."""

    symbol: str
    sizes: Sequence[int] = (8, 8, 4)
    """Of its parameters."""
    attributes: dict[int, int] = field(default_factory=dict)
    image: bytes = b""
    """That it was loaded from."""
    blocks_per_sm: int = 1
    clusters: int = 0
    """The clusters that the GPU holds at once."""


@dataclass
class FakeNode:
    """A node of a graph."""

    kind: int
    values: tuple[bytes, ...] = ()
    function: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    shared_bytes: int = 0
    attributes: dict[int, bytes] = field(default_factory=dict)
    child: int = 0
    by_kernel: bool = False
    """True if it holds a CUkernel in place of a CUfunction: its number is the negative one."""
    by_buffer: bool = False
    """True if its parameters are given in one buffer, as some libraries do."""
    kept: list[Any] = field(default_factory=list)
    """What its parameters lie in."""


@dataclass
class FakeGraph:
    """A graph."""

    nodes: list[int] = field(default_factory=list)
    edges: list[tuple[int, int, bytes]] = field(default_factory=list)


@dataclass
class FakeGraphs:
    """The library."""

    images: dict[bytes, list[FakeFunction]] = field(default_factory=dict)
    """What can be loaded; anything else is no image."""
    memory: list[tuple[int, int, int]] = field(default_factory=list)
    """Start, size and type of memory that is known beside torch's."""
    graphs: dict[int, FakeGraph] = field(default_factory=dict)
    nodes: dict[int, FakeNode] = field(default_factory=dict)
    functions: dict[int, FakeFunction] = field(default_factory=dict)
    modules: dict[int, bytes] = field(default_factory=dict)
    made: list[int] = field(default_factory=list)
    """The graphs that were made and not destroyed."""
    executables: dict[int, int] = field(default_factory=dict)
    """The graph that each was made of."""
    loaded: list[bytes] = field(default_factory=list)
    """The images that were loaded, in turn."""
    launched: list[int] = field(default_factory=list)
    """The executables that were launched, and the nodes of kernels that were launched by themselves."""
    kernels: dict[str, Callable[..., None]] = field(default_factory=dict)
    """What kernels compute, by their symbols: called with the numbers that their parameters are."""
    variables: dict[bytes, bytes] = field(default_factory=dict)
    """The contents of the variables of a module when it is loaded, by their names."""
    written: dict[bytes, bytes] = field(default_factory=dict)
    """Those of modules that were not loaded from an image here."""
    captured: int = 0
    """The graph that a stream is captured into."""
    capturing: int = 1
    asked: list[Any] = field(default_factory=list)
    """The streams, and the sizes of blocks and clusters that were asked about."""
    fails: str = ""
    kept: list[Any] = field(default_factory=list)
    numbers: Iterator[int] = HANDLES

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and name == object.__getattribute__(self, "fails"):
            return lambda *args: INVALID_VALUE
        return object.__getattribute__(self, name)

    # what a test sets up

    def graph(self, *nodes: FakeNode, edges: Sequence[tuple[int, int, bytes]] = ()) -> int:
        """Return the handle of a graph of these nodes; edges: by their places."""
        handles = [next(self.numbers) for _ in nodes]
        self.nodes.update(zip(handles, nodes, strict=True))
        graph = next(self.numbers)
        self.graphs[graph] = FakeGraph(handles, [(handles[one], handles[two], ports) for one, two, ports in edges])
        return graph

    def function(self, symbol: str, sizes: Sequence[int] = (8, 8, 4), **others: Any) -> int:
        """Return the handle of a function."""
        number = next(self.numbers)
        self.functions[number] = FakeFunction(symbol, sizes, **others)
        return number

    def _new(self, out: Any) -> int:
        """Answer with a new handle; return it."""
        put(out, number := next(self.numbers))
        return number

    # modules and functions

    def cuModuleLoadData(self, module: Any, image: Any) -> int:
        if image.value not in self.images:
            return INVALID_VALUE
        number = self._new(module)
        self.modules[number] = image.value
        self.loaded.append(image.value)
        return 0

    def cuModuleUnload(self, module: Any) -> int:
        del self.modules[module.value]
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, symbol: Any) -> int:
        image = self.modules[module.value]
        found = [each for each in self.images[image] if each.symbol.encode() == symbol.value]
        if not found:
            return INVALID_VALUE
        number = self._new(function)
        self.functions[number] = FakeFunction(found[0].symbol, found[0].sizes, dict(found[0].attributes), image)
        return 0

    def cuFuncGetName(self, name: Any, function: Any) -> int:
        return put(name, self.functions[function.value].symbol.encode())

    def cuFuncGetAttribute(self, value: Any, attribute: Any, function: Any) -> int:
        if attribute.value > LAST_ATTRIBUTE:
            return INVALID_VALUE
        return put(value, self.functions[function.value].attributes.get(attribute.value, 0))

    def cuFuncGetModule(self, module: Any, function: Any) -> int:
        return put(module, function.value + 10**9)  # each from one of its own

    def cuModuleGetGlobal_v2(self, address: Any, size: Any, module: Any, name: Any) -> int:
        value = (self.variables if module.value in self.modules else self.written).get(name.value)
        if value is None:
            return INVALID_VALUE
        self.kept.append(ctypes.create_string_buffer(value, len(value)))
        return put(address, ctypes.addressof(self.kept[-1])) or put(size, len(value))

    def cuMemcpyDtoH_v2(self, to: Any, address: Any, size: Any) -> int:
        ctypes.memmove(to, address.value, size.value)
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: Any, value: Any) -> int:
        self.functions[function.value].attributes[attribute.value] = value.value
        return 0

    def cuFuncGetParamInfo(self, function: Any, number: Any, offset: Any, size: Any) -> int:
        sizes = self.functions[function.value].sizes
        if number.value >= len(sizes):
            return INVALID_VALUE
        return put(offset, sum(sizes[: number.value])) or put(size, sizes[number.value])

    # reading

    def cuGraphGetNodes(self, graph: Any, nodes: Any, number: Any) -> int:
        found = self.graphs[graph.value].nodes
        if nodes is not None:
            nodes[:] = found
        return put(number, len(found))

    def cuGraphGetEdges_v2(self, graph: Any, starts: Any, ends: Any, ports: Any, number: Any) -> int:
        found = self.graphs[graph.value].edges
        if starts is not None:
            starts[:], ends[:] = ([each[at] for each in found] for at in (0, 1))
            ports[:] = b"".join(each[2] for each in found)
        return put(number, len(found))

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:
        return put(kind, self.nodes[node.value].kind)

    def cuGraphChildGraphNodeGetGraph(self, node: Any, graph: Any) -> int:
        return put(graph, self.nodes[node.value].child)

    def cuGraphKernelNodeGetParams_v2(self, node: Any, out: Any) -> int:
        found, params = self.nodes[node.value], out._obj
        params.grid[:], params.block[:] = found.grid, found.block
        params.kern, params.func = (2**64 - found.function, 0) if found.by_kernel else (0, found.function)
        params.dynamic_shared_bytes = found.shared_bytes
        if found.by_buffer:
            whole = ctypes.create_string_buffer(b"".join(found.values))
            size = ctypes.c_size_t(sum(map(len, found.values)))
            extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(whole), 2, ctypes.addressof(size), 0)
            params.extra, found.kept = ctypes.addressof(extra), [whole, size, extra]
        else:
            buffers = [ctypes.create_string_buffer(each, len(each)) for each in found.values]
            places = (ctypes.c_void_p * max(1, len(buffers)))(*map(ctypes.addressof, buffers))
            params.params, found.kept = ctypes.addressof(places), [buffers, places]
        return 0

    def cuGraphKernelNodeGetAttribute(self, node: Any, attribute: Any, value: Any) -> int:
        if attribute.value == OF_STREAMS:
            return INVALID_VALUE
        held = self.nodes[node.value].attributes.get(attribute.value, b"")
        ctypes.memmove(value, held.ljust(64, b"\0"), 64)
        return 0

    def cuGraphMemcpyNodeGetParams(self, node: Any, out: Any) -> int:
        ctypes.memmove(out, self.nodes[node.value].values[0], ctypes.sizeof(out._obj))
        return 0

    cuGraphMemsetNodeGetParams = cuGraphMemcpyNodeGetParams

    def cuPointerGetAttribute(self, kind: Any, attribute: Any, address: Any) -> int:
        found = [type_ for start, size, type_ in self.memory if start <= address.value < start + size]
        return put(kind, found[0]) if found else INVALID_VALUE

    # building

    def cuGraphCreate(self, graph: Any, flags: Any) -> int:
        number = self._new(graph)
        self.graphs[number] = FakeGraph()
        self.made.append(number)
        return 0

    def cuGraphDestroy(self, graph: Any) -> int:
        self.made.remove(graph.value)  # its contents can be looked at
        return 0

    def _add(self, added: Any, graph: Any, node: FakeNode) -> int:
        number = self._new(added)
        self.nodes[number] = node
        self.graphs[graph.value].nodes.append(number)
        return 0

    def cuGraphAddKernelNode_v2(self, added: Any, graph: Any, before: None, number: Any, params: Any) -> int:
        given = params._obj
        sizes = self.functions[given.func].sizes
        places = (ctypes.c_void_p * len(sizes)).from_address(given.params)
        values = tuple(ctypes.string_at(place or 0, size) for place, size in zip(places, sizes, strict=True))
        grid, block = tuple(given.grid), tuple(given.block)
        node = FakeNode(0, values, given.func, grid, block, given.dynamic_shared_bytes)
        return self._add(added, graph, node)

    def cuGraphKernelNodeSetAttribute(self, node: Any, attribute: Any, value: Any) -> int:
        self.nodes[node.value].attributes[attribute.value] = bytes(value).rstrip(b"\0")
        return 0

    def cuGraphAddMemcpyNode(self, added: Any, graph: Any, before: None, number: Any, params: Any, ctx: Any) -> int:
        assert ctx.value == 77
        kind = "memcpy" if isinstance(params._obj, MemcpyParams) else "memset"
        return self._add(added, graph, FakeNode(NUMBERS[kind], (bytes(params._obj),)))

    cuGraphAddMemsetNode = cuGraphAddMemcpyNode

    def cuGraphAddEmptyNode(self, added: Any, graph: Any, before: None, number: Any) -> int:
        return self._add(added, graph, FakeNode(NUMBERS["empty"]))

    def cuGraphAddChildGraphNode(self, added: Any, graph: Any, before: None, number: Any, child: Any) -> int:
        inner = self.graphs[child.value]
        copied = next(self.numbers)
        self.graphs[copied] = FakeGraph(list(inner.nodes), list(inner.edges))
        return self._add(added, graph, FakeNode(NUMBERS["child"], child=copied))

    def cuGraphAddDependencies_v2(self, graph: Any, starts: Any, ends: Any, ports: Any, number: Any) -> int:
        each = (ports.raw[8 * at : 8 * at + 8] for at in range(number.value))
        self.graphs[graph.value].edges += zip(starts, ends, each, strict=True)
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:
        return put(context, 77)

    def cuGraphInstantiateWithFlags(self, executable: Any, graph: Any, flags: Any) -> int:
        number = self._new(executable)
        self.executables[number] = graph.value
        return 0

    def cuGraphExecDestroy(self, executable: Any) -> int:
        del self.executables[executable.value]
        return 0

    def cuGraphLaunch(self, executable: Any, stream: Any) -> int:
        self.launched.append(executable.value)
        self.play(self.executables[executable.value])
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, places: Any, extra: None) -> int:
        given = config._obj
        assert given.stream, "it is launched on the default stream"
        found = {each.id: bytes(each.dims).rstrip(b"\0") for each in given.attributes[: given.number]}
        size = tuple(given.grid), tuple(given.block), given.dynamic_shared_bytes
        sizes = self.functions[function.value].sizes
        values = tuple(ctypes.string_at(place or 0, size) for place, size in zip(places, sizes, strict=True))
        number = next(self.numbers)
        self.nodes[number] = FakeNode(0, values, function.value, *size, found)
        self.launched.append(number)
        self._play(self.nodes[number])
        return 0

    def play(self, graph: int) -> None:
        """Compute what the kernels of a graph compute, as far as they can."""
        for node in map(self.nodes.__getitem__, self.graphs[graph].nodes):
            self._play(node)

    def _play(self, node: FakeNode) -> None:
        if node.kind == NUMBERS["kernel"] and (kernel := self.kernels.get(self.functions[node.function].symbol)):
            kernel(*(int.from_bytes(each, "little") for each in node.values))

    # capturing

    def cuStreamGetCaptureInfo_v2(self, stream: Any, status: Any, number: None, graph: Any, *others: None) -> int:
        self.asked.append(stream.value)
        return put(status, self.capturing) or put(graph, self.captured)

    # resources

    def cuKernelGetFunction(self, function: Any, kernel: Any) -> int:
        return put(function, 2**64 - kernel.value)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, blocks: Any, function: Any, threads: Any, shared: Any) -> int:
        self.asked.append((threads.value, shared.value))
        return put(blocks, self.functions[function.value].blocks_per_sm)

    def cuOccupancyMaxActiveClusters(self, clusters: Any, function: Any, config: Any) -> int:
        asked: LaunchConfig = config._obj
        attribute = asked.attributes[0]
        assert (asked.number, attribute.id) == (1, 4)
        self.asked.append((tuple(asked.grid), tuple(asked.block), tuple(attribute.dims[:3])))
        return put(clusters, self.functions[function.value].clusters)

    def cuCtxGetDevice(self, device: Any) -> int:
        return put(device, 3)

    def cuDeviceGetAttribute(self, value: Any, attribute: Any, device: Any) -> int:
        assert (attribute.value, device.value) == (16, 3)
        return put(value, SMS)
