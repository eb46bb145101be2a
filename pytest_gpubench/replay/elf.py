"""Read the file of an image: its code without line numbers, which change nothing, and the names of its variables."""

import hashlib
import struct
from collections.abc import Sequence
from itertools import accumulate

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
"""Of an ELF file of 64 bits."""
PLACES = slice(32, 48)
"""The part of the header that says where the others lie."""
FLAGS_STOP = 52
"""The end of the part of the header that says what machine the code is for."""
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
SYMBOLS = 2
"""The type of a section that holds them."""
VARIABLE = 1
"""The type of a symbol, in the lower half of its second field."""
MEMORY = (b".nv.global", b".nv.constant3")
"""The beginnings of names of sections that variables lie in."""
MAGIC = b"\x7fELF\x02\x01"
NO_BITS = 8
"""The type of a section that takes no room in the file."""
DEBUGGING = (b".debug", b".nv_debug", b".rel.debug", b".rela.debug", b".rel.nv_debug", b".rela.nv_debug", b".line")
"""The beginnings of names of sections that nothing runs."""


def code_of(image: bytes) -> str:
    """Return the SHA-256 of what an image runs: of all sections but those for debugging; of all where it is no ELF."""
    if not (found := sections(image)):
        return hashlib.sha256(image).hexdigest()
    digest = hashlib.sha256(image[: PLACES.start] + image[PLACES.stop : FLAGS_STOP])
    run = (
        (name, (kind, flags, size, link, info), contents)
        for name, (_, kind, flags, _, _, size, link, info, *_), contents in found
        if not name.startswith(DEBUGGING)
    )
    for name, header, contents in sorted(run):
        digest.update(name + struct.pack("<5Q", *header) + contents)
    return digest.hexdigest()


def variables_of(image: bytes) -> list[bytes]:
    """Return the names of the variables of an image; empty ones for memory without a name; none where it is no ELF."""
    found = sections(image)
    try:
        symbols = [
            (section, start, size, found[link][2][name : found[link][2].index(b"\0", name)])
            for _, (_, kind, *_, link, _, _, _), contents in found
            if kind == SYMBOLS
            for name, info, _, section, start, size in SYMBOL.iter_unpack(contents)
            if info & 15 == VARIABLE
        ]
    except (struct.error, IndexError, ValueError):
        return []
    variables = []
    for number, (name, header, _) in enumerate(found):
        if name.startswith(MEMORY):
            here = sorted(symbol[1:] for symbol in symbols if symbol[0] == number)
            variables += [each for *_, each in here] + _nameless(here, header[5], header[8])
    return variables


def _nameless(variables: Sequence[tuple[int, int, bytes]], size: int, alignment: int) -> list[bytes]:
    """Return an empty name for each stretch of a section that no variable covers, and that is too long for padding."""
    starts = [*(start for start, _, _ in variables), size]
    stops = accumulate((start + length for start, length, _ in variables), max, initial=0)
    return [
        b"" for start, stop in zip(starts, stops, strict=True) if start - stop >= (max(alignment, 1) if stop else 1)
    ]


def sections(image: bytes) -> list[tuple[bytes, tuple[int, ...], bytes]]:
    """Return the name, the header and the contents of each section; none where it is no ELF file, or is cut off."""
    try:
        magic, *_, start, _, _, _, _, size, number, names = HEADER.unpack_from(image)
        if not magic.startswith(MAGIC) or size != SECTION.size or not number:
            return []
        found = [SECTION.unpack_from(image, start + at * size) for at in range(number)]
        if sum(each[5] for each in found if each[1] != NO_BITS) > len(image):
            return []  # they overlap: a few megabytes would be hashed for minutes
        texts = _contents(image, found[names])
        return [(texts[each[0] : texts.index(b"\0", each[0])], each, _contents(image, each)) for each in found]
    except (struct.error, IndexError, ValueError):
        return []


def _contents(image: bytes, section: tuple[int, ...]) -> bytes:
    kind, start, size = section[1], section[4], section[5]
    if kind == NO_BITS:
        return b""
    if len(contents := image[start : start + size]) != size:
        raise ValueError("the file is cut off")
    return contents
