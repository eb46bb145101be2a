"""Images of modules that libraries have loaded: the driver holds each of them, unpacked, in this process's memory.

It returns none of them, and CUPTI does so to its one subscriber, which is the profiler. But the handle of a module is
the address of what the driver knows of it, which leads to its image over one more address in driver 580.159.04.
"""

import ctypes
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress

from pytest_gpubench.replay.elf import HEADER, MAGIC, NO_BITS, SECTION, code_of, sections

HIGHEST = 2**64
STRUCTURE = struct.Struct("<32Q")
"""The part of a structure of the driver's that addresses are read from."""
MACHINE = 190
"""CUDA, in the header of an ELF file."""
MOST_BYTES = 2**28
"""An image has less; a header that says otherwise is of none."""


class LoadedImages:
    """The images of modules, as far as their handles lead to them."""

    def __init__(self, module_of: Callable[[int], int]) -> None:
        self._module_of = module_of
        self._found: dict[int, list[tuple[set[bytes], bytes]]] = {}
        """The images that each module leads to, with the names of their sections."""

    def image_of(self, function: int, symbol: str) -> bytes | None:
        """Return the image of a function's module.

        None where the module leads to none with a kernel of this symbol, or to different ones.
        """
        module, name = self._module_of(function), b".text." + symbol.encode(errors="backslashreplace")
        if module not in self._found:
            self._found[module] = images_from(module)
        images = {image for names, image in self._found[module] if name in names}
        if len(images) > 1 and len(set(map(code_of, images))) > 1:
            return None
        return next(iter(images), None)


def images_from(module: int) -> list[tuple[set[bytes], bytes]]:
    """Return the whole images that a module leads to, each after the names of its sections."""
    with suppress(OSError), tempfile.TemporaryFile() as file:
        memory = ProcessMemory(file.fileno())
        steps = {further for each in memory.addresses_at(module) for further in memory.addresses_at(each)}
        images = [image for image in map(memory.image_at, steps) if image]
        return [({name for name, *_ in sections(image)}, image) for image in images]
    return []


class ProcessMemory:
    """This process's memory, written to a file by the kernel: what is not there is missing, and crashes nothing.

    /proc/self/mem would do, but cannot be opened by a process that hides its memory. A candidate of `judge` may make no
    file in memory.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._write = descriptor, ctypes.CDLL(None).pwrite
        self._write.restype = ctypes.c_ssize_t

    def read(self, address: int, size: int) -> bytes:
        """Return the bytes at an address; fewer where there are fewer."""
        if not 0 <= address < HIGHEST:
            return b""
        given = ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_long(0)
        return os.pread(self._descriptor, max(0, self._write(self._descriptor, *given)), 0)

    def addresses_at(self, address: int) -> Iterator[int]:
        """Yield what may be addresses in a structure of the driver's."""
        data = self.read(address, STRUCTURE.size)
        yield from STRUCTURE.unpack(data) if len(data) == STRUCTURE.size else ()

    def image_at(self, address: int) -> bytes:
        """Return the image at an address; empty where it is not whole."""
        data = self.read(address, HEADER.size)
        if len(data) != HEADER.size or not data.startswith(MAGIC):
            return b""
        header = HEADER.unpack(data)
        start, size, number = header[6], header[11], header[12]
        if header[2] != MACHINE or size != SECTION.size or start >= MOST_BYTES:
            return b""
        table = self.read(address + start, size * number)
        if len(table) != size * number:
            return b""
        ends = [at + length for _, kind, _, _, at, length, *_ in SECTION.iter_unpack(table) if kind != NO_BITS]
        end = max(*ends, start + len(table), header[5] + header[9] * header[10])
        image = self.read(address, end) if end < MOST_BYTES else b""
        return image if len(image) == end else b""
