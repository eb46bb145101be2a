"""A call as bytes and back, and what is refused."""

import msgspec
import pytest

from pytest_gpubench import BadFile
from pytest_gpubench.replay.call_data import (
    CallData,
    Edge,
    Graph,
    Kernel,
    Node,
    Pointer,
    Region,
    TensorData,
    decode_call,
    encode_call,
)

PORTS = bytes(8)
KERNEL = Kernel(symbol="mine", image="a" * 64, grid=(2, 1, 1), block=(32, 1, 1), launch_attributes={4: b"\2"})
OTHER = msgspec.structs.replace(KERNEL, symbol="other", image="b" * 64)
RECORD = msgspec.structs.replace(KERNEL, symbol="Stream Sync")


def kernel_node(kernel: Kernel = KERNEL, *pointers: Pointer) -> Node:
    return Node(kind="kernel", values=(bytes(8), b"\7\0\0\0"), pointers=pointers, kernel=kernel)


def call_of_graph(*nodes: Node, edges: tuple[Edge, ...] = ()) -> CallData:
    tensor = TensorData(name="out", region=1, distance=0, dtype="float32", shape=(4,), strides=(1,))
    return CallData(
        label="mine",
        capability=(9, 0),
        graph=Graph(nodes, edges),
        regions=(
            Region(kind="input", bytes=16, misalignment=0, names=("args[0]",)),
            Region(kind="own", bytes=64, misalignment=0),
        ),
        inputs=(msgspec.structs.replace(tensor, name="args[0]", region=0),),
        outputs=(tensor,),
    )


CHILD = Node(kind="child", child=Graph((kernel_node(OTHER),), ()))
CALL = call_of_graph(kernel_node(KERNEL, Pointer(0, 0, 1, 8)), CHILD, edges=(Edge(0, 1, PORTS),))


def test_a_call_survives_as_bytes_with_the_images_and_kernels_of_graphs_in_it() -> None:
    again = decode_call(encode_call(CALL))
    assert again == CALL
    assert (again.images, again.kernels) == (("a" * 64, "b" * 64), ("mine", "other"))
    last = call_of_graph(kernel_node(KERNEL, Pointer(0, 0, 1, 63)))
    assert decode_call(encode_call(last)) == last, "an address at the end of a region"


CUT_OFF = [encode_call(CALL)[:length] for length in (0, 1, 20, -1)]


@pytest.mark.parametrize("data", [b"\x81\xa5label\xa1\xff", b"\x81\xa1x" + b"\x91" * 100_000, *CUT_OFF])
def test_no_text_and_what_is_too_deep_or_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(BadFile, match="damaged"):
        decode_call(data)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (msgspec.structs.replace(CALL, format=2), "format 2, and this pytest-gpubench reads 1"),
        (call_of_graph(kernel_node(RECORD)), "damaged: 'Stream Sync' is no kernel's name"),
    ],
)
def test_another_format_or_the_name_of_another_record_is_refused(call: CallData, found: str) -> None:
    with pytest.raises(BadFile, match=found):
        decode_call(encode_call(call))


(OUT,) = CALL.outputs
NOWHERE = (msgspec.structs.replace(OUT, region=2),)
WRONG = {
    "an input in no region": msgspec.structs.replace(CALL, inputs=NOWHERE),
    "an output in no region": msgspec.structs.replace(CALL, outputs=NOWHERE),
    "a region that is not there": call_of_graph(kernel_node(KERNEL, Pointer(0, 0, 2, 0))),
    "a region below 0": call_of_graph(kernel_node(KERNEL, Pointer(0, 0, -1, 0))),
    "a value that is not there": call_of_graph(kernel_node(KERNEL, Pointer(2, 0, 0, 0))),
    "an address beyond the value": call_of_graph(kernel_node(KERNEL, Pointer(0, 1, 0, 0))),
    "an edge from nowhere": call_of_graph(kernel_node(), edges=(Edge(1, 0, PORTS),)),
    "ports of another size": call_of_graph(kernel_node(), kernel_node(), edges=(Edge(0, 1, b""),)),
    "a kernel without one": call_of_graph(Node(kind="kernel")),
    "a memset with a kernel": call_of_graph(Node(kind="memset", values=(bytes(40),), kernel=KERNEL)),
    "a memset of another size": call_of_graph(Node(kind="memset", values=(bytes(39),))),
    "a memcpy without its structure": call_of_graph(Node(kind="memcpy")),
    "a graph in a graph that is wrong": call_of_graph(Node(kind="child", child=Graph((Node(kind="kernel"),), ()))),
    "nodes that wait for each other": call_of_graph(
        kernel_node(), kernel_node(), edges=(Edge(0, 1, PORTS), Edge(1, 0, PORTS))
    ),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_numbers_that_lead_nowhere_are_refused(call: CallData) -> None:
    with pytest.raises(BadFile, match="damaged: a number in it leads nowhere"):
        decode_call(encode_call(call))


INNER = Node(kind="child", child=Graph((Node(kind="memset"),) * 2, (Edge(0, 1, bytes(8)),)))


def test_launches_are_those_of_graphs_in_it_too() -> None:
    assert Graph((Node(kind="memset"), Node(kind="empty"), INNER), ()).launches == 3


PORTS, PROGRAMMATIC = bytes(8), bytes(7) + b"\1"


@pytest.mark.parametrize(
    ("edges", "is_in_turn"),
    [
        ([(0, 1, PORTS), (1, 2, PORTS)], True),
        ([(0, 1, PROGRAMMATIC), (1, 2, PORTS)], True),
        ([(0, 1, PROGRAMMATIC), (0, 2, PORTS)], False),
        ([(0, 1, PORTS), (1, 2, PORTS), (0, 2, PORTS)], False),
        ([], False),
    ],
)
def test_nodes_beside_one_another_are_put_in_turn(edges: list[tuple[int, int, bytes]], is_in_turn: bool) -> None:
    """In a graph in it, too; none begins before the one before it has ended, unless it was so in turn."""
    kernel = Kernel(symbol="f", image="", grid=(1, 1, 1), block=(1, 1, 1), launch_attributes={4: b"\2", 6: b"\1"})
    inner = Node(kind="child", child=Graph((Node(kind="memset"),) * 2, ()))
    given = Graph(
        (Node(kind="kernel", kernel=kernel), inner, Node(kind="memset")), tuple(Edge(*each) for each in edges)
    )
    found = given.in_turn
    steps = (Edge(0, 1, PORTS), Edge(1, 2, PORTS))
    assert found.edges == (given.edges if is_in_turn else steps)
    launched = found.nodes[0].kernel
    assert launched is not None
    assert launched.launch_attributes == (kernel.launch_attributes if is_in_turn else {4: b"\2"})
    assert found.nodes[1].child == INNER.child
