"""The memory of a graph: which of its values are addresses, in which region each lies, and how they are moved."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from pytest_gpubench.replay.call_data import Graph, Node, Pointer, Region

ALIGNMENTS = {"own": 2**21, "input": 2**9, "other": 2**9}
"""torch takes memory from the driver, and hands it out, at multiples of these."""
LOWEST, HIGHEST = 2**16, 2**57
"""Addresses that the driver gives lie between them."""
POINTER_BYTES = 8


@dataclass(frozen=True)
class Placed:
    """A region where it lies in this process."""

    region: Region
    start: int

    @property
    def stop(self) -> int:
        """The address behind it."""
        return self.start + self.region.bytes


class Addresses(Protocol):
    """The finder of memory for addresses that lie in no known region."""

    def memory_at(self, address: int) -> Placed | None:
        """Return what lies at an address; None for a number that is none. Raises NotReplayable for the host's."""


def placed(kind: str, start: int, size: int, names: Sequence[str] = ()) -> Placed:
    """Return a region of so many bytes at an address."""
    return Placed(
        msgspec.convert(
            {"kind": kind, "bytes": size, "misalignment": start % ALIGNMENTS[kind], "names": tuple(names)}, Region
        ),
        start,
    )


@dataclass
class Locating:
    """Find the addresses in a graph's values; regions that are met grow the list."""

    regions: list[Placed]
    addresses: Addresses
    used: list[Placed] = field(default_factory=list)
    """The regions that an address leads to, in the order of their first use."""

    def locate(self, graph: Graph) -> Graph:
        """Return a graph with its pointers, and 0 in their places."""
        return msgspec.structs.replace(graph, nodes=tuple(map(self._located, graph.nodes)))

    def place_of(self, address: int) -> tuple[int, int]:
        """Return the number of the region at an address, and the distance from its beginning."""
        found = self._region_at(address)
        assert found is not None, "it is memory"
        return self._number(found), address - found.start

    def _located(self, node: Node) -> Node:
        child = node.child and self.locate(node.child)
        pointers = tuple(self._pointers(node.values))
        blank = with_addresses(node.values, pointers, None)
        return msgspec.structs.replace(node, values=blank, pointers=pointers, child=child)

    def _pointers(self, values: Sequence[bytes]) -> Iterator[Pointer]:
        for number, value in enumerate(values):
            for offset in range(0, len(value) - POINTER_BYTES + 1, POINTER_BYTES):
                address = int.from_bytes(value[offset : offset + POINTER_BYTES], "little")
                if LOWEST < address < HIGHEST and (found := self._region_at(address)) is not None:
                    yield Pointer(number, offset, self._number(found), address - found.start)

    def _region_at(self, address: int) -> Placed | None:
        known = next((each for each in self.regions if each.start <= address < each.stop), None)
        if known is None and (known := self.addresses.memory_at(address)) is not None:
            self.regions.append(known)
        return known

    def _number(self, found: Placed) -> int:
        if found not in self.used:
            self.used.append(found)
        return self.used.index(found)


def with_addresses(
    values: Sequence[bytes], pointers: Sequence[Pointer], starts: Sequence[int] | None
) -> tuple[bytes, ...]:
    """Return values with their addresses, where regions start there; with 0 in their places where starts is None."""
    found = [bytearray(each) for each in values]
    for each in pointers:
        address = 0 if starts is None else starts[each.region] + each.distance
        found[each.value][each.offset : each.offset + POINTER_BYTES] = address.to_bytes(POINTER_BYTES, "little")
    return tuple(map(bytes, found))
