"""Memory that two processes share: a sealed memory file on the CPU, CUDA IPC on a GPU."""

import ctypes
import fcntl
import mmap
import os
from typing import TYPE_CHECKING, Any

from pytest_gpubench.errors import MeasurementError
from pytest_gpubench.gpu.persisting import load_driver

if TYPE_CHECKING:
    import torch

GRANULE = 2**21
"""CUDA IPC shares whole blocks of 2 MiB: nothing else may lie in the blocks of shared memory."""


def _whole_granules(size: int) -> int:
    """Return a size rounded up to whole blocks."""
    return -(-max(size, 1) // GRANULE) * GRANULE


# the CPU


def make_file(size: int) -> int:
    """Return the descriptor of a new memory file of fixed size: readers of a shortened one would crash."""
    descriptor = os.memfd_create("gpu_bench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, max(size, mmap.PAGESIZE))
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def map_file(descriptor: int) -> "torch.Tensor":
    """Return the bytes of a memory file."""
    import torch

    return torch.frombuffer(mmap.mmap(descriptor, os.fstat(descriptor).st_size), dtype=torch.uint8)


# a GPU


COUNTERS_BYTES = 512
DONE_AT = 256
"""The place of the counter of calls that are done, after that of calls that are released."""


class _Handle(ctypes.Structure):
    """CUipcMemHandle of cuda.h."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


class GpuMemory:
    """The driver's calls for memory that two processes share; the CUDA context must be current."""

    LAZY_PEER_ACCESS = 1

    def __init__(self, device: "torch.device") -> None:
        self._driver: Any = load_driver()
        self._device = device

    def allocate(self, size: int) -> tuple["torch.Tensor", str]:
        """Return new memory in blocks of its own, and its handle."""
        address = ctypes.c_uint64(0)
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(_whole_granules(size)))
        return self._bytes_at(address.value, _whole_granules(size)), self._handle_of(address.value)

    def _bytes_at(self, address: int, size: int) -> "torch.Tensor":
        from pytest_gpubench.correctness.memory import bytes_at

        return bytes_at(address, size, self._device)

    def free(self, memory: "torch.Tensor") -> None:
        """Free memory that `allocate` returned."""
        self._call("cuMemFree_v2", ctypes.c_uint64(memory.data_ptr()))

    def open(self, handle: str, size: int) -> "torch.Tensor":
        """Return so many bytes of memory that another process has allocated."""
        given, address = _Handle(), ctypes.c_uint64(0)
        ctypes.memmove(ctypes.byref(given), bytes.fromhex(handle), ctypes.sizeof(given))
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), given, ctypes.c_uint(self.LAZY_PEER_ACCESS))
        return self._bytes_at(address.value, size)

    def wait_for(self, address: int, value: int) -> None:
        """Let torch's current stream wait until the 32-bit number there has counted up to this value."""
        self._on_stream("cuStreamWaitValue32_v2", address, value)

    def write(self, address: int, value: int) -> None:
        """Let torch's current stream write a 32-bit number, when all before is done."""
        self._on_stream("cuStreamWriteValue32_v2", address, value)

    def _on_stream(self, name: str, address: int, value: int) -> None:
        import torch

        stream = ctypes.c_void_p(torch.cuda.current_stream(self._device).cuda_stream)
        self._call(name, stream, ctypes.c_uint64(address), ctypes.c_uint32(value), ctypes.c_uint(0))

    def _handle_of(self, address: int) -> str:
        handle = _Handle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
        return ctypes.string_at(ctypes.byref(handle), 64).hex()

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(text))
            raise MeasurementError(f"{name}: {(text.value or b'').decode()} ({code})")
