"""Build a call from data in this process: modules loaded from their images, nodes, edges, and an executable graph.

A call that is a chain of nodes is launched node by node, as it was captured, and not as a graph: there each kernel
after the first takes longer with a cold cache, and tracing adds more to the gaps. Medians on an H200, of the call, its
graph, and its kernels one by one: two kernels 2.43, 2.56 and 2.46 us, a convolution of five 21.54, 21.73 and 21.48 us,
a chain of six 83.8, 84.7 and 84.3 us.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from pytest_gpubench.replay.call_data import CallData, Edge, Graph, Kernel, Node
from pytest_gpubench.replay.driver import (
    DriverError,
    KernelParams,
    LaunchAttribute,
    LaunchConfig,
    handle,
    load_driver,
    out,
)
from pytest_gpubench.replay.memory import with_addresses
from pytest_gpubench.replay.reader import GraphReader, NotReplayable
from pytest_gpubench.replay.structures import ATTRIBUTE_BYTES, PORTS_BYTES, PROGRAMMATIC, REFUSED_ATTRIBUTES, STRUCTURES

V = TypeVar("V", int, bytes)
Modules = Mapping[str, int]
"""The driver's modules by the SHA-256 of their images."""
Launch = Callable[[int], object]
"""Launches on a stream, given by the driver's handle."""


class Built(NamedTuple):
    """A call that was built."""

    as_captured: Sequence[Launch]
    """The parts of a chain, in turn; of any other graph the whole."""
    whole: Launch


class GraphBuilder(GraphReader):
    """The functions of the driver that build a graph."""

    needed = (
        *(*GraphReader.needed, "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute"),
        *("cuGraphCreate", "cuGraphDestroy", "cuGraphAddKernelNode_v2", "cuGraphKernelNodeSetAttribute"),
        *("cuGraphAddMemcpyNode", "cuGraphAddMemsetNode", "cuGraphAddEmptyNode", "cuGraphAddChildGraphNode"),
        *("cuGraphAddDependencies_v2", "cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuGraphLaunch"),
        "cuLaunchKernelEx",
        *("cuCtxGetCurrent", "cuModuleGetGlobal_v2", "cuMemcpyDtoH_v2"),
    )

    @contextmanager
    def loaded(self, call: CallData, images: Mapping[str, bytes]) -> Iterator[Modules]:
        """Load the images of a call, which are given by their SHA-256; raise DriverError where one is none."""
        with ExitStack() as held:
            yield {name: self.load(images[name], held) for name in call.images}

    def build(self, call: CallData, modules: Modules, starts: Sequence[int], held: ExitStack) -> Built:
        """Return a call whose regions start at these addresses, until what holds it is closed.

        Calls that share modules share the caches of instructions. Raises DriverError, and NotReplayable for an image
        that is not the kernel's.
        """
        with ExitStack() as made:
            building = _Building(modules, starts, made)
            whole = self._executable(call.graph, building, held)
            working = [node for node in call.graph.nodes if node.kind != "empty"]
            parts = [self._part(node, building, held) for node in working] if is_chain(call.graph) else [whole]
        return Built(parts, whole)

    def _executable(self, graph: Graph, building: "_Building", held: ExitStack) -> Launch:
        """Return what launches a graph, until what holds it is closed."""
        executable = self.made("cuGraphInstantiateWithFlags", handle(self._graph(graph, building)), ctypes.c_uint64(0))
        held.callback(self.release, "cuGraphExecDestroy", executable)
        return lambda stream: self.call("cuGraphLaunch", handle(executable), handle(stream))

    def _part(self, node: Node, building: "_Building", held: ExitStack) -> Launch:
        """Return what launches a node that was built: a kernel by itself, another node as a graph of its own."""
        if node.kernel is None:
            return self._executable(Graph((node,), ()), building, held)
        return partial(self._launch, *building.kernels[id(node)])

    def _launch(self, config: LaunchConfig, function: int, parameters: Any, stream: int) -> None:
        config.stream = stream
        self.call("cuLaunchKernelEx", out(config), handle(function), parameters.places, None)

    def load(self, image: bytes, held: ExitStack) -> int:
        """Return the module of an image, which is unloaded with what holds it."""
        module = self.made("cuModuleLoadData", ctypes.c_char_p(image))
        held.callback(self.release, "cuModuleUnload", module)
        return module

    def release(self, name: str, value: int) -> None:
        """Let the driver release what it made, by its function for that."""
        with suppress(DriverError):  # the context is broken, and what it held is gone
            self.call(name, handle(value))

    def _graph(self, graph: Graph, building: "_Building") -> int:
        made = self.made("cuGraphCreate", ctypes.c_uint(0))
        building.made.callback(self.release, "cuGraphDestroy", made)
        nodes = [self._add(made, node, building) for node in graph.nodes]
        if graph.edges:
            starts, ends = (
                (ctypes.c_void_p * len(graph.edges))(*(nodes[number] for number in numbers))
                for numbers in zip(*((each.start, each.end) for each in graph.edges), strict=True)
            )
            ports = ctypes.create_string_buffer(b"".join(each.ports for each in graph.edges))
            number = ctypes.c_size_t(len(graph.edges))
            self.call("cuGraphAddDependencies_v2", handle(made), starts, ends, ports, number)
        return made

    def _add(self, graph: int, node: Node, building: "_Building") -> int:
        """Add a node; what it waits for is added later."""
        place = handle(graph), None, ctypes.c_size_t(0)
        values = with_addresses(node.values, node.pointers, building.starts)
        if node.kernel is not None:
            made, building.kernels[id(node)] = self._add_kernel(place, node.kernel, values, building.modules)
            return made
        if node.child is not None:
            return self.made("cuGraphAddChildGraphNode", *place, handle(self._graph(node.child, building)))
        if node.kind == "empty":
            return self.made("cuGraphAddEmptyNode", *place)
        params, context = STRUCTURES[node.kind].from_buffer_copy(values[0]), self.made("cuCtxGetCurrent")
        return self.made(f"cuGraphAdd{node.kind.capitalize()}Node", *place, out(params), handle(context))

    def _add_kernel(
        self, place: tuple[Any, ...], kernel: Kernel, values: Sequence[bytes], modules: Modules
    ) -> "tuple[int, _Single]":
        for each in kernel.launch_attributes.keys() & REFUSED_ATTRIBUTES:
            raise NotReplayable(f"the kernel {kernel.symbol} {REFUSED_ATTRIBUTES[each]}")
        symbol = ctypes.c_char_p(kernel.symbol.encode(errors="backslashreplace"))
        function = self.made("cuModuleGetFunction", handle(modules[kernel.image]), symbol)
        if [size for _, size in self.layout(function)] != [len(each) for each in values]:
            raise NotReplayable(f"the image of {kernel.symbol} has other parameters than the kernel that was captured")
        for attribute, number in different(kernel.function_attributes, self.function_attributes(function), 0).items():
            self.call("cuFuncSetAttribute", handle(function), ctypes.c_int(attribute), ctypes.c_int(number))
        parameters = _Parameters(values)
        size = kernel.grid, kernel.block, kernel.dynamic_shared_bytes
        params = KernelParams(function, *size, ctypes.addressof(parameters.places))
        node = self.made("cuGraphAddKernelNode_v2", *place, out(params))  # which copies the parameters
        others = different(kernel.launch_attributes, self.launch_attributes(node), b"")
        attributes = (LaunchAttribute * max(1, len(others)))()
        for each, (attribute, value) in zip(attributes, others.items(), strict=False):
            each.id, each.dims[:] = attribute, memoryview(value.ljust(ATTRIBUTE_BYTES, b"\0")).cast("I")
            self.call("cuGraphKernelNodeSetAttribute", handle(node), ctypes.c_int(attribute), each.dims)
        return node, _Single(LaunchConfig(*size, None, attributes, len(others)), function, parameters)


def different(wanted: Mapping[int, V], found: Mapping[int, V], zero: V) -> dict[int, V]:
    """Return the attributes that are not as wanted, with the values wanted; zero: the value of absent ones."""
    each = {number: wanted.get(number, zero) for number in sorted(wanted.keys() | found.keys())}
    return {number: value for number, value in each.items() if value != found.get(number, zero)}


def is_chain(graph: Graph) -> bool:
    """Tell whether each node of a graph waits for the end of the one before it, and for nothing else."""
    kernels = [node.kernel for node in graph.nodes if node.kernel is not None]
    if any(PROGRAMMATIC in kernel.launch_attributes for kernel in kernels):
        return False
    return graph.edges == tuple(Edge(at, at + 1, bytes(PORTS_BYTES)) for at in range(len(graph.nodes) - 1))


class _Parameters:
    """Where the parameters of a kernel lie."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._held = [ctypes.create_string_buffer(each, max(1, len(each))) for each in values]
        self.places = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, self._held))


class _Single(NamedTuple):
    """A kernel to be launched by itself."""

    config: LaunchConfig
    function: int
    parameters: _Parameters


@dataclass
class _Building:
    """The sources of the parts of one call."""

    modules: Modules
    starts: Sequence[int]
    made: ExitStack
    """Ends the graphs when the executable ones are made."""
    kernels: dict[int, _Single] = field(default_factory=dict)
    """Those that were added, by the identity of their nodes."""


@cache
def find_builder() -> GraphBuilder:
    """Return the driver; raise NotReplayable where there is none of NVIDIA's, or it is too old."""
    if (found := load_driver(GraphBuilder)) is None:
        raise NotReplayable("the CUDA driver is too old to build graphs with")
    return found
