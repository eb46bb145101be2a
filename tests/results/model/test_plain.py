"""Extra information of a test: any value is stored, as its number or its text."""

import enum
import math
import weakref
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpubench import DeviceFacts
from pytest_gpubench.results.model import TestRecord, decode, encode

DEVICE = DeviceFacts(type="cuda", name="NVIDIA H200", host="localhost")


class Odd:
    def __str__(self) -> str:
        return "an odd object"


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


def info(value: object) -> object:
    found = decode(encode(TestRecord(nodeid="test", device=DEVICE, extra_info={"value": value}))).extra_info
    assert list(found) == ["value"]
    return found["value"]


class Endless(Odd):
    def item(self) -> object:
        return self


class Refusing(Odd):
    def item(self) -> object:
        raise RuntimeError("not on this device")


class Scalar(Odd):
    def item(self) -> float:
        return 2.5


class Mute:
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


class Babbling:
    def __str__(self) -> str:
        return str(self)


class NoFloat(float):
    def __float__(self) -> float:
        raise RuntimeError("it is not a number after all")


class NoItems(dict[str, object]):
    def items(self) -> NoReturn:
        raise RuntimeError("it has no items")


GONE = weakref.proxy(Odd())

LONE_SURROGATE = "data\udcff.bin"  # the name of a file that is not UTF-8


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (False, False),
        (3, 3),
        (0.1, 0.1),
        ("text", "text"),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (np.float32(0.5), 0.5),
        (np.int64(-3), -3),
        (np.bool_(True), True),
        (np.longdouble(0.5), 0.5),
        (np.array(3), 3),
        (np.array([2.5]), 2.5),
        (np.array([Decimal("0.10")]), "0.10"),
        (torch.tensor(2.5), 2.5),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
        (torch.tensor([1, 2]), "tensor([1, 2])"),
        (torch.zeros((), device="meta"), "tensor(..., device='meta', size=())"),
        ((1, 2), [1, 2]),
        ({3}, "{3}"),
        (10**30, 10**30),
        pytest.param(10**5_000, "<int object>", id="more digits than Python writes"),
        (Decimal("0.10"), "0.10"),
        (Odd(), "an odd object"),
        ({1: {(2, 3): np.int32(4)}}, {"1": {"(2, 3)": 4}}),
        ([np.float32(1), [Odd()]], [1.0, ["an odd object"]]),
        (math.nan, None),  # JSON has neither
        (torch.tensor(-math.inf), None),
        # losing a test's results over what it noted beside them would be worse than any text
        (Scalar(), 2.5),
        (Endless(), "an odd object"),
        (Refusing(), "an odd object"),
        (GONE, f"<{type(GONE).__name__} object>"),
        (Mute(), "<Mute object>"),
        (Babbling(), "<Babbling object>"),
        (NoFloat(0.5), "0.5"),
        (NoItems(a=1), "{'a': 1}"),
        ({Mute(): [Mute()]}, {"<Mute object>": ["<Mute object>"]}),
        (LONE_SURROGATE, r"data\udcff.bin"),
        ({LONE_SURROGATE: 1}, {r"data\udcff.bin": 1}),
        (Path(LONE_SURROGATE), r"data\udcff.bin"),
        ("größer \U0001f680", "größer \U0001f680"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_extra_info_is_written_as_its_number_or_its_text(value: object, expected: object) -> None:
    found = info(value)
    assert found == expected
    assert type(found) is type(expected)


def test_what_contains_itself_is_written_as_text_where_it_does() -> None:
    endless: list[object] = [1]
    endless.append(endless)
    assert info(endless) == [1, "[1, [...]]"]
    ring: dict[str, object] = {"width": 3}
    ring |= {"left": [ring], "right": (ring, ring)}
    text = str(ring)
    assert info(ring) == {"width": 3, "left": [text], "right": [text, text]}
    shape = [4, 4]  # twice, but not in itself
    assert info({"input": shape, "output": shape}) == {"input": shape, "output": shape}


def test_what_is_nested_too_deep_is_cut() -> None:
    """However deep: neither Python's stack nor msgspec's may overflow."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    found, depth = info(deep), 0
    while isinstance(found, list):
        [found], depth = found, depth + 1
    assert (found, depth) == ("<list object>", 50 - 1)  # extra_info itself is the outermost


@given(st.recursive(st.floats() | st.text(st.characters()) | st.binary() | st.complex_numbers(), st.lists))
def test_whatever_can_be_noted_comes_back(value: object) -> None:
    """Once it is plain it stays as it is."""
    found = info(value)
    assert info(found) == found


def test_writing_a_record_changes_nothing_in_it() -> None:
    noted = {"size": np.int64(3), "shape": (np.int64(4), 4)}
    record = TestRecord(nodeid="test", device=DEVICE, extra_info=noted)
    encode(record)
    assert record.extra_info is noted
    assert type(noted["size"]) is np.int64
