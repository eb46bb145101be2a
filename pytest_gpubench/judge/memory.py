"""Memory that two processes share: a sealed memory file on the CPU, CUDA IPC on a GPU."""

import ctypes
import fcntl
import os
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from pytest_gpubench.gpu.context import CUDA_LIBRARY
from pytest_gpubench.judge.channel import Layout
from pytest_gpubench.judge.layout import MIB, placed, views
from pytest_gpubench.replay.driver import Driver, handle, out

if TYPE_CHECKING:
    import torch

COUNTERS_BYTES = 512


class At(IntEnum):
    """The places of the counters of calls that are released and done, and of outputs that are asked for and copied."""

    RELEASED, DONE, FETCHED, COPIED = range(0, COUNTERS_BYTES, 128)


def case_blocks(inputs: Layout, outputs: Layout) -> list[int]:
    """Return the sizes of the blocks of memory for a case: of its inputs, of its outputs, and of counters.

    CUDA IPC shares whole blocks of 2 MiB: nothing else may lie in these.
    """
    return [*placed(inputs)[0], *placed(outputs)[0], 2 * MIB]


def case_views(
    blocks: "Sequence[torch.Tensor]", inputs: Layout, outputs: Layout
) -> "tuple[list[list[torch.Tensor]], list[list[torch.Tensor]], torch.Tensor]":
    """Return the sets of inputs, the one of outputs and the counters in the blocks of a case."""
    length = len(placed(inputs)[0])
    return views(blocks, inputs), views(blocks[length:], outputs), blocks[-1][:COUNTERS_BYTES]


# the CPU


def make_file(size: int) -> int:
    """Return the descriptor of a new memory file of fixed size: readers of a shortened one would crash."""
    descriptor = os.memfd_create("gpu_bench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def map_file(descriptor: int, sizes: Sequence[int]) -> "list[torch.Tensor]":
    """Return blocks of these sizes in a memory file, which stay when it is closed: Python's mmap would keep it open."""
    import torch

    path, size = f"/proc/self/fd/{descriptor}", os.fstat(descriptor).st_size
    return [*torch.split(torch.from_file(path, shared=True, size=size, dtype=torch.uint8), [*sizes])]


# a GPU


class _Handle(ctypes.Structure):
    """CUipcMemHandle of cuda.h."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


class GpuMemory(Driver):
    """The driver's calls for memory that two processes share; the CUDA context must be current."""

    LAZY_PEER_ACCESS = 1

    def __init__(self, device: "torch.device") -> None:
        super().__init__(ctypes.CDLL(CUDA_LIBRARY))
        self._device = device

    def allocate(self, size: int) -> tuple["torch.Tensor", str]:
        """Return new memory, and its handle; it shares no block of 2 MiB if it is as large as some."""
        address, shared = ctypes.c_uint64(0), _Handle()
        self.call("cuMemAlloc_v2", out(address), ctypes.c_size_t(size))
        self.call("cuIpcGetMemHandle", out(shared), address)
        return self._bytes_at(address.value, size), ctypes.string_at(out(shared), 64).hex()

    def free(self, memory: "torch.Tensor") -> None:
        """Free memory that `allocate` returned."""
        self.call("cuMemFree_v2", ctypes.c_uint64(memory.data_ptr()))

    def open(self, shared: str, size: int) -> "torch.Tensor":
        """Return so many bytes of memory that another process has allocated, by its handle."""
        given, address = _Handle.from_buffer_copy(bytes.fromhex(shared)), ctypes.c_uint64(0)
        self.call("cuIpcOpenMemHandle_v2", out(address), given, ctypes.c_uint(self.LAZY_PEER_ACCESS))
        return self._bytes_at(address.value, size)

    def close(self, memory: "torch.Tensor") -> None:
        """Give back memory that `open` returned, once nothing uses it: it is not freed before, and not to be freed."""
        self.call("cuIpcCloseMemHandle", ctypes.c_uint64(memory.data_ptr()))

    def _bytes_at(self, address: int, size: int) -> "torch.Tensor":
        from pytest_gpubench.correctness.memory import bytes_at

        return bytes_at(address, size, self._device)

    def wait_for(self, address: int, value: int) -> None:
        """Let torch's current stream wait until the 32-bit number there has counted up to this value."""
        self._on_stream("cuStreamWaitValue32_v2", address, value)

    def write(self, address: int, value: int) -> None:
        """Let torch's current stream write a 32-bit number, when all before is done."""
        self._on_stream("cuStreamWriteValue32_v2", address, value)

    def _on_stream(self, name: str, address: int, value: int) -> None:
        import torch

        stream = torch.cuda.current_stream(self._device).cuda_stream
        self.call(name, handle(stream), ctypes.c_uint64(address), ctypes.c_uint32(value), ctypes.c_uint(0))
