"""Images of libraries, to which the handle of a module leads."""

import ctypes
import mmap
import struct
import tempfile
from collections.abc import Callable, Iterator

import pytest

from pytest_gpubench.judge.isolation import hide_memory
from pytest_gpubench.replay import loaded_images
from pytest_gpubench.replay.elf import HEADER, NO_BITS, code_of
from pytest_gpubench.replay.loaded_images import LoadedImages, ProcessMemory
from tests.replay.image_files import image_of

FUNCTION, SYMBOL = 7, "kernel"
Kept = Callable[[bytes], int]
"""Puts bytes into memory; returns their address."""


@pytest.fixture
def kept() -> Kept:
    held: list[ctypes.Array[ctypes.c_char]] = []

    def keep(data: bytes) -> int:
        held.append(ctypes.create_string_buffer(data, len(data) + 256))
        return ctypes.addressof(held[-1])

    return keep


@pytest.fixture
def memory() -> Iterator[ProcessMemory]:
    with tempfile.TemporaryFile() as file:
        yield ProcessMemory(file.fileno())


def cuda_image(code: bytes = b"code", machine: int = 190, line: bytes = b"1") -> bytes:
    """Return an image with the kernel."""
    image = bytearray(image_of({f".text.{SYMBOL}": code, ".debug_line": line}))
    image[18] = machine
    return bytes(image)


def words(*values: int, at: int = 0) -> bytes:
    """Return a structure that has these numbers at a place and behind it."""
    return struct.pack(f"<{at + len(values)}Q", *at * [0], *values)


def module_of(kept: Kept, *images: bytes, step: int = 5, last: int = 3) -> int:
    """Return the handle of a module that leads to images, by the words at these places."""
    return kept(words(0, 1, 2**63, kept(words(*map(kept, images), at=last)), at=step - 3))


def found(module: int, symbol: str = SYMBOL) -> bytes | None:
    return LoadedImages(lambda function: module).image_of(FUNCTION, symbol)


@pytest.mark.parametrize(("step", "last", "leads"), [(3, 0, True), (31, 31, True), (32, 0, False), (3, 32, False)])
def test_a_module_leads_to_its_image_by_the_beginnings_of_structures(
    step: int, last: int, leads: bool, kept: Kept
) -> None:
    """Behind them is what other modules, and memory that was freed, lead to."""
    module = module_of(kept, cuda_image(), step=step, last=last)
    assert found(module) == (cuda_image() if leads else None)
    assert found(module, "kern") is None


@pytest.mark.parametrize(
    ("other", "is_found"),
    [(image_of({".text.other": b"more code"}), True), (cuda_image(b"other"), False), (cuda_image(line=b"2"), True)],
    ids=["another kernel", "other code of the symbol", "other lines"],
)
def test_one_code_of_the_kernel_is_its_image(other: bytes, is_found: bool, kept: Kept) -> None:
    image = found(module_of(kept, other, cuda_image()))
    assert (image is not None and code_of(image) == code_of(cuda_image())) is is_found


def test_a_module_is_followed_once(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    images = LoadedImages({FUNCTION: module_of(kept, cuda_image()), 8: module_of(kept)}.__getitem__)
    assert images.image_of(FUNCTION, SYMBOL) == cuda_image()
    monkeypatch.setattr(loaded_images, "images_from", lambda module: [])
    assert images.image_of(FUNCTION, SYMBOL) == cuda_image()
    assert images.image_of(8, SYMBOL) is None


@pytest.mark.parametrize("broken", ["another machine", "cut section", "no names"])
def test_what_is_no_image_is_none(broken: str, kept: Kept) -> None:
    image = bytearray(cuda_image(machine=62 if broken == "another machine" else 190))
    if broken == "cut section":
        image[HEADER.size - 6 : HEADER.size - 4] = (63).to_bytes(2, "little")
    if broken == "no names":
        image[HEADER.size - 2 : HEADER.size] = (99).to_bytes(2, "little")
    assert found(module_of(kept, bytes(image))) is None


@pytest.mark.parametrize(("missing", "is_whole"), [(0, True), (1, False)])
def test_an_image_whose_end_cannot_be_read_is_none(
    missing: int, is_whole: bool, kept: Kept, memory: ProcessMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = bytearray(cuda_image())
    struct.pack_into("<Q", image, 32, len(image))  # program headers, which are the last in what the driver holds
    struct.pack_into("<HH", image, 54, 56, 1)
    whole = bytes(image) + bytes(56)
    where, read = kept(whole), ProcessMemory.read
    stop = where + len(whole) - missing
    monkeypatch.setattr(ProcessMemory, "read", lambda self, at, size: read(self, at, min(size, stop - at)))
    assert memory.image_at(where) == (whole if is_whole else b"")


def test_a_section_without_contents_has_no_end(kept: Kept, memory: ProcessMemory) -> None:
    image = bytearray(image_of({".nv.shared.k": b"", f".text.{SYMBOL}": b"code"}, kind=NO_BITS))
    struct.pack_into("<Q", image, HEADER.unpack_from(image)[6] + 32, 2**20)  # the size of the first
    assert memory.image_at(kept(bytes(image))) == image


@pytest.mark.parametrize(("size", "is_read"), [(2**27, True), (2**28, False)])
def test_so_much_memory_is_no_image(
    size: int, is_read: bool, kept: Kept, memory: ProcessMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header that says so is of none: it is not read."""
    image, read, sizes = bytearray(cuda_image()), ProcessMemory.read, list[int]()
    struct.pack_into("<Q", image, HEADER.unpack_from(image)[6] + 32, size)  # that of the first section

    def noting(self: ProcessMemory, address: int, asked: int) -> bytes:
        sizes.append(asked)
        return read(self, address, asked)

    monkeypatch.setattr(ProcessMemory, "read", noting)
    found = memory.image_at(kept(bytes(image)))
    assert (max(sizes) > size) is is_read
    assert is_read or found == b"", "what lies behind it is no part of it"


def test_memory_that_is_not_there_is_empty(memory: ProcessMemory) -> None:
    assert memory.read(0, 8) == b""
    assert memory.read(2**70, 8) == b""
    assert memory.image_at(0) == b""
    assert list(memory.addresses_at(0)) == []


def test_memory_is_read_up_to_its_end(memory: ProcessMemory) -> None:
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    pages[mmap.PAGESIZE - 4 : mmap.PAGESIZE] = b"last"
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    assert memory.read(address + mmap.PAGESIZE - 4, 9) == b"last"


def test_a_process_that_hides_its_memory_can_read_it(memory: ProcessMemory, kept: Kept) -> None:
    """As the referee does; then no user but root may open /proc/self/mem."""
    hide_memory(True)
    try:
        assert memory.read(kept(b"seen"), 4) == b"seen"
    finally:
        hide_memory(False)


def test_where_memory_cannot_be_read_there_is_no_image(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of(kept, cuda_image())
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert found(module) is None
