"""Read a captured graph into data: nodes, edges with their ports, attributes of launches, and parameters."""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from graphlib import TopologicalSorter
from typing import Any

from pytest_gpubench.errors import GpuBenchError
from pytest_gpubench.replay.call_data import Edge, Graph, Kernel, Node
from pytest_gpubench.replay.driver import (
    CHILD_GRAPH_NODE,
    KERNEL_NODE,
    Driver,
    DriverError,
    KernelParams,
    dim,
    handle,
    out,
)
from pytest_gpubench.replay.structures import (
    ARRAY_MEMORY,
    ATTRIBUTE_BYTES,
    FUNCTION_ATTRIBUTES,
    LAUNCH_ATTRIBUTES,
    LAUNCH_BUFFER,
    NODE_KINDS,
    PORTS_BYTES,
    STRUCTURES,
    UNSUPPORTED_NODES,
    MemcpyParams,
)

ImageOf = Callable[[int, str], str]
"""Return the SHA-256 of the image that a function of this handle and symbol is from."""
MOST_PARAMETERS = 4096
"""So many are read of one kernel; its parameters have as many bytes in the oldest CUDA, and 32764 in the newest."""


class NotReplayable(GpuBenchError):
    """Raised with the reason, in words, why a call cannot be replayed."""


class ImagesMissing(NotReplayable):
    """Raised with the names of kernels whose images were not found, or not looked for."""


class GraphReader(Driver):
    """The functions of the driver that read a graph."""

    needed = (
        *(*Driver.needed, "cuGraphGetEdges_v2", "cuFuncGetParamInfo", "cuFuncGetModule"),
        *("cuGraphMemcpyNodeGetParams", "cuGraphMemsetNodeGetParams"),
        "cuPointerGetAttribute",
    )

    def read(self, graph: int, image_of: ImageOf) -> Graph:
        """Return a graph as data, whose values still hold addresses; raise NotReplayable and DriverError."""
        handles = self.nodes(graph)
        edges = self._edges(graph, {each: number for number, each in enumerate(handles)})
        sorter: TopologicalSorter[int] = TopologicalSorter(dict.fromkeys(range(len(handles)), ()))  # no [int]() in 3.10
        for each in edges:
            sorter.add(each.end, each.start)
        order = list(sorter.static_order())
        place = {number: at for at, number in enumerate(order)}
        nodes = tuple(self._node(handles[number], image_of) for number in order)
        moved = (Edge(place[each.start], place[each.end], each.ports) for each in edges)
        return Graph(nodes, tuple(sorted(moved, key=lambda each: (each.end, each.start))))

    def _edges(self, graph: int, numbers: dict[int, int]) -> list[Edge]:
        found = ctypes.c_size_t()
        self.call("cuGraphGetEdges_v2", handle(graph), None, None, None, out(found))
        starts, ends = ((ctypes.c_void_p * found.value)() for _ in range(2))
        ports = (ctypes.c_ubyte * (PORTS_BYTES * found.value))()
        if found.value:
            self.call("cuGraphGetEdges_v2", handle(graph), starts, ends, ports, out(found))
        return [
            Edge(numbers[start or 0], numbers[end or 0], bytes(ports[PORTS_BYTES * at : PORTS_BYTES * (at + 1)]))
            for at, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]

    def _node(self, node: int, image_of: ImageOf) -> Node:
        number = self.kind(node)
        if number == KERNEL_NODE:
            return self._kernel(node, image_of)
        if number == CHILD_GRAPH_NODE:
            return Node(kind="child", child=self.read(self.child(node), image_of))
        kind: Any = NODE_KINDS.get(number)
        if kind is None:
            raise NotReplayable(UNSUPPORTED_NODES.get(number, f"its graph has a node of the driver's type {number}"))
        if kind not in STRUCTURES:
            return Node(kind=kind)
        params = STRUCTURES[kind]()
        self.call(f"cuGraph{kind.capitalize()}NodeGetParams", handle(node), out(params))
        if isinstance(params, MemcpyParams):
            ends = params.source, params.destination
            if any(each.memory_type == ARRAY_MEMORY for each in ends):
                raise NotReplayable("it copies from or to an array of CUDA's, which is no plain memory")
        return Node(kind=kind, values=(bytes(params),))

    def _kernel(self, node: int, image_of: ImageOf) -> Node:
        params, function = self.kernel_params(node)
        symbol = self.symbol(function)
        kernel = Kernel(
            symbol=symbol,
            image=image_of(function, symbol),
            grid=dim(params.grid),
            block=dim(params.block),
            dynamic_shared_bytes=params.dynamic_shared_bytes,
            launch_attributes=self.launch_attributes(node),
            function_attributes=self.function_attributes(function),
        )
        return Node(kind="kernel", values=self._parameters(params, self.layout(function)), kernel=kernel)

    def launch_attributes(self, node: int) -> dict[int, bytes]:
        """Return the attributes of a launch by the driver's numbers, without those that are 0."""
        found = {}
        for attribute in LAUNCH_ATTRIBUTES:
            value = (ctypes.c_ubyte * ATTRIBUTE_BYTES)()
            with suppress(DriverError):  # it is of streams alone, or the driver does not know it
                self.call("cuGraphKernelNodeGetAttribute", handle(node), ctypes.c_int(attribute), value)
            if any(value):
                found[attribute] = bytes(value).rstrip(b"\0")
        return found

    def function_attributes(self, function: int) -> dict[int, int]:
        """Return the attributes of a function that a host may set, in the same form."""
        found = {}
        with suppress(DriverError):  # the driver knows no more
            for attribute in FUNCTION_ATTRIBUTES:
                if value := self.function_attribute(function, attribute):
                    found[attribute] = value
        return found

    def module(self, function: int) -> int:
        """Return the module that a function is from."""
        return self.made("cuFuncGetModule", handle(function))

    def layout(self, function: int) -> list[tuple[int, int]]:
        """Return the offset and the size of each parameter of a function."""
        found: list[tuple[int, int]] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        while len(found) < MOST_PARAMETERS:
            try:
                number = ctypes.c_size_t(len(found))
                self.call("cuFuncGetParamInfo", handle(function), number, out(offset), out(size))
            except DriverError:  # there are no more
                break
            found.append((offset.value, size.value))
        return found

    def _parameters(self, params: KernelParams, layout: Sequence[tuple[int, int]]) -> tuple[bytes, ...]:
        if params.params:
            places = (ctypes.c_void_p * len(layout)).from_address(params.params)
            return tuple(ctypes.string_at(at or 0, size) for at, (_, size) in zip(places, layout, strict=True))
        if not params.extra:
            return ()
        given = (ctypes.c_void_p * 4).from_address(params.extra)
        buffer = next((given[at + 1] or 0 for at in (0, 2) if given[at] == LAUNCH_BUFFER), 0)
        return tuple(ctypes.string_at(buffer + offset, size) for offset, size in layout)
