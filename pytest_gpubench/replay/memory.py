"""The memory of a graph: which of its values are addresses, in which region each lies, and how they are moved."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from pytest_gpubench.replay.call_data import Graph, Node, Pointer, Region, RegionKind
from pytest_gpubench.replay.reader import NotReplayable

ALIGNMENTS = {"own": 2**21, "input": 2**9, "other": 2**9}
"""torch takes memory from the driver, and hands it out, at multiples of these."""
LOWEST, HIGHEST = 2**16, 2**57
"""Addresses that the driver gives lie between them."""
POINTER_BYTES = 8
AMBIGUOUS = "it uses memory that is no argument of it, or a number of its kernels' looks like an address of such memory"


@dataclass(frozen=True)
class Placed:
    """A region where it lies in this process."""

    region: Region
    start: int

    @property
    def stop(self) -> int:
        """The address behind it."""
        return self.start + self.region.bytes


MemoryAt = Callable[[int], Placed | None]
"""Return what lies at an address in no known region; None for a number that is none."""


def placed(kind: RegionKind, start: int, size: int, names: Sequence[str] = ()) -> Placed:
    """Return a region of so many bytes at an address."""
    return Placed(Region(kind=kind, bytes=size, misalignment=start % ALIGNMENTS[kind], names=tuple(names)), start)


@dataclass
class Locating:
    """Find the addresses in a graph's values; regions that are met grow the list."""

    regions: list[Placed]
    memory_at: MemoryAt
    outputs_decide: bool = False
    """True: a word of a structure that may be a number or an address is a number; False: NotReplayable is raised."""
    used: list[Placed] = field(default_factory=list)
    """The regions that an address leads to, in the order of their first use."""
    _moved: set[Placed] | None = None
    """The regions that lie elsewhere in another capture; None where there is none."""

    def locate(self, graph: Graph, again: Graph | None = None) -> Graph:
        """Return a graph with its pointers, and 0 in their places.

        again: the same call, captured with its memory elsewhere; None where all that looks like an address is one.
        Raises NotReplayable where it does other work, or where an address cannot be told from a number.
        """
        if again is not None:
            if [*map(_form, graph.all_nodes())] != [*map(_form, again.all_nodes())]:
                raise NotReplayable("it does other work each time that it is captured")
            pairs = zip(graph.all_nodes(), again.all_nodes(), strict=True)
            self._moved = {found for pair in pairs for *_, found, moves in self._candidates(*pair) if moves}
        return self._located(graph, again or graph)

    def place_of(self, address: int) -> tuple[int, int]:
        """Return the number of the region at an address, and the distance from its beginning."""
        found = self._region_at(address)
        assert found is not None, "it is memory"
        return self._number(found), address - found.start

    def _located(self, graph: Graph, again: Graph) -> Graph:
        nodes = map(self._located_node, graph.nodes, again.nodes)
        return msgspec.structs.replace(graph, nodes=tuple(nodes))

    def _located_node(self, node: Node, other: Node) -> Node:
        child = node.child and other.child and self._located(node.child, other.child)
        pointers = tuple(
            Pointer(number, offset, self._number(found), address - found.start)
            for number, offset, address, found, moves in self._candidates(node, other)
            if not is_structure(node, number) or self._is_address(address, found, moves)
        )
        blank = with_addresses(node.values, pointers, None)
        return msgspec.structs.replace(node, values=blank, pointers=pointers, child=child)

    def _candidates(self, node: Node, other: Node) -> Iterator[tuple[int, int, int, Placed, bool]]:
        """Yield what looks like an address: its value, offset and number, where it leads, and whether it moves."""
        for (number, offset, address), (*_, again) in zip(_words_of(node), _words_of(other), strict=True):
            try:
                found = self._region_at(address)
            except NotReplayable:
                if not self.outputs_decide or not is_structure(node, number):
                    raise
                continue
            if found is not None:
                yield number, offset, address, found, again != address

    def _is_address(self, address: int, found: Placed, moves: bool) -> bool:
        """Tell whether a word of a structure is an address: that moves with its memory.

        Libraries leave halves of old addresses in the padding of structures: with the number beside it, such a half
        looks like an address. What a call allocates is always elsewhere, an input where any of its words moves, and
        other memory never: there only a beginning is no number.
        """
        if self._moved is None or (found.region.kind == "input" and found not in self._moved):
            return True
        if found.region.kind != "other":
            return moves
        if not moves and address != found.start and not self.outputs_decide:
            raise NotReplayable(AMBIGUOUS)
        return not moves and address == found.start

    def _region_at(self, address: int) -> Placed | None:
        if not LOWEST < address < HIGHEST:
            return None
        known = next((each for each in self.regions if each.start <= address < each.stop), None)
        if known is None and (known := self.memory_at(address)) is not None:
            self.regions.append(known)
        return known

    def _number(self, found: Placed) -> int:
        if found not in self.used:
            self.used.append(found)
        return self.used.index(found)


def is_structure(node: Node, number: int) -> bool:
    """Tell whether a parameter of a kernel may hold several numbers, and so none of the driver's own structures."""
    return node.kernel is not None and len(node.values[number]) > POINTER_BYTES


def _form(node: Node) -> tuple[object, ...]:
    """Return what does not depend on where memory lies."""
    return node.kind, node.kernel, tuple(map(len, node.values))


def _words_of(node: Node) -> Iterator[tuple[int, int, int]]:
    """Yield the number of the value, the offset in it and the number of each word."""
    for number, value in enumerate(node.values):
        for offset in range(0, len(value) - POINTER_BYTES + 1, POINTER_BYTES):
            yield number, offset, int.from_bytes(value[offset : offset + POINTER_BYTES], "little")


def with_addresses(
    values: Sequence[bytes], pointers: Sequence[Pointer], starts: Sequence[int] | None
) -> tuple[bytes, ...]:
    """Return values with their addresses, where regions start there; with 0 in their places where starts is None."""
    found = [bytearray(each) for each in values]
    for each in pointers:
        address = 0 if starts is None else starts[each.region] + each.distance
        found[each.value][each.offset : each.offset + POINTER_BYTES] = address.to_bytes(POINTER_BYTES, "little")
    return tuple(map(bytes, found))
