"""Messages of the candidate's process: channel, structures, places in memory."""

import math
import socket
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench import BadRequest
from pytest_gpubench.judge.channel import LONGEST_BYTES, Broken, Channel, Closed, Leaf, Reply, decode_reply
from pytest_gpubench.judge.layout import describe, elements_of, layout_of, placed, rebuild, views


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a socket."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@pytest.mark.parametrize(("text_bytes", "fits"), [(LONGEST_BYTES - 11, True), (LONGEST_BYTES - 10, False)])
def test_a_message_fits_into_a_socket(text_bytes: int, fits: bool) -> None:
    """Eleven bytes are not its text's."""
    one, other = pair()
    with one, other, nullcontext() if fits else pytest.raises(Broken, match="200001 bytes: 200000 are the most"):
        Channel(one).send({"text": "x" * text_bytes})
        assert len(Channel(other).receive()[0]) == LONGEST_BYTES


@pytest.mark.parametrize("text", ["\udc80", type("Text", (str,), {})("a")])
def test_a_message_that_is_not_plain_is_refused(text: str) -> None:
    one, other = pair()
    with one, other, pytest.raises(Broken, match=r"surrogates not allowed|objects of type Text"):
        Channel(one).send({"text": text})


def test_a_message_longer_than_a_socket_of_this_machine_is_refused() -> None:
    one, other = pair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64_000)
    with one, other, pytest.raises(Broken, match="longer than a socket holds here"):
        Channel(one).send({"text": "x" * 150_000})


def test_somebody_looks_while_nobody_reads_or_writes() -> None:
    one, other = pair()
    with one, other:
        for end in (one, other):
            end.settimeout(0.01)
        with pytest.raises(ZeroDivisionError):
            Channel(other).receive(look=lambda: 1 / 0)
        Channel(one).send({"text": "x" * 150_000})
        with pytest.raises(ZeroDivisionError):
            Channel(one).send({"text": "x" * 150_000}, look=lambda: 1 / 0)


@given(data=st.binary(max_size=200))
def test_no_message_does_more_than_fail(data: bytes) -> None:
    """Whatever a candidate writes is a reply, or Broken, or Closed."""
    one, other = pair()
    with other:
        with one:
            one.sendall(data)
        with suppress(Broken, Closed):
            assert isinstance(decode_reply(Channel(other).receive()[0]), Reply)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30)
@given(value=VALUES)
def test_a_structure_comes_back(value: Any) -> None:
    node, tensors = describe(value, "it")
    assert rebuild(node, tensors) == value


def test_tensors_come_back() -> None:
    """With their strides, and in their places; dtypes and NaN too."""
    given: Any = {"a": [torch.arange(6.0).view(2, 3).t(), torch.ones(3).bool()], "b": (torch.zeros(0), torch.float16)}
    given["gaps"] = torch.arange(1024.0)[::8]
    node, tensors = describe(given, "it")
    layout = layout_of(tensors, 2)
    _, second = views([torch.zeros(size, dtype=torch.uint8) for size in placed(layout)[0]], layout)
    for one, other in zip(second, tensors, strict=True):
        one.copy_(other)
    found = rebuild(node, second)
    assert found["a"][0].stride() == (1, 3)
    assert all(torch.equal(one, other) for one, other in zip(describe(found, "it")[1], tensors, strict=True))
    assert found["b"][1] is torch.float16
    assert math.isnan(rebuild(*describe(math.nan, "it")))


@pytest.mark.parametrize(
    ("mib", "sets", "sizes", "places"),
    [
        ((0.5, 1), 1, [2], [(0, 0), (0, 0.5)]),
        ((1, 0.5), 2, [2, 2], [(0, 0), (0, 1), (1, 0), (1, 1)]),
        ((1.25, 9), 2, [20, 20], [(0, 0), (0, 1.25), (0, 10.25), (1, 0)]),
        ((9.75, 10), 1, [20, 10], [(0, 0), (1, 0)]),
        ((10.25, 0.5), 2, [12, 2, 12], [(0, 0), (1, 0), (2, 0), (1, 0.5)]),
        ((0,), 1, [2], [(0, 0)]),
    ],
)
def test_tensors_lie_as_torch_lays_them(
    mib: tuple[float, ...], sets: int, sizes: list[int], places: list[tuple[int, float]]
) -> None:
    """Up to 1 MiB, below 10 MiB, and by themselves."""
    tensors = [torch.empty(int(each * 2**20), dtype=torch.int8, device="meta") for each in mib]
    expected = [each * 2**20 for each in sizes], [(block, start * 2**20) for block, start in places]
    assert placed(layout_of(tensors, sets)) == expected


@pytest.mark.parametrize(
    ("shape", "stride"), [((2, 2), (1,)), ((-1,), (1,)), ((1,), (-1,)), ((2**48 + 1,), (1,)), ((1,), (2**48 + 1,))]
)
def test_a_layout_that_is_none_is_an_error_that_is_known(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    """`Candidate.output` catches it."""
    assert elements_of(Leaf("float32", (2**48,), (1,))) == 2**48
    with pytest.raises(ValueError, match="no tensor"):
        elements_of(Leaf("float32", shape, stride))


@pytest.mark.parametrize(
    "value", [object(), torch.ones(2).to_sparse(), {1: 2}, torch.ones(1).as_subclass(type("Lazy", (torch.Tensor,), {}))]
)
def test_what_is_no_plain_data_is_refused(value: object) -> None:
    with pytest.raises(BadRequest, match=r"only plain tensors are sent|only .*, and dicts with texts as keys can be"):
        describe(value, "it")
