"""The driver's structures and numbers that graphs are read and built with; names and layouts are cuda.h's."""

import ctypes

NODE_KINDS = {0: "kernel", 1: "memcpy", 2: "memset", 4: "child", 5: "empty"}
UNSUPPORTED_NODES = {
    3: "it calls a function of the host",
    6: "it waits for an event",
    7: "it records an event",
    8: "it signals an external semaphore",
    9: "it waits for an external semaphore",
    10: "it allocates memory by the driver in the graph",
    11: "it frees memory by the driver in the graph",
    12: "it has batched memory operations",
    13: "it branches on a value in the graph",
}
"""Sentences for kinds of nodes that cannot be replayed."""
LAUNCH_ATTRIBUTES = range(1, 32)
"""All that a driver may know of a launch: CUDA 13 has named 16."""
REFUSED_ATTRIBUTES = {
    1: "has a window of the L2 cache set aside",
    7: "records an event for programmatic launches",
    12: "records an event when its blocks have begun",
    13: "may be changed by the GPU",
}
"""Words for attributes of a launch that hold an address or a handle."""
PROGRAMMATIC = 6
"""The attribute of a launch that lets a kernel begin before what is before it in its stream has ended."""
FUNCTION_ATTRIBUTES = range(8, 32)
"""All that a host may set; those before are compiled, and CUDA 13 has named 15."""
ATTRIBUTE_BYTES = 64
PORTS_BYTES = 8
HOST_MEMORY, DEVICE_MEMORY, ARRAY_MEMORY = 1, 2, 3
MEMORY_TYPE = 2
"""The attribute of a pointer."""
LAUNCH_BUFFER = 1
"""The name of what `extra` points to."""


class MemsetParams(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = (
        ("destination", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element_bytes", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class MemcpyEnd(ctypes.Structure):
    """One half of CUDA_MEMCPY3D."""

    _fields_ = (
        ("x_bytes", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("z", ctypes.c_size_t),
        ("level", ctypes.c_size_t),
        ("memory_type", ctypes.c_int),
        ("host", ctypes.c_uint64),
        ("device", ctypes.c_uint64),
        ("array", ctypes.c_uint64),
        ("context", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class MemcpyParams(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = (
        ("source", MemcpyEnd),
        ("destination", MemcpyEnd),
        ("width_bytes", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
    )


STRUCTURES: dict[str, type[ctypes.Structure]] = {"memcpy": MemcpyParams, "memset": MemsetParams}
