"""The CUDA driver's answers on a graph and its kernels, by ctypes; handles, structures and numbers are cuda.h's."""

import ctypes
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar

from pytest_gpubench.errors import GpuBenchError
from pytest_gpubench.gpu import persisting
from pytest_gpubench.replay.call_data import Dim
from pytest_gpubench.results.model import Resources

CAPTURING = 1
KERNEL_NODE, CHILD_GRAPH_NODE = 0, 4
STATIC_SHARED, LOCAL, REGISTERS = 1, 3, 4
"""Attributes of a function."""
REQUIRED_CLUSTER = (11, 12, 13)
"""Attributes of a function that was compiled for one size of cluster; 0 for any other."""
CLUSTER = 4
"""The attribute of a launch."""
MULTIPROCESSORS = 16
"""The attribute of a device."""


class DriverError(GpuBenchError):
    """Raised where a function of the driver fails."""


class KernelParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("dynamic_shared_bytes", ctypes.c_uint),
        ("params", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute, whose value begins with a cluster's dimensions if it is of these."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("dims", ctypes.c_uint * 16))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("dynamic_shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("number", ctypes.c_uint),
    )


@dataclass(frozen=True)
class Launch:
    """A kernel as a graph launches it."""

    function: int
    """Its CUfunction."""
    grid: Dim
    block: Dim
    dynamic_shared_bytes: int
    cluster: Dim


class Driver:
    """The driver's library, or what stands for it in a test."""

    needed: ClassVar[tuple[str, ...]] = (
        *("cuStreamGetCaptureInfo_v2", "cuGraphGetNodes", "cuGraphNodeGetType", "cuGraphChildGraphNodeGetGraph"),
        *("cuGraphKernelNodeGetParams_v2", "cuGraphKernelNodeGetAttribute", "cuKernelGetFunction", "cuFuncGetName"),
        *("cuFuncGetAttribute", "cuOccupancyMaxActiveBlocksPerMultiprocessor", "cuOccupancyMaxActiveClusters"),
        *("cuCtxGetDevice", "cuDeviceGetAttribute"),
    )
    """The functions that are called; the youngest came with CUDA 12.3."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def graph_captured_on(self, stream: int) -> int:
        """Return the graph that a stream is captured into; it may be read until the capture ends."""
        status, graph = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuStreamGetCaptureInfo_v2", handle(stream), out(status), None, out(graph), None, None)
        if status.value != CAPTURING or not graph.value:
            raise DriverError("the stream is not captured")
        return graph.value

    def launches(self, graph: int) -> Iterator[Launch]:
        """Yield the kernels of a graph and of the graphs in it, in the order in which they were added."""
        for node in self.nodes(graph):
            kind = self.kind(node)
            if kind == KERNEL_NODE:
                params, function = self.kernel_params(node)
                cluster = self._cluster(node, function)
                yield Launch(function, dim(params.grid), dim(params.block), params.dynamic_shared_bytes, cluster)
            elif kind == CHILD_GRAPH_NODE:
                yield from self.launches(self.child(node))

    def kind(self, node: int) -> int:
        """Return the driver's type of a node."""
        kind = ctypes.c_int()
        self.call("cuGraphNodeGetType", handle(node), out(kind))
        return kind.value

    def child(self, node: int) -> int:
        """Return the graph in a node."""
        inner = ctypes.c_void_p()
        self.call("cuGraphChildGraphNodeGetGraph", handle(node), out(inner))
        return inner.value or 0

    def symbol(self, function: int) -> str:
        """Return the symbol of a function."""
        name = ctypes.c_char_p()
        self.call("cuFuncGetName", out(name), handle(function))
        return (name.value or b"").decode(errors="backslashreplace")

    def resources(self, launch: Launch, launches: int = 1) -> Resources:
        """Return what a launch takes of the GPU."""
        threads, shared_bytes = ctypes.c_int(math.prod(launch.block)), ctypes.c_size_t(launch.dynamic_shared_bytes)
        asked = handle(launch.function), threads, shared_bytes
        per_sm = self._int("cuOccupancyMaxActiveBlocksPerMultiprocessor", *asked)
        if math.prod(launch.cluster) > 1:
            resident = self._in_clusters(launch)
        else:
            device = ctypes.c_int(self._int("cuCtxGetDevice"))
            resident = per_sm * self._int("cuDeviceGetAttribute", ctypes.c_int(MULTIPROCESSORS), device)
        if not resident:  # it was launched, so it fits: what it was launched with has changed since
            raise DriverError("the CUDA driver says that a kernel which was launched does not fit on the GPU")
        return Resources(
            launches=launches,
            grid=launch.grid,
            block=launch.block,
            cluster=launch.cluster,
            registers=self.function_attribute(launch.function, REGISTERS),
            local_bytes=self.function_attribute(launch.function, LOCAL),
            static_shared_bytes=self.function_attribute(launch.function, STATIC_SHARED),
            dynamic_shared_bytes=launch.dynamic_shared_bytes,
            blocks_per_sm=per_sm,
            resident_blocks=resident,
        )

    def nodes(self, graph: int) -> list[int]:
        """Return the nodes of a graph."""
        number = ctypes.c_size_t()
        self.call("cuGraphGetNodes", handle(graph), None, out(number))
        nodes = (ctypes.c_void_p * number.value)()
        if number.value:
            self.call("cuGraphGetNodes", handle(graph), nodes, out(number))
        return [node or 0 for node in nodes]

    def kernel_params(self, node: int) -> tuple[KernelParams, int]:
        """Return the parameters of a kernel's node, and its function."""
        params = KernelParams()
        self.call("cuGraphKernelNodeGetParams_v2", handle(node), out(params))
        return params, params.func or self.made("cuKernelGetFunction", handle(params.kern))

    def _cluster(self, node: int, function: int) -> Dim:
        value = (ctypes.c_uint * 16)()
        self.call("cuGraphKernelNodeGetAttribute", handle(node), ctypes.c_int(CLUSTER), value)
        if value[0]:
            return dim(value)
        compiled = [self.function_attribute(function, each) for each in REQUIRED_CLUSTER]
        return dim(compiled) if all(compiled) else (1, 1, 1)

    def function_attribute(self, function: int, attribute: int) -> int:
        """Return an attribute of a function."""
        return self._int("cuFuncGetAttribute", ctypes.c_int(attribute), handle(function))

    def _in_clusters(self, launch: Launch) -> int:
        """Return the blocks that the GPU holds at once: whole clusters, each of which has to lie in one part of it."""
        attribute = LaunchAttribute(id=CLUSTER)
        attribute.dims[:3] = launch.cluster
        size = launch.grid, launch.block, launch.dynamic_shared_bytes
        config = LaunchConfig(*size, None, ctypes.pointer(attribute), 1)
        clusters = self._int("cuOccupancyMaxActiveClusters", handle(launch.function), out(config))
        return clusters * math.prod(launch.cluster)

    def _int(self, name: str, *args: Any) -> int:
        """Call a function whose first argument is the int that it returns."""
        found = ctypes.c_int()
        self.call(name, out(found), *args)
        return found.value

    def made(self, name: str, *args: Any) -> int:
        """Call a function whose first argument is the handle that it returns."""
        found = ctypes.c_void_p()
        self.call(name, out(found), *args)
        return found.value or 0

    def call(self, name: str, *args: Any) -> None:
        """Call a function; raise DriverError where it fails."""
        if error := getattr(self._library, name)(*args):
            raise DriverError(f"{name} of the CUDA driver fails with error {error}")


D = TypeVar("D", bound=Driver)


@cache
def find_driver() -> Driver | None:
    """Return the driver; None where there is none of NVIDIA's, or an older one than of CUDA 12.3."""
    return load_driver(Driver)


def load_driver(kind: type[D]) -> D | None:
    """Return the driver with the functions that this kind of it needs; None where it lacks one, or there is none."""
    library = persisting.driver_library()
    return kind(library) if library is not None and all(hasattr(library, name) for name in kind.needed) else None


def handle(value: int) -> ctypes.c_void_p:
    """Return a handle, or an address, as an argument."""
    return ctypes.c_void_p(value)


def out(value: Any) -> Any:
    """Return the address of what a function is to fill, as an argument."""
    return ctypes.byref(value)


def dim(values: Any) -> Dim:
    """Return the first three of the driver's numbers."""
    return int(values[0]), int(values[1]), int(values[2])
