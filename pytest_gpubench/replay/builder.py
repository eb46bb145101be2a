"""Build a graph from data in this process: modules loaded from their images, nodes, edges, and an executable graph."""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pytest_gpubench.replay.call_data import CallData, Graph, Kernel, Node
from pytest_gpubench.replay.driver import DriverError, KernelParams, handle, load_driver, out
from pytest_gpubench.replay.memory import with_addresses
from pytest_gpubench.replay.reader import GraphReader, NotReplayable
from pytest_gpubench.replay.structures import ATTRIBUTE_BYTES, STRUCTURES

V = TypeVar("V", int, bytes)
Modules = Mapping[str, int]
"""The driver's modules by the SHA-256 of their images."""


class GraphBuilder(GraphReader):
    """The functions of the driver that build a graph."""

    needed = (
        *(*GraphReader.needed, "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute"),
        *("cuGraphCreate", "cuGraphDestroy", "cuGraphAddKernelNode_v2", "cuGraphKernelNodeSetAttribute"),
        *("cuGraphAddMemcpyNode", "cuGraphAddMemsetNode", "cuGraphAddEmptyNode", "cuGraphAddChildGraphNode"),
        *("cuGraphAddDependencies_v2", "cuGraphInstantiateWithFlags", "cuGraphExecDestroy", "cuGraphLaunch"),
        *("cuCtxGetCurrent", "cuModuleGetGlobal_v2", "cuMemcpyDtoH_v2"),
    )

    @contextmanager
    def loaded(self, call: CallData, images: Mapping[str, bytes]) -> Iterator[Modules]:
        """Load the images of a call, which are given by their SHA-256; raise DriverError where one is none."""
        with ExitStack() as held:
            yield {name: self.load(images[name], held) for name in call.images}

    def build(self, call: CallData, modules: Modules, starts: Sequence[int], held: ExitStack) -> int:
        """Return the executable graph of a call whose regions start at these addresses, until what holds it is closed.

        Graphs that share modules share the caches of instructions. Raises DriverError, and NotReplayable for an image
        that is not the kernel's.
        """
        with ExitStack() as made:
            graph = handle(self._graph(call.graph, _Building(modules, starts, made)))
            executable = self.made("cuGraphInstantiateWithFlags", graph, ctypes.c_uint64(0))
        held.callback(self.release, "cuGraphExecDestroy", executable)
        return executable

    def launch(self, executable: int, stream: int) -> None:
        """Launch an executable graph once on a stream."""
        self.call("cuGraphLaunch", handle(executable), handle(stream))

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
            return self._add_kernel(place, node.kernel, values, building.modules)
        if node.child is not None:
            return self.made("cuGraphAddChildGraphNode", *place, handle(self._graph(node.child, building)))
        if node.kind == "empty":
            return self.made("cuGraphAddEmptyNode", *place)
        params, context = STRUCTURES[node.kind].from_buffer_copy(values[0]), self.made("cuCtxGetCurrent")
        return self.made(f"cuGraphAdd{node.kind.capitalize()}Node", *place, out(params), handle(context))

    def _add_kernel(self, place: tuple[Any, ...], kernel: Kernel, values: Sequence[bytes], modules: Modules) -> int:
        symbol = ctypes.c_char_p(kernel.symbol.encode(errors="backslashreplace"))
        function = self.made("cuModuleGetFunction", handle(modules[kernel.image]), symbol)
        if [size for _, size in self.layout(function)] != [len(each) for each in values]:
            raise NotReplayable(f"the image of {kernel.symbol} has other parameters than the kernel that was captured")
        for attribute, number in different(kernel.function_attributes, self.function_attributes(function), 0).items():
            self.call("cuFuncSetAttribute", handle(function), ctypes.c_int(attribute), ctypes.c_int(number))
        buffers = [ctypes.create_string_buffer(each, max(1, len(each))) for each in values]
        given = (ctypes.c_void_p * max(1, len(buffers)))(*map(ctypes.addressof, buffers))
        size = kernel.grid, kernel.block, kernel.dynamic_shared_bytes
        params = KernelParams(function, *size, ctypes.addressof(given))
        node = self.made("cuGraphAddKernelNode_v2", *place, out(params))  # which copies the parameters
        for attribute, value in different(kernel.launch_attributes, self.launch_attributes(node), b"").items():
            padded = (ctypes.c_ubyte * ATTRIBUTE_BYTES)(*value)
            self.call("cuGraphKernelNodeSetAttribute", handle(node), ctypes.c_int(attribute), padded)
        return node


def different(wanted: Mapping[int, V], found: Mapping[int, V], zero: V) -> dict[int, V]:
    """Return the attributes that are not as wanted, with the values wanted; zero: the value of absent ones."""
    each = {number: wanted.get(number, zero) for number in sorted(wanted.keys() | found.keys())}
    return {number: value for number, value in each.items() if value != found.get(number, zero)}


@dataclass
class _Building:
    """The sources of the parts of one graph."""

    modules: Modules
    starts: Sequence[int]
    made: ExitStack
    """Ends the graphs when the executable one is made."""


@cache
def find_builder() -> GraphBuilder:
    """Return the driver; raise NotReplayable where there is none of NVIDIA's, or it is too old."""
    if (found := load_driver(GraphBuilder)) is None:
        raise NotReplayable("the CUDA driver is too old to build graphs with")
    return found
