"""Images of modules that libraries have loaded: the driver holds each of them, unpacked, in this process's memory.

It returns none of them. CUPTI would, to its one subscriber, which is the profiler.
"""

import hashlib
import mmap
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import addressof, c_char
from pathlib import Path

import torch

from pytest_gpubench.replay.elf import HEADER, MAGIC, NO_BITS, SECTION, code_of

__tracebackhide__ = True

Range = tuple[int, int]
MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r\S* \S+ \S+ \S+ *(?:\[(?:heap|anon:[^]]*)\])?$", re.MULTILINE)
"""A line of `/proc/self/maps` on memory that can be read, and is of no file."""
CHUNK_BYTES = 2**26
MACHINE = 190
"""CUDA, in the header of an ELF file."""
VERSIONS = (0x33, 0x41)
"""The bytes after the magic number in images of older toolchains, and from CUDA 13 on."""
MOST_BYTES = 2**28
"""An image has less; a header that says otherwise is of none."""

_known: dict[int, tuple[int, bytes]] = {}
"""The address of a module's image, and its SHA-256, by the driver's handle of the module."""


class LoadedImages:
    """The images in this process's memory, which is searched for the first kernel whose module is not known."""

    def __init__(self, module_of: Callable[[int], int]) -> None:
        self._module_of = module_of
        self._memory = ProcessMemory()
        self._found: list[tuple[int, bytes]] | None = None
        """The address of each image, and the names of its sections."""

    def image_of(self, function: int, symbol: str) -> bytes | None:
        """Return the image of a function's module; None where none, or different ones, have a kernel of its symbol.

        Those of saved calls that were read before are among them.
        """
        module, name = self._module_of(function), b"\0.text." + symbol.encode(errors="backslashreplace") + b"\0"
        address, digest = _known.get(module, (0, b""))
        if name in self._memory.names_at(address):
            image = self._memory.image_at(address)
            if hashlib.sha256(image).digest() == digest:
                return image
        if self._found is None:
            self._found = [(each, self._memory.names_at(each)) for each in self._memory.search()]
        images = {each: self._memory.image_at(each) for each, names in self._found if name in names}
        whole = {each: image for each, image in images.items() if image}
        if len(set(map(code_of, whole.values()))) != 1:
            return None
        address, image = next(iter(whole.items()))
        _known[module] = address, hashlib.sha256(image).digest()
        return image


class ProcessMemory:
    """This process's memory, read so that what another thread has unmapped is missing, and crashes nothing."""

    def read(self, address: int, size: int) -> bytes:
        """Return the bytes at an address; fewer where there are fewer."""
        with suppress(OSError, OverflowError), open("/proc/self/mem", "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, address)
        return b""

    def search(self) -> Iterator[int]:
        """Yield the addresses of headers of images in memory that is of no file."""
        buffer = mmap.mmap(-1, CHUNK_BYTES)
        words, own = torch.frombuffer(buffer, dtype=torch.int64), addressof(c_char.from_buffer(buffer))
        wanted = [int.from_bytes(MAGIC + bytes([1, version]), "little") for version in VERSIONS]
        with open("/proc/self/mem", "rb", buffering=0) as file:
            for start, stop in without(mappings(), (own, own + CHUNK_BYTES)):
                for address in range(start, stop, CHUNK_BYTES):
                    try:
                        size = os.preadv(file.fileno(), [memoryview(buffer)[: stop - address]], address)
                    except OSError:  # of a device, or gone
                        break
                    part = words[: size // words.itemsize]
                    places = ((part == wanted[0]) | (part == wanted[1])).nonzero().flatten().tolist()
                    yield from (address + words.itemsize * place for place in places)

    def image_at(self, address: int) -> bytes:
        """Return the image at an address; empty where it is not whole."""
        header, sections = self._headers(address)
        ends = [start + size for _, kind, _, _, start, size, *_ in sections if kind != NO_BITS]
        tables = [header[5] + header[9] * header[10], header[6] + header[11] * header[12]] if header else []
        end = max([*ends, *tables], default=MOST_BYTES)
        image = self.read(address, end) if sections and end < MOST_BYTES else b""
        return image if len(image) == end else b""

    def names_at(self, address: int) -> bytes:
        """Return the names of the sections of the image at an address; empty where there is none."""
        header, sections = self._headers(address)
        if not sections or header[13] >= len(sections):
            return b""
        start, size = sections[header[13]][4:6]
        return self.read(address + start, size) if size < MOST_BYTES else b""

    def _headers(self, address: int) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        """Return the fields of an image's header and of those of its sections; none where there is no image."""
        data = self.read(address, HEADER.size)
        if len(data) != HEADER.size or not data.startswith(MAGIC):
            return (), []
        header = HEADER.unpack(data)
        machine, start, size, number = header[2], header[6], header[11], header[12]
        if machine != MACHINE or size != SECTION.size or start >= MOST_BYTES:
            return (), []
        table = self.read(address + start, size * number)
        return header, list(SECTION.iter_unpack(table)) if len(table) == size * number else []


def mappings() -> list[Range]:
    """Return the memory of this process that can be read and is of no file."""
    lines = Path("/proc/self/maps").read_text()
    return [(int(start, 16), int(stop, 16)) for start, stop in MAPPING.findall(lines)]


def without(ranges: list[Range], left_out: Range) -> Iterator[Range]:
    """Yield what remains of ranges without one."""
    for start, stop in ranges:
        for one, other in ((start, min(stop, left_out[0])), (max(start, left_out[1]), stop)):
            if one < other:
                yield one, other
