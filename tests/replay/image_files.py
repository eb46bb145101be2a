"""ELF files as images of modules are, made of sections."""

from collections.abc import Mapping

from pytest_gpubench.replay.elf import HEADER, SECTION, SYMBOL

BYTES = 4
"""Of each variable."""


def image_of(sections: Mapping[str, bytes], flags: int = 6, kind: int = 1, link: int = 0, alignment: int = 1) -> bytes:
    """Return an ELF file with these sections; flags, kind, link: of the first."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    start, bodies, headers = HEADER.size, b"", []
    for number, (name, body) in enumerate({**sections, ".shstrtab": names}.items()):
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        first = (kind, flags, link) if not number else (1, 0, 0)
        headers.append(SECTION.pack(at, *first[:2], 0, start, len(body), first[2], 0, alignment, 0))
        bodies, start = bodies + body, start + len(body)
    header = (b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, start, 0, HEADER.size, 0, 0, SECTION.size, len(headers))
    return HEADER.pack(*header, len(headers) - 1) + bodies + b"".join(headers)


def image_with(
    symbols: Mapping[bytes, int],
    section: int = 2,
    memory: str = ".nv.global.init",
    unnamed: int = 0,
    alignment: int = 1,
) -> bytes:
    """Return an ELF file with these symbols, each with its type, one behind the other in memory.

    section: 0 where they are defined elsewhere. unnamed: bytes of memory without a symbol after the first.
    """
    names = b"\0" + b"".join(name + b"\0" for name in symbols)
    starts = [0, *range(BYTES + unnamed, len(symbols) * BYTES + unnamed, BYTES)]
    entries = [
        SYMBOL.pack(names.index(name), info, 0, section, start, BYTES)
        for (name, info), start in zip(symbols.items(), starts, strict=True)
    ]
    contents = {".symtab": b"".join(entries), ".strtab": names, memory: bytes(len(symbols) * BYTES + unnamed)}
    return image_of(contents, kind=2, link=1, alignment=alignment)
