"""Examples by name and text."""

import itertools
import struct
import sys
import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
import torch

from pytest_gpubench import strategies as gst
from pytest_gpubench.search import Example


class Matmul(NamedTuple):
    m: int
    k: int


class Opaque:
    pass


class Shaped:
    shape = (4, 5)

    def __repr__(self) -> str:
        return "Shaped()"


class NumberOfSides:
    shape = 4

    def __repr__(self) -> str:
        raise ValueError("it has no text")


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # both are new
    CSR = torch.sparse_csr_tensor([0, 1], [0], [1.0], size=(1, 1))
    NESTED = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, {"x": 7}),
        (-1, {"x": -1}),
        (True, {}),
        (2.0, {}),
        ("8", {}),
        (None, {}),
        ((), {}),
        ((1, 100), {"x[0]": 1, "x[1]": 100}),
        ([3, "a", 4], {"x[0]": 3, "x[2]": 4}),
        ((1, (2, [3])), {"x[0]": 1, "x[1][0]": 2, "x[1][1][0]": 3}),
        (Matmul(2, 3), {"x.m": 2, "x.k": 3}),
        ((Matmul(2, 3), False), {"x[0].m": 2, "x[0].k": 3}),
        (torch.zeros(2, 0), {"x.shape[0]": 2, "x.shape[1]": 0}),
        (torch.tensor(3.0), {}),
        ([torch.zeros(6)], {"x[0].shape[0]": 6}),
        (Shaped(), {"x.shape[0]": 4, "x.shape[1]": 5}),
        ({"a": 1}, {}),
        (Opaque(), {}),
        (NumberOfSides(), {}),
        (torch.Tensor, {}),
        (CSR, {"x.shape[0]": 1, "x.shape[1]": 1}),
        (NESTED, {}),
    ],
)
def test_sizes_by_name(value: object, expected: dict[str, int]) -> None:
    assert Example.of({"x": value}).sizes == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, "7"),
        ("a", "'a'"),
        (torch.float16, "torch.float16"),
        ((1, 2), "(1, 2)"),
        (Matmul(2, 3), "Matmul(m=2, k=3)"),
        (torch.zeros(3, 2).t(), "Tensor((2, 3), torch.float32, strides=(1, 2))"),
        (torch.tensor(1), "Tensor((), torch.int64, strides=())"),
        (Opaque(), "<Opaque>"),
        (Shaped(), "Shaped()"),
        (lambda: 0, "<function>"),
        ([Opaque()], "[<Opaque>]"),
        ((NumberOfSides(),), "(<NumberOfSides>,)"),
        ([CSR, NESTED], "[<Tensor>, <Tensor>]"),
    ],
)
def test_texts(value: object, expected: str) -> None:
    assert Example.of({"x": value}).text == f"x={expected}"


def test_a_tensor_of_ours_is_its_call() -> None:
    made = gst.tensor((2, 3), layout="transposed", seed=5)
    text = "tensor(shape=(2, 3), dtype=torch.float32, layout='transposed', values='normal', seed=5)"
    again = eval(text, {"tensor": gst.tensor, "torch": torch})
    assert torch.equal(made, again)
    assert made.stride() == again.stride()
    sizes = {"x.shape[0]": 2, "x.shape[1]": 3, "n": 3}
    assert Example.of({"x": made, "n": 3}) == Example(f"x={text}, n=3", sizes, pasted=f"x=lazy_{text}, n=3")
    again = eval(f"lazy_{text}", {"lazy_tensor": gst.lazy_tensor, "torch": torch})
    assert Example.of({"x": again, "n": 3}) == Example(f"x=lazy_{text}, n=3", sizes)
    assert Example.of({"x": [made, (made,)]}).pasted == f"x=[lazy_{text}, (lazy_{text},)]"
    assert Example.of({"x": again.make()}).text == f"x={text}"
    assert Example.of({}) == Example("", {})


def draw(monkeypatch: pytest.MonkeyPatch, *choices: object) -> None:
    """Have hypothesis have drawn what is given."""
    context = SimpleNamespace(data=SimpleNamespace(choices=choices))
    monkeypatch.setattr("hypothesis.control._current_build_context", SimpleNamespace(value=context))


NAN, OTHER_NAN = (struct.unpack("d", struct.pack("Q", bits))[0] for bits in (0x7FF8 << 48, (0x7FF8 << 48) + 1))
DRAWN = [(1,), (1, 2), (True,), (1.0,), (0,), (0.0,), (-0.0,), (False,), ("",), (b"",), (NAN,), (OTHER_NAN,)]


def test_examples_are_told_apart_by_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for drawn in DRAWN * 2:
        draw(monkeypatch, *drawn)
        example = Example.of({"case": Opaque()})
        assert example.held == ()
        keys.append(example.key)
    for (first, key), (second, other) in itertools.product(enumerate(keys), repeat=2):
        assert (key == other) == (first % len(DRAWN) == second % len(DRAWN)), (first, second)


@pytest.mark.parametrize("missing", ["control", "value", "data", "choices", "drawn"])
def test_where_nothing_is_known_to_be_drawn_all_that_may_differ_does(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """As for @example, for a hypothesis that does not tell, and in a thread of the test's own."""
    data: Any = SimpleNamespace() if missing == "choices" else SimpleNamespace(choices=())
    context: Any = SimpleNamespace() if missing == "data" else SimpleNamespace(data=data)
    variable = SimpleNamespace(value=None if missing == "value" else context)
    control = SimpleNamespace() if missing == "control" else SimpleNamespace(_current_build_context=variable)
    monkeypatch.setitem(sys.modules, "hypothesis.control", cast(Any, control))
    x = torch.ones(4)
    first, other = (Example.of({"x": [tensor], "n": 1}) for tensor in (x, torch.zeros(4)))
    assert first.text == other.text
    assert first.key != other.key
    assert first.held[0] == [x]
    same, again, another = (
        Example.of({"n": 3, "x": gst.lazy_tensor((3,), seed=seed), "sizes": [(1, 2.5), "a", None, True]})
        for seed in (1, 1, 2)
    )
    assert same.held == ()
    assert same.key == again.key != another.key
