"""Images of libraries, found in this process's memory, where tests put some."""

import ctypes
import os
import struct
from collections.abc import Callable

import pytest

from pytest_gpubench.replay import loaded_images
from pytest_gpubench.replay.elf import HEADER
from pytest_gpubench.replay.loaded_images import CHUNK_BYTES, LoadedImages, ProcessMemory, mappings, without
from tests.replay.test_elf import image_of

FUNCTION, MODULE = 7, 77
Kept = Callable[[bytes], int]
"""Puts an image into memory; returns its address."""


@pytest.fixture
def symbol() -> str:
    """Return the symbol of a kernel that no other test has: what it left in memory may be found."""
    return f"kernel_{os.urandom(8).hex()}"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(loaded_images, "_known", {})
    held: list[ctypes.Array[ctypes.c_uint64]] = []

    def keep(image: bytes) -> int:
        held.append((ctypes.c_uint64 * (len(image) // 8 + 1))())
        ctypes.memmove(held[-1], image, len(image))
        return ctypes.addressof(held[-1])

    return keep


@pytest.fixture
def alone(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Return what puts images into memory that has no other ones: tests leave copies there."""
    places: list[int] = []
    monkeypatch.setattr(ProcessMemory, "search", lambda self: iter(places))

    def keep(image: bytes) -> int:
        places.append(kept(image))
        return places[-1]

    return keep


def cuda_image(
    symbol: str, code: bytes = b"code", version: int = 0x41, machine: int = 190, line: bytes = b"1"
) -> bytes:
    """Return an image."""
    image = bytearray(image_of({f".text.{symbol}": code, ".debug_line": line}))
    image[6:8], image[18] = bytes([1, version]), machine
    return bytes(image)


def found(symbol: str, module: int = MODULE) -> bytes | None:
    return LoadedImages(lambda function: module).image_of(FUNCTION, symbol)


@pytest.mark.parametrize("version", [0x33, 0x41])
def test_an_image_in_memory_is_found_by_its_kernel(version: int, symbol: str, kept: Kept) -> None:
    kept(cuda_image(symbol, version=version))
    assert found(symbol) == cuda_image(symbol, version=version)
    assert found(symbol[:-1]) is None


def test_copies_are_one_image(symbol: str, alone: Kept) -> None:
    """The driver holds two; lines are no code."""
    alone(cuda_image(symbol))
    alone(cuda_image(symbol))
    alone(cuda_image(symbol, line=b"2"))
    assert found(symbol) is not None


def test_different_code_of_one_symbol_is_no_image(symbol: str, alone: Kept) -> None:
    """As of a saved call that was read, and is another version."""
    alone(cuda_image(symbol))
    alone(cuda_image(symbol, b"other"))
    assert found(symbol) is None


def test_a_module_keeps_its_image(symbol: str, alone: Kept) -> None:
    """What comes later, as by reading a saved call, is not asked about; another module's kernel is."""
    image = cuda_image(symbol)
    alone(image)
    assert found(symbol) == image
    alone(cuda_image(symbol, b"other"))
    assert found(symbol) == image
    assert found(symbol, module=78) is None


def test_an_image_that_is_gone_is_looked_for_again(symbol: str, alone: Kept) -> None:
    where = alone(cuda_image(symbol))
    assert found(symbol) == cuda_image(symbol)
    alone(cuda_image(symbol))
    ctypes.memset(where, 0, HEADER.size)
    assert found(symbol) == cuda_image(symbol)


def test_another_image_in_its_place_is_not_taken_for_it(symbol: str, alone: Kept) -> None:
    where = alone(cuda_image(symbol, b"first version"))
    assert found(symbol) == cuda_image(symbol, b"first version")
    alone(cuda_image(symbol, b"first version"))
    other = cuda_image(symbol, b"other version")
    ctypes.memmove(where, other, len(other))
    assert found(symbol) is None


@pytest.mark.parametrize(("missing", "is_found"), [(0, True), (1, False)])
def test_an_image_whose_end_cannot_be_read_is_none(
    missing: int, is_found: bool, symbol: str, alone: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = bytearray(cuda_image(symbol))
    struct.pack_into("<Q", image, 32, len(image))  # program headers, which are the last in what the driver holds
    struct.pack_into("<HH", image, 54, 56, 1)
    whole = bytes(image) + bytes(56)
    where, read = alone(whole), ProcessMemory.read
    stop = where + len(whole) - missing
    monkeypatch.setattr(ProcessMemory, "read", lambda self, at, size: read(self, at, min(size, stop - at)))
    assert ProcessMemory().image_at(where) == (whole if is_found else b"")


@pytest.mark.parametrize("broken", ["another machine", "cut section", "no names"])
def test_what_is_no_image_is_none(broken: str, symbol: str, alone: Kept) -> None:
    image = bytearray(cuda_image(symbol, machine=62 if broken == "another machine" else 190))
    if broken == "cut section":
        image[HEADER.size - 6 : HEADER.size - 4] = (63).to_bytes(2, "little")
    if broken == "no names":
        image[HEADER.size - 2 :] = (99).to_bytes(2, "little") + image[HEADER.size :]
    alone(bytes(image))
    assert found(symbol) is None


def test_memory_is_searched_over_all_of_its_chunks(kept: Kept, symbol: str) -> None:
    whole = kept(bytes(CHUNK_BYTES + 2**12))
    places = [whole, whole + 2**12, whole + CHUNK_BYTES]
    for each in places:
        ctypes.memmove(each, cuda_image(symbol), HEADER.size)
    assert {*places} <= {*ProcessMemory().search()}


def test_memory_that_is_not_there_is_empty() -> None:
    assert ProcessMemory().read(0, 8) == b""
    assert ProcessMemory().read(2**70, 8) == b""
    assert ProcessMemory().image_at(0) == b""


def test_mappings_are_readable_and_of_no_file(kept: Kept) -> None:
    where = kept(bytes(100))
    assert any(start <= where < stop for start, stop in mappings())
    code = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value or 0
    assert not any(start <= code < stop for start, stop in mappings())


@pytest.mark.parametrize(
    ("left_out", "left"),
    [
        ((0, 10), [(10, 20), (30, 40)]),
        ((12, 15), [(10, 12), (15, 20), (30, 40)]),
        ((10, 20), [(30, 40)]),
        ((15, 35), [(10, 15), (35, 40)]),
        ((50, 60), [(10, 20), (30, 40)]),
    ],
)
def test_ranges_without_one(left_out: tuple[int, int], left: list[tuple[int, int]]) -> None:
    assert list(without([(10, 20), (30, 40)], left_out)) == left
