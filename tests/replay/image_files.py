"""ELF files as images of modules are, made of sections."""

from collections.abc import Mapping

from pytest_gpubench.replay.elf import HEADER, SECTION, SYMBOL


def image_of(sections: Mapping[str, bytes], flags: int = 6, kind: int = 1, link: int = 0) -> bytes:
    """Return an ELF file with these sections; flags, kind, link: of the first."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    start, bodies, headers = HEADER.size, b"", []
    for number, (name, body) in enumerate({**sections, ".shstrtab": names}.items()):
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(
            SECTION.pack(
                at, *((kind, flags) if not number else (1, 0)), 0, start, len(body), 0 if number else link, 0, 1, 0
            )
        )
        bodies, start = bodies + body, start + len(body)
    header = (b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, start, 0, HEADER.size, 0, 0, SECTION.size, len(headers))
    return HEADER.pack(*header, len(headers) - 1) + bodies + b"".join(headers)


def image_with(symbols: Mapping[bytes, int], section: int = 1) -> bytes:
    """Return an ELF file with these symbols, each with its type; section: 0 where they are defined elsewhere."""
    names = b"\0" + b"".join(name + b"\0" for name in symbols)
    entries = [SYMBOL.pack(names.index(name), info, 0, section, 0, 4) for name, info in symbols.items()]
    return image_of({".symtab": b"".join(entries), ".strtab": names}, kind=2, link=1)
