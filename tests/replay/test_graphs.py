"""From a captured graph to data and back to a graph, by a driver that holds graphs."""

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from pytest_gpubench.replay.builder import GraphBuilder
from pytest_gpubench.replay.call_data import CallData, Graph, Kernel, Node, RegionKind
from pytest_gpubench.replay.driver import DriverError, KernelParams, LaunchAttribute, LaunchConfig
from pytest_gpubench.replay.memory import Locating, Placed, placed, with_addresses
from pytest_gpubench.replay.reader import NotReplayable
from pytest_gpubench.replay.structures import (
    DEVICE_MEMORY,
    REFUSED_ATTRIBUTES,
    MemcpyParams,
    MemsetParams,
)
from tests.replay.fake_graphs import NUMBERS, OF_STREAMS, FakeFunction, FakeGraphs, FakeNode

IMAGE, OTHER = b"image of mine", b"image of other"
NAMES = {"mine": "1" * 64, "other": "2" * 64}
IMAGES = {NAMES["mine"]: IMAGE, NAMES["other"]: OTHER}
PORTS, PROGRAMMATIC = bytes(8), b"\1\0\0\1\0\0\0\0"
INPUT, OWN = 0x7F0000000000, 0x7F1000000000


def word(number: int) -> bytes:
    return number.to_bytes(8, "little")


def memset_at(address: int) -> bytes:
    return bytes(MemsetParams(address, 0, 7, 4, 64, 1))


def memcpy_between(source: int, destination: int, kind: int = DEVICE_MEMORY) -> bytes:
    params = MemcpyParams(width_bytes=256, height=1, depth=1)
    params.source.device, params.source.memory_type = source, kind
    params.destination.device, params.destination.memory_type = destination, DEVICE_MEMORY
    return bytes(params)


def library() -> FakeGraphs:
    mine, other = FakeFunction("mine", (8, 8, 4), {8: 0}), FakeFunction("other", (24, 8))
    return FakeGraphs({IMAGE: [mine], OTHER: [other]})


def captured(cuda: FakeGraphs) -> int:
    """Return a graph with every kind of node, whose nodes were not added in the order of their edges."""
    mine, other = cuda.function("mine", attributes={8: 4096}), cuda.function("other", (24, 8))
    attributes = {4: b"\2\0\0\0\1\0\0\0\1", 2: b"\1"}
    struct = word(3) + word(OWN + 512) + word(0x7F0000000400)
    child = cuda.graph(FakeNode(0, (struct, word(5)), other, (9, 1, 1), by_buffer=True))
    nodes = [
        FakeNode(NUMBERS["empty"]),
        FakeNode(0, (word(INPUT), word(OWN + 8), b"\5\0\0\0"), mine, (7, 2, 1), (64, 1, 1), 4096, attributes),
        FakeNode(NUMBERS["memset"], (memset_at(OWN + 1024),)),
        FakeNode(NUMBERS["memcpy"], (memcpy_between(INPUT + 256, OWN),)),
        FakeNode(NUMBERS["child"], child=child),
    ]
    return cuda.graph(*nodes, edges=[(1, 0, PROGRAMMATIC), (2, 1, PORTS), (0, 3, PORTS), (3, 4, PORTS)])


def known() -> list[Placed]:
    return [placed("input", INPUT, 4096, ["args[0]"]), placed("own", OWN, 2**21)]


def other_at(address: int) -> Placed | None:
    """Return memory that a call uses beside its own."""
    return placed("other", 0x7F2000000000, 64) if 0x7F2000000000 <= address < 0x7F2000000040 else None


def read(cuda: FakeGraphs, graph: int, regions: list[Placed] | None = None) -> tuple[Graph, Locating]:
    locating = Locating(known() if regions is None else regions, other_at)
    found = GraphBuilder(cuda).read(graph, lambda function, symbol: NAMES.get(symbol, ""))
    return locating.locate(found), locating


def read_data(cuda: FakeGraphs, graph: int) -> tuple[CallData, list[int]]:
    """Return a call of a graph, and where its regions start."""
    found, locating = read(cuda, graph)
    regions = tuple(each.region for each in locating.used)
    data = CallData(label="f", capability=(9, 0), graph=found, regions=regions, inputs=(), outputs=())
    return data, [each.start for each in locating.used]


def build(cuda: FakeGraphs, data: CallData, starts: list[int], held: ExitStack) -> Any:
    """Build a call of some data, whose modules are loaded."""
    builder = GraphBuilder(cuda)
    return builder.build(data, held.enter_context(builder.loaded(data, IMAGES)), starts, held)


def test_a_graph_is_read_with_all_that_it_is_launched_with() -> None:
    """Nodes follow what they wait for; addresses become places in regions, and zeros, and other numbers stay."""
    cuda = library()
    graph, locating = read(cuda, captured(cuda))
    assert [each.kind for each in graph.nodes] == ["memset", "kernel", "empty", "memcpy", "child"]
    assert [(each.start, each.end, each.ports) for each in graph.edges] == [
        (0, 1, PORTS),
        (1, 2, PROGRAMMATIC),
        (2, 3, PORTS),
        (3, 4, PORTS),
    ]
    kernel = graph.nodes[1].kernel
    assert kernel is not None
    assert (kernel.symbol, kernel.image, kernel.grid, kernel.block) == ("mine", "1" * 64, (7, 2, 1), (64, 1, 1))
    assert kernel.dynamic_shared_bytes == 4096
    assert kernel.launch_attributes == {2: b"\1", 4: b"\2\0\0\0\1\0\0\0\1"}
    assert kernel.function_attributes == {8: 4096}
    used = [(each.region.kind, each.region.names) for each in locating.used]
    assert used == [("own", ()), ("input", ("args[0]",))]
    memset, launch, _, memcpy, child = graph.nodes
    places = [(each.value, each.offset, each.region, each.distance) for each in launch.pointers]
    assert places == [(0, 0, 1, 0), (1, 0, 0, 8)]
    assert launch.values == (word(0), word(0), b"\5\0\0\0")
    assert [(each.offset, each.region, each.distance) for each in memset.pointers] == [(0, 0, 1024)]
    assert [(each.offset, each.region, each.distance) for each in memcpy.pointers] == [(48, 1, 256), (136, 0, 0)]
    assert child.child is not None
    (inner,) = child.child.nodes
    assert inner.values == (word(3) + word(0) + word(0), word(5)), "5 is below all addresses, 3 too"
    assert [(each.value, each.offset, each.distance) for each in inner.pointers] == [(0, 8, 512), (0, 16, 1024)]


@pytest.mark.parametrize("shift", [0, 2**21])
def test_what_is_built_is_what_was_read_in_its_new_place(shift: int) -> None:
    cuda = library()
    data, starts = read_data(cuda, captured(cuda))
    build(cuda, data, [start + shift for start in starts], ExitStack())
    [built] = cuda.executables.values()
    moved = [placed("input", INPUT + shift, 4096, ["args[0]"]), placed("own", OWN + shift, 2**21)]
    again, _ = read(cuda, built, moved)
    assert again == data.graph


def test_nothing_is_left_of_what_was_launched() -> None:
    """Two graphs of one call share the modules, and so the caches of instructions."""
    cuda, held = library(), ExitStack()
    (data, _), builder = read_data(cuda, captured(cuda)), GraphBuilder(cuda)
    modules = held.enter_context(builder.loaded(data, IMAGES))
    _, built = (builder.build(data, modules, starts, held) for starts in ([INPUT, OWN], [OWN, INPUT]))
    built.whole(5)
    assert (len(cuda.modules), cuda.launched) == (2, [*cuda.executables][1:])
    held.close()
    assert (cuda.modules, cuda.executables, cuda.made) == ({}, {}, [])


def kernel_and_memsets(cuda: FakeGraphs, attributes: dict[int, bytes]) -> list[FakeNode]:
    at = word(INPUT), word(OWN), bytes(4)
    mine = FakeNode(0, at, cuda.function("mine"), (7, 2, 1), (64, 1, 1), 4096, attributes)
    return [mine, *(FakeNode(NUMBERS["memset"], (memset_at(OWN + at),)) for at in (0, 64))]


@pytest.mark.parametrize(
    ("edges", "attributes", "is_chain"),
    [
        ([(0, 1, PORTS), (1, 2, PORTS)], {4: b"\2"}, True),
        ([(1, 0, PORTS), (0, 2, PORTS)], {}, True),
        ([(0, 1, PORTS), (1, 3, PORTS), (3, 2, PORTS)], {}, True),
        ([(0, 1, PORTS), (1, 2, PORTS)], {6: b"\1"}, False),
        ([(0, 1, PORTS), (1, 2, PROGRAMMATIC)], {}, False),
        ([(0, 1, PORTS), (0, 2, PORTS)], {}, False),
        ([(0, 1, PORTS), (1, 2, PORTS), (0, 2, PORTS)], {}, False),
        ([(0, 1, PORTS)], {}, False),
        ([], {}, False),
    ],
)
def test_a_chain_is_launched_node_by_node(
    edges: list[tuple[int, int, bytes]], attributes: dict[int, bytes], is_chain: bool
) -> None:
    """Any other graph as a whole, which both can be. An empty node, the fourth, would take the host's time alone."""
    cuda, empty = library(), [FakeNode(NUMBERS["empty"])] * any(3 in each for each in edges)
    data, starts = read_data(cuda, cuda.graph(*kernel_and_memsets(cuda, attributes), *empty, edges=edges))
    built = build(cuda, data, starts, ExitStack())
    whole, *parts = cuda.executables
    built.whole(5)
    for launch in built.as_captured:
        launch(5)
    assert cuda.launched[0] == whole
    kinds = [cuda.graphs[cuda.executables[each]].nodes if each in parts else each for each in cuda.launched[1:]]
    nodes = [cuda.nodes[each[0] if isinstance(each, list) else each].kind for each in kinds if each != whole]
    assert (len(parts), kinds == [whole]) == ((2, False) if is_chain else (0, True))
    assert nodes == ([NUMBERS[each.kind] for each in data.graph.nodes if each.kind != "empty"] if is_chain else [])


@pytest.mark.parametrize(
    "name", ["cuModuleLoadData", "cuModuleGetFunction", "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags"]
)
def test_an_error_of_the_driver_leaves_nothing_behind(name: str) -> None:
    cuda = library()
    data, _ = read_data(cuda, captured(cuda))
    cuda.fails = name
    with pytest.raises(DriverError, match=f"^{name} of the CUDA driver fails"), ExitStack() as held:
        build(cuda, data, [INPUT, OWN], held)
    assert (cuda.modules, cuda.executables, cuda.made) == ({}, {}, [])


def test_an_image_whose_kernel_has_other_parameters_is_refused() -> None:
    cuda = library()
    data, _ = read_data(cuda, captured(cuda))
    cuda.images[IMAGE] = [FakeFunction("mine", (8, 8, 8))]
    with pytest.raises(NotReplayable, match="the image of mine has other parameters"), ExitStack() as held:
        build(cuda, data, [INPUT, OWN], held)
    assert cuda.modules == {}


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (FakeNode(3), "it calls a function of the host"),
        (FakeNode(99), "its graph has a node of the driver's type 99"),
        (FakeNode(NUMBERS["memcpy"], (memcpy_between(INPUT, OWN, 3),)), "it copies from or to an array of CUDA's.*"),
    ],
)
def test_a_node_that_cannot_be_replayed_is_named(node: FakeNode, reason: str) -> None:
    cuda = library()
    with pytest.raises(NotReplayable, match=f"^{reason}$"):
        read(cuda, cuda.graph(node))


def rebuilt_attributes(
    of_function: dict[int, int], of_launch: dict[int, bytes], compiled: dict[int, int]
) -> tuple[dict[int, int], dict[int, bytes]]:
    """Return the attributes of a rebuilt kernel and of its launch; compiled: those of its image, loaded anew."""
    cuda, held = library(), ExitStack()
    node = FakeNode(0, (word(INPUT), word(OWN), bytes(4)), cuda.function("mine", attributes=of_function))
    node.attributes = of_launch
    cuda.images[IMAGE] = [FakeFunction("mine", (8, 8, 4), compiled)]
    (launch,) = build(cuda, read_data(cuda, cuda.graph(node))[0], [INPUT, OWN], held).as_captured
    ((made,),) = (cuda.graphs[each].nodes for each in cuda.executables.values())
    launch(5)
    (launched,) = cuda.launched
    assert launched in cuda.executables or cuda.nodes[launched] == cuda.nodes[made], "by itself as in the graph"
    return cuda.functions[cuda.nodes[made].function].attributes, cuda.nodes[made].attributes


@pytest.mark.parametrize("attribute", range(8, 16))
def test_what_a_host_may_set_of_a_function_is_set(attribute: int) -> None:
    assert rebuilt_attributes({attribute: 5}, {}, {}) == ({attribute: 5}, {})
    assert rebuilt_attributes({7: 5}, {}, {7: 4}) == ({7: 4}, {}), "it is compiled"
    assert rebuilt_attributes({}, {}, {attribute: 5}) == ({attribute: 0}, {})


@pytest.mark.parametrize("attribute", {*range(1, 32)} - {OF_STREAMS, *REFUSED_ATTRIBUTES})
def test_what_a_kernel_is_launched_with_is_set(attribute: int) -> None:
    """Those that no version of CUDA has named yet too."""
    assert rebuilt_attributes({}, {attribute: b"\0\5"}, {}) == ({}, {attribute: b"\0\5"})
    assert rebuilt_attributes({}, {attribute: bytes(64)}, {})[1] == {}


@pytest.mark.parametrize(("attribute", "words"), REFUSED_ATTRIBUTES.items())
def test_what_holds_an_address_or_a_handle_is_refused(attribute: int, words: str) -> None:
    """Where it is built: a candidate's process may change what it has captured."""
    cuda = library()
    data, starts = read_data(cuda, cuda.graph(*kernel_and_memsets(cuda, {attribute: b"\0" * 8 + b"\1"})))
    with pytest.raises(NotReplayable, match=f"^the kernel mine {words}$"), ExitStack() as held:
        build(cuda, data, starts, held)
    assert rebuilt_attributes({}, {attribute: bytes(64)}, {}) == ({}, {})


def test_structures_are_as_large_as_the_drivers() -> None:
    structures = (MemcpyParams, MemsetParams, KernelParams, LaunchAttribute, LaunchConfig)
    assert [*map(ctypes.sizeof, structures)] == [200, 40, 72, 72, 56]


# memory


@pytest.mark.parametrize(
    ("address", "found"),
    [
        *((INPUT + distance, int(0 <= distance < 4096)) for distance in (-1, 0, 4095, 4096)),
        *((0x7F2000000000 + distance, int(distance < 64)) for distance in (0, 63, 64)),
    ],
)
def test_a_number_is_an_address_where_it_lies_in_memory(address: int, found: int) -> None:
    node = Node(kind="memset", values=(b"\1\2\3\4\5\6\7\0" + word(address) + b"\1\2\3\4",))
    located = Locating(known(), other_at).locate(Graph((node,), ()))
    pointers = located.nodes[0].pointers
    assert [(each.offset) for each in pointers] == [8] * found
    assert with_addresses(located.nodes[0].values, pointers, [address - each.distance for each in pointers]) == (
        node.values
    )
    across = Node(kind="memset", values=(bytes(4) + word(address) + bytes(4),))
    assert Locating(known(), other_at).locate(Graph((across,), ())).nodes[0].pointers == (), "of two words"


@pytest.mark.parametrize(("number", "asked"), [(2**16, False), (2**16 + 1, True), (2**57 - 1, True), (2**57, False)])
def test_the_driver_is_not_asked_of_what_can_be_no_address(number: int, asked: bool) -> None:
    """Of most numbers: to ask takes some microseconds."""
    found: list[int] = []

    def note(address: int) -> None:
        found.append(address)

    Locating(known(), note).locate(Graph((Node(kind="memset", values=(word(number),)),), ()))
    assert found == [number] * asked


@pytest.mark.parametrize(
    ("kind", "start", "misalignment"),
    [("own", 2**21 + 512, 512), ("input", 2**21 + 512, 0), ("input", 2**21 + 528, 16), ("other", 2**21 + 528, 16)],
)
def test_a_region_keeps_its_misalignment(kind: RegionKind, start: int, misalignment: int) -> None:
    assert placed(kind, start, 64).region.misalignment == misalignment


# numbers that look like addresses

BESIDE = 64
"""A number whose other half, in the padding of a structure, is that of an address."""
ELSEWHERE = 0x7F8000000000


def launched_with(*values: bytes, symbol: str = "mine") -> Graph:
    """Return a graph of one launch, as it is captured."""
    kernel = Kernel(symbol=symbol, image="1" * 64, grid=(1, 1, 1), block=(32, 1, 1))
    return Graph((Node(kind="child", child=Graph((Node(kind="kernel", values=values, kernel=kernel),), ())),), ())


def located(
    graph: Graph,
    moved: Graph | None,
    memory_at: Callable[[int], Placed | None] = other_at,
    outputs_decide: bool = False,
) -> tuple[Node, Locating]:
    """Return the launch with its pointers."""
    locating = Locating(known(), memory_at, outputs_decide)
    (node,) = locating.locate(graph, moved).nodes
    assert node.child is not None
    return node.child.nodes[0], locating


@pytest.mark.parametrize(
    ("start", "also_moves", "stays"), [(INPUT, True, True), (INPUT, False, False), (OWN, False, True)]
)
def test_a_word_that_stays_where_its_memory_moves_is_a_number(start: int, also_moves: bool, stays: bool) -> None:
    """An input has moved where another word shows it: its tensor may be none that can be moved."""
    first, again = (launched_with(word(start + BESIDE) + word(1), word(at)) for at in (start, ELSEWHERE))
    node, locating = located(first, again if also_moves or start == OWN else first)
    pointers = [(each.value, each.offset, each.distance) for each in node.pointers]
    assert pointers == [(0, 0, BESIDE)] * (not stays) + [(1, 0, 0)]
    assert node.values[0] == (word(start + BESIDE) if stays else word(0)) + word(1)
    assert [each.region.kind for each in locating.used] == ["own" if start == OWN else "input"]


def test_words_that_move_with_their_memory_are_addresses_and_others_are_numbers() -> None:
    first, again = (launched_with(word(0x7F2000000000 + at) + word(1)) for at in (0, 8))
    assert located(first, again)[0].pointers == located(again, first)[0].pointers == ()
    first, again = (launched_with(word(at + 64) + word(at + 128)) for at in (INPUT, ELSEWHERE))
    assert [each.distance for each in located(first, again)[0].pointers] == [64, 128]


def test_a_parameter_of_one_word_is_no_structure() -> None:
    """It has no padding; nor have the driver's own structures."""
    first = launched_with(word(OWN + 64))
    assert len(located(first, first)[0].pointers) == 1
    copied = Graph((Node(kind="memcpy", values=(memcpy_between(INPUT, OWN),)),), ())
    assert len(Locating(known(), other_at).locate(copied, copied).nodes[0].pointers) == 2


@pytest.mark.parametrize(
    ("values", "is_refused"),
    [
        ((word(0x7F2000000000) + word(1),), False),
        ((word(0x7F2000000000 + 8) + word(1),), True),
        ((word(0x7F2000000000 + 8),), False),
    ],
)
def test_in_memory_that_is_no_argument_only_its_beginning_is_told_from_a_number(
    values: tuple[bytes, ...], is_refused: bool
) -> None:
    graph = launched_with(*values)
    if is_refused:
        with pytest.raises(NotReplayable, match="or a number of its kernels' looks like an address"):
            located(graph, graph)
    else:
        assert [each.region.kind for each in located(graph, graph)[1].used] == ["other"]


def refuse(address: int) -> None:
    raise NotReplayable("memory of a library")


@pytest.mark.parametrize("memory_at", [other_at, refuse])
def test_where_outputs_decide_what_may_be_an_address_is_a_number(memory_at: Callable[[int], Placed | None]) -> None:
    """But where it is all of a parameter, which has no padding."""
    graph = launched_with(word(0x7F2000000000 + 8) + word(1))
    assert located(graph, graph, memory_at, outputs_decide=True)[0].pointers == ()
    with pytest.raises(NotReplayable):
        located(graph, graph, memory_at)
    with pytest.raises(NotReplayable, match="of a library"):
        located(launched_with(word(0x7F2000000000)), None, refuse, outputs_decide=True)


@pytest.mark.parametrize("other", [launched_with(bytes(16), symbol="other"), launched_with(bytes(24)), Graph((), ())])
def test_other_work_when_it_is_captured_again_is_refused(other: Graph) -> None:
    with pytest.raises(NotReplayable, match="it does other work each time"):
        located(launched_with(bytes(16)), other)
