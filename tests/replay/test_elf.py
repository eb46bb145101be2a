"""The code of an image: line numbers are none of it, and everything else is."""

import hashlib
import struct

import pytest

from pytest_gpubench.replay.elf import HEADER, SECTION, SYMBOL, code_of, variables_of
from tests.replay.image_files import image_of, image_with

TEXT = {".text.k": b"code", ".nv.info": b"info", ".debug_line": b"line 3", ".nv_debug_ptx_txt": b"ptx"}


@pytest.mark.parametrize("name", [".debug_line", ".nv_debug_ptx_txt"])
def test_what_nothing_runs_is_no_code(name: str) -> None:
    assert code_of(image_of(TEXT)) == code_of(image_of({**TEXT, name: b"longer than it was"}))
    assert image_of(TEXT) != image_of({**TEXT, name: b"longer than it was"})


def of_another_machine() -> bytes:
    """Return it with other flags, which name the architecture that it was compiled for."""
    image = bytearray(image_of(TEXT))
    image[48] ^= 1
    return bytes(image)


@pytest.mark.parametrize(
    "changed",
    [
        image_of({**TEXT, ".text.k": b"cod!"}),
        image_of({**TEXT, ".nv.info": b"inf!"}),
        image_of({**TEXT, ".nv.constant0.k": b""}),
        image_of(TEXT, flags=7),
        image_of(TEXT, kind=8),
        of_another_machine(),
    ],
    ids=["text", "info", "a section more", "flags", "type", "machine"],
)
def test_all_else_is_code(changed: bytes) -> None:
    assert code_of(changed) != code_of(image_of(TEXT))


OF_32_BITS = image_of(TEXT).replace(b"\x7fELF\x02", b"\x7fELF\x01", 1)


@pytest.mark.parametrize("image", [OF_32_BITS, *(image_of(TEXT)[:end] for end in (0, 10, HEADER.size, 69, -1))])
def test_of_what_is_no_elf_all_is_code(image: bytes) -> None:
    assert code_of(image) != code_of(image + b"\0")


@pytest.mark.parametrize(("more", "is_elf"), [(0, True), (1, False)])
def test_sections_that_overlap_are_no_sections(more: int, is_elf: bool) -> None:
    """Of 65,535 sections each could be all of a hostile image, which would take minutes to read."""
    image = bytearray(image_of({".text.k": b"x" * 1000, ".text.j": b"y" * 1000}))
    headers = HEADER.unpack_from(image)[6]
    unused = len(image) - (headers - HEADER.size)
    struct.pack_into("<Q", image, headers + 32, 1000 + unused + more)  # the size of the first
    assert (code_of(bytes(image)) != hashlib.sha256(image).hexdigest()) is is_elf


def test_variables_are_symbols_of_one_type() -> None:
    """0x11 is a global one; 2 and 0x12 are functions, which lie elsewhere."""
    image = image_with({b"local": 1, b"global": 0x11})
    assert variables_of(image) == [b"local", b"global"]
    assert variables_of(image_with({b"kernel": 0x12, b"function": 2}, section=1, memory=".text.k")) == []
    assert variables_of(image_of(TEXT)) == []
    for length in (0, HEADER.size + 5, len(image) - 1):
        assert variables_of(image[:length]) == []


@pytest.mark.parametrize(
    ("memory", "found"),
    [(".nv.global", True), (".nv.constant3", True), (".nv.constant0.k", False), (".nv.shared.reserved.0", False)],
)
def test_variables_lie_in_global_and_constant_memory(memory: str, found: bool) -> None:
    assert variables_of(image_with({b"x": 1}, memory=memory)) == [b"x"] * found


@pytest.mark.parametrize(("symbols", "after"), [({b"x": 1}, []), ({b"x": 1, b"y": 1}, [b"y"])])
@pytest.mark.parametrize(("unnamed", "nameless"), [(7, []), (8, [b""])])
def test_more_memory_than_padding_is_a_variable_without_a_name(
    symbols: dict[bytes, int], after: list[bytes], unnamed: int, nameless: list[bytes]
) -> None:
    assert variables_of(image_with(symbols, unnamed=unnamed, alignment=8)) == [b"x", *after, *nameless]


def test_memory_without_symbols_is_a_variable_without_a_name() -> None:
    assert variables_of(image_of({".nv.global": b"1234"}, alignment=16)) == [b""]
    assert variables_of(image_of({".nv.global": b"1234"})) == [b""]
    assert (HEADER.size, SECTION.size, SYMBOL.size) == (64, 64, 24), "as in the files of others"
