"""Other values in the same memory, and every bit of the old ones back."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench.correctness import Variation, variation
from pytest_gpubench.correctness.variation import tensors_for, variable_tensors, vary
from tests.correctness.samples import COMPLEX, FLOATS, INTEGERS, layouts, names, shapes

INTEGER_WAYS: tuple[Any, ...] = ("turned round integer", "levelled integer")

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
FRACTION_WAYS: tuple[Any, ...] = tuple(way for way in Variation.WAYS if way not in INTEGER_WAYS)
ways = st.sampled_from(FRACTION_WAYS)
"""All ways to vary floating-point tensors."""


class Own(torch.Tensor):
    """A tensor of a class of its own."""


def any_bits(shape: Sequence[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return a tensor of every kind of number: NaN, infinities, subnormal ones and both zeros."""
    generator = torch.Generator().manual_seed(seed)
    real = dtype.to_real() if dtype.is_complex else dtype
    parts = (2, *shape) if dtype.is_complex else tuple(shape)
    word = WORDS[real.itemsize]
    limits = torch.iinfo(word)
    bits = torch.randint(limits.min, limits.max, parts, dtype=word, generator=generator)
    values = bits.view(real)
    return torch.complex(values[0], values[1]) if dtype.is_complex else values


def bits_of(tensor: torch.Tensor) -> list[int]:
    """Return the bits of all elements."""
    dense = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    found: list[int] = dense.contiguous().view(WORDS[dense.element_size()]).reshape(-1).tolist()
    return found


# every bit comes back


@settings(deadline=None)
@given(
    shape=shapes,
    dtype=st.sampled_from([*FLOATS, *COMPLEX]),
    layout=names,
    way=ways,
    seed=st.integers(0, 2**32),
    chunk=st.integers(1, 40),
)
def test_put_back_it_is_as_it_was(
    shape: tuple[int, ...], dtype: torch.dtype, layout: str, way: Any, seed: int, chunk: int
) -> None:
    """Whatever the shape, the strides, the numbers, and however little is moved at a time."""
    tensor = layouts(any_bits(shape, dtype, seed))[layout]
    whole, before, version = tensor._base if tensor._base is not None else tensor, bits_of(tensor), tensor._version
    around = bits_of(whole)
    varied = Variation()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(variation, "CHUNK_ELEMENTS", chunk)
        patch.setattr(variation, "MOVED_ELEMENTS", chunk)
        varied.begin(way, (tensor,))
        assert bits_of(tensor) == expected_bits(before, tensor.shape, way, chunk)
        varied.end()
    assert bits_of(tensor) == before
    assert bits_of(whole) == around
    assert tensor._version == version


def expected_bits(bits: list[int], shape: Sequence[int], way: Any, chunk: int) -> list[int]:
    """Return the bits of a call's first tensor of this shape when it is varied."""
    count = next((length for length in shape if length > 1), 1)
    width = len(bits) // count
    rows = [bits[start : start + width] for start in range(0, len(bits), width)]
    if way == "partly levelled" and count > 1:
        levelled = min(count, 1 + max(1, chunk * count // torch.Size(shape).numel()))
        rows[:levelled] = [rows[0]] * levelled
    elif count > 1:
        rows.reverse()
    return [word for row in rows for word in row]


def test_tensors_are_numbered_among_those_that_can_be_varied() -> None:
    """What is left alone between them does not count; given twice counts once."""
    a, b, c = (torch.arange(3.0) for _ in range(3))
    given = (torch.arange(3), a, 3, a, torch.arange(3), b, [c])
    varied = Variation()
    varied.begin("partly turned round", given)
    assert [x.tolist() for x in (a, b, c)] == [[2, 1, 0], [0, 1, 2], [2, 1, 0]]
    varied.end()
    assert [x.tolist() for x in (a, b, c)] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("way", FRACTION_WAYS)
@pytest.mark.parametrize(
    "views",
    [
        lambda x: (x, x),
        lambda x: (x, x[:]),
        lambda x: (x, x.t()),
        lambda x: (x[:4], x[2:]),
        lambda x: (x, [x[1:], {"part": x[:, 2:]}]),
        lambda x: (x.t(), x.view(-1)[3:20]),
    ],
)
def test_inputs_that_share_memory_are_put_back(way: Any, views: Callable[[torch.Tensor], tuple[object, ...]]) -> None:
    x = torch.randn(6, 6)
    before = bits_of(x)
    varied = Variation()
    varied.begin(way, (views(x), {"again": x}))
    varied.end()
    assert bits_of(x) == before


def test_a_leaf_that_requires_a_gradient_is_varied_unseen() -> None:
    x = torch.randn(6, requires_grad=True)
    product = (x * x).sum()
    varied, way = Variation(), FRACTION_WAYS[-1]
    varied.begin(way, (x,))
    product.backward()  # type: ignore[no-untyped-call] # torch would refuse, had it seen a write
    assert x.grad is not None
    varied.end()


# what is left alone


@pytest.mark.parametrize(
    "tensor",
    [
        *[torch.arange(4).to(dtype) for dtype in INTEGERS],
        torch.arange(4, dtype=torch.int32).reshape(2, 2).t(),
        torch.randn(1),
        torch.randn(()),
        torch.randn(0),
        torch.randn(1, 1).expand(1, 4),
        torch.randn(4, device="meta"),
        torch.randn(4).to_sparse(),
        torch.randn(4).as_subclass(Own),
        torch.arange(5.0).unfold(0, 3, 1),
        torch.arange(9.0).as_strided((3, 3), (2, 1)),
        torch.arange(9.0).as_strided((3, 3), (1, 2)),
        torch.arange(9.0).as_strided((2, 2, 2), (3, 1, 2)),
    ],
    ids=lambda tensor: f"{type(tensor).__name__}-{tensor.dtype}-{tuple(tensor.shape)}-{tensor.layout}",
)
def test_what_is_left_alone(tensor: torch.Tensor) -> None:
    """As a window that slides over a signal: it has each element in several rows, of which none can move alone."""
    assert not variable_tensors((tensor,))
    before = None if tensor.is_meta or tensor.layout is not torch.strided else tensor.tolist()
    for way in Variation.WAYS:
        varied = Variation()
        given = (tensor, 3, None, "text", {"again": tensor})
        varied.begin(way, given)
        assert varied.undo == []
        varied.end()
    assert before is None or before == tensor.tolist()


def made_in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return torch.arange(4.0)


UNUSUAL: dict[str, Callable[[], torch.Tensor]] = {
    "float8": lambda: torch.tensor([0.0, 1, 2, 3]).to(torch.float8_e4m3fn),
    "expanded": lambda: torch.arange(4.0).view(4, 1).expand(4, 3),
    "expanded twice": lambda: torch.arange(4.0).view(1, 4, 1).expand(2, 4, 3),
    "inference": made_in_inference_mode,
    "array": lambda: torch.arange(4.0),
    "expanded float8": lambda: torch.tensor([0.0, 1, 2, 3]).to(torch.float8_e5m2).view(4, 1).expand(4, 2),
}


@pytest.mark.parametrize("kind", UNUSUAL)
@pytest.mark.parametrize("way", FRACTION_WAYS)
def test_unusual_tensors_are_varied_and_put_back(kind: str, way: Any) -> None:
    tensor = UNUSUAL[kind]()
    before = tensor.float().tolist()
    varied = Variation()
    varied.begin(way, (tensor.numpy() if kind == "array" else tensor,))
    dimension = tensor.shape.index(4)
    first = [torch.select(tensor.float(), dimension, at).reshape(-1)[0].item() for at in range(4)]
    assert first == ([0, 0, 0, 0] if way == "partly levelled" else [3, 2, 1, 0])
    varied.end()
    assert tensor.float().tolist() == before


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("turned round", [1, 0, 1, 0, 0]),
        ("partly levelled", [1, 0, 1, 0, 0]),
        ("turned round integer", [0, 0, 1, 0, 1]),
        ("levelled integer", [1, 1, 1, 1, 1]),
    ],
)
def test_integers_and_bools_have_ways_of_their_own(dtype: torch.dtype, way: Any, expected: list[int]) -> None:
    tensor, floats = torch.tensor([1, 0, 1, 0, 0]).to(dtype), torch.arange(5.0)
    varied = Variation()
    varied.begin(way, (tensor, floats))
    assert tensor.tolist() == expected
    assert (floats.tolist() == [0, 1, 2, 3, 4]) is (way in INTEGER_WAYS)
    varied.end()
    assert tensor.tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("shape", [(2, 5), (5, 2)])
def test_integers_change_places_along_their_longest_dimension(shape: tuple[int, int]) -> None:
    """Rows and columns of a sparse matrix are two rows of indices, or two columns: neither may get the other's."""
    indices = torch.stack([torch.tensor([3, 1, 4, 1, 5]), torch.tensor([92, 65, 35, 89, 79])])
    indices = indices if shape[0] == 2 else indices.t().contiguous()
    for way in INTEGER_WAYS:
        turned = indices.clone()
        vary(turned, way, 0)
        rows = turned if shape[0] == 2 else turned.t()
        assert set(rows[0].tolist()) <= {1, 3, 4, 5}
        assert not torch.equal(turned, indices)


@pytest.mark.parametrize(
    ("tensor", "is_left"),
    [
        (torch.tensor([0, 3, 3, 9], dtype=torch.int32), True),
        (torch.tensor([0, 3, 2, 9], dtype=torch.int32), False),
        (torch.tensor([[0, 1], [1, 2]]), True),
        (torch.tensor([[0, 1], [2, 1]]), False),
        (torch.tensor([2, 1], dtype=torch.uint32), False),
        (torch.tensor([False, True]), False),
        (torch.tensor(3), True),
    ],
)
def test_integers_that_may_be_offsets_are_left_alone(tensor: torch.Tensor, is_left: bool) -> None:
    assert (not tensors_for("turned round integer", (tensor,))) is is_left


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("name", ["bits8", "uint4", "uint7", "complex32"])
def test_dtypes_that_torch_can_only_store_are_varied(name: str) -> None:
    dtype = getattr(torch, name)
    words = torch.tensor([[3, 1, 2, 9]], dtype=WORDS[dtype.itemsize])
    tensor, seen, varied = words.clone().view(dtype), set[bool](), Variation()
    for way in Variation.WAYS:
        varied.begin(way, (tensor,))
        seen.add(torch.equal(tensor.view(words.dtype), words))
        varied.end()
        assert torch.equal(tensor.view(words.dtype), words)
    assert False in seen


def test_another_way_starts_from_the_values_as_given() -> None:
    x = torch.arange(4.0)
    varied = Variation()
    varied.begin("turned round", (x,))
    varied.begin("partly levelled", (x,))
    assert x.tolist() == [0, 0, 0, 0]
    varied.end()
    assert x.tolist() == [0, 1, 2, 3]


def test_tensors_are_put_back_where_there_was_no_room_to_vary_another(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, varied = torch.arange(4.0), torch.arange(4.0), Variation()

    def vary_first(tensor: torch.Tensor, way: Any, number: int) -> Any:
        if tensor is second:
            raise torch.OutOfMemoryError
        return vary(tensor, way, number)

    monkeypatch.setattr("pytest_gpubench.correctness.variation.vary", vary_first)
    with pytest.raises(torch.OutOfMemoryError):
        varied.begin("turned round", (first, second))
    assert first.tolist() == [3, 2, 1, 0]
    varied.end()
    assert first.tolist() == second.tolist() == [0, 1, 2, 3]
