"""Read the file of an image: its code without line numbers, which change nothing, and the names of its variables."""

import hashlib
import struct
from collections.abc import Iterator

__tracebackhide__ = True

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
MAGIC = b"\x7fELF\x02\x01"
NO_BITS = 8
"""The type of a section that takes no room in the file."""
DEBUGGING = (b".debug", b".nv_debug", b".rel.debug", b".rela.debug", b".rel.nv_debug", b".rela.nv_debug", b".line")
"""The beginnings of names of sections that nothing runs."""


def code_of(image: bytes) -> str:
    """Return the SHA-256 of what an image runs: of all sections but those for debugging; of all where it is no ELF."""
    try:
        found = list(sections(image))
    except (struct.error, IndexError, ValueError):
        return hashlib.sha256(image).hexdigest()
    digest = hashlib.sha256(image[: PLACES.start] + image[PLACES.stop : FLAGS_STOP])
    for name, header, contents in sorted(found):
        if not name.startswith(DEBUGGING):
            digest.update(name + struct.pack("<5Q", *header, len(contents)) + contents)
    return digest.hexdigest()


def variables_of(image: bytes) -> list[bytes]:
    """Return the names of the variables of an image; none where it is no ELF file."""
    try:
        found = list(sections(image))
        return [
            found[link][2][name : found[link][2].index(b"\0", name)]
            for _, (kind, _, link, _), contents in found
            if kind == SYMBOLS
            for name, info, _, section, *_ in SYMBOL.iter_unpack(contents)
            if info & 15 == VARIABLE and section
        ]
    except (struct.error, IndexError, ValueError):
        return []


def sections(image: bytes) -> Iterator[tuple[bytes, tuple[int, ...], bytes]]:
    """Yield the name, what the header says (type, flags, link, info) and the contents of each section.

    Raises ValueError, struct.error or IndexError for what is no ELF file, or is cut off.
    """
    magic, *_, start, _, _, _, _, size, number, names = HEADER.unpack_from(image)
    if not magic.startswith(MAGIC) or size != SECTION.size or not number:
        raise ValueError("this is no ELF file of 64 bits")
    found = [SECTION.unpack_from(image, start + at * size) for at in range(number)]
    if sum(each[5] for each in found if each[1] != NO_BITS) > len(image):
        raise ValueError("its sections overlap")  # a few megabytes would be hashed for minutes
    texts = _contents(image, found[names])
    for each in found:
        name = texts[each[0] : texts.index(b"\0", each[0])]
        yield name, (each[1], each[2], each[6], each[7]), _contents(image, each)


def _contents(image: bytes, section: tuple[int, ...]) -> bytes:
    kind, start, size = section[1], section[4], section[5]
    if kind == NO_BITS:
        return b""
    if len(contents := image[start : start + size]) != size:
        raise ValueError("the file is cut off")
    return contents
