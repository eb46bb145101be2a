"""Shapes: within their bounds, where kernels break, and shrunk to the smallest."""

import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument, NoSuchExample
from hypothesis.strategies import SearchStrategy

from pytest_gpubench import strategies as gst
from pytest_gpubench.strategies.sizes import is_prime, place_of, size_at

T = TypeVar("T")
MANY = 300
SHRINKING = settings(max_examples=2000, database=None, deadline=None, phases=[Phase.generate, Phase.shrink])


def draws(strategy: SearchStrategy[T], number: int = MANY) -> list[T]:
    """Return what a strategy draws with a fixed seed."""
    drawn: list[T] = []

    @seed(1)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        drawn.append(value)

    collect()
    return drawn


def smallest(strategy: SearchStrategy[T], broken: Callable[[T], object], number: int) -> T:
    return find(strategy, lambda value: bool(broken(value)), random=random.Random(number), settings=SHRINKING)


@cache
def default_shapes() -> list[tuple[int, ...]]:
    return draws(gst.shapes())


class TestScale:
    @given(place=st.integers(0, 3000))
    def test_every_place_is_found_again(self, place: int) -> None:
        assert size_at(place) < size_at(place + 1)
        assert place_of(size_at(place)) == place
        assert place_of(size_at(place + 1) - 1) == place

    def test_it_is_exact_below_128(self) -> None:
        assert [size_at(place) for place in range(140)] == [
            *range(130),
            131, 132, 133, 135, 136, 137, 139, 140, 141, 143,
        ]  # fmt: skip

    def test_primes(self) -> None:
        known = [number for number in range(2, 3000) if all(number % other for other in range(2, number))]
        assert [number for number in range(-1, 3000) if is_prime(number)] == known
        assert is_prime(2**31 - 1)
        assert not any(map(is_prime, (2047, 1373653, 25326001, 2**31 + 1)))


class TestWhereKernelsBreak:
    KINDS: ClassVar[dict[str, Callable[[int], object]]] = {
        "one": lambda size: size == 1,
        "prime": is_prime,
        "power of two": lambda size: size > 4 and size & (size - 1) == 0,
        "above a power of two": lambda size: size > 4 and (size - 1) & (size - 2) == 0,
        "below a power of two": lambda size: size > 4 and size & (size + 1) == 0,
        **{
            f"tile of {tile}, {beside:+}": lambda size, tile=tile, beside=beside: (  # type: ignore[misc]
                size > tile + beside and (size - beside) % tile == 0
            )
            for tile in (16, 32, 64, 128)
            for beside in (-1, 0, 1)
        },
        "neither small nor round": lambda size: size > 128 and size % 2,
        "above 1000": lambda size: size > 1000,
        "above 65536": lambda size: size > 65536,
    }

    def test_each_kind_of_size_is_common(self) -> None:
        drawn = default_shapes()
        assert {len(shape) for shape in drawn} == {2}
        for name, kind in self.KINDS.items():
            share = sum(any(map(kind, shape)) for shape in drawn) / len(drawn)
            assert share >= 0.03, name

    def test_either_side_may_be_the_long_one(self) -> None:
        drawn = default_shapes()
        assert sum(rows > 4096 for rows, _ in drawn) >= 0.03 * MANY
        assert sum(columns > 4096 for _, columns in drawn) >= 0.03 * MANY

    def test_zero_only_where_it_is_allowed(self) -> None:
        assert not any(0 in shape for shape in default_shapes())
        assert sum(0 in shape for shape in draws(gst.shapes(min_side=0))) >= 0.03 * MANY
        assert set(draws(gst.shapes(min_side=0, max_side=0), 9)) == {(0, 0)}
        assert set(draws(gst.ragged_lengths(max_count=1, max_length=0), 9)) == {(0,)}

    def test_more_than_2_to_the_31_elements_only_where_there_is_room(self) -> None:
        limit = 2**31 + 2**25
        drawn = [math.prod(shape) for shape in draws(gst.shapes(dtype="int8", max_bytes=limit), 100)]
        assert sum(2**31 < number <= limit for number in drawn) >= 3
        assert not any(number >= 2**31 for number in map(math.prod, draws(gst.shapes(max_bytes=limit), 100)))


SHAPES: list[tuple[dict[str, Any], Callable[[Any], object], set[tuple[int, ...]]]] = [
    ({}, lambda shape: True, {(1, 1)}),
    ({}, lambda shape: shape[0] % 64, {(1, 1)}),
    ({"min_side": 128}, lambda shape: shape[1] % 16, {(128, 129)}),
    ({}, lambda shape: shape[1] > 100 and shape[1] % 16, {(1, 101)}),
    ({}, lambda shape: shape[0] > 65536, {(65537, 1)}),
    ({"max_bytes": "16GiB"}, lambda shape: shape[0] > 65536, {(65537, 1)}),
    ({"min_side": 0}, lambda shape: True, {(0, 0)}),
    ({"multiple_of": 16}, lambda shape: shape[1] >= 100, {(16, 112)}),
    ({"dims": (1, 3)}, lambda shape: math.prod(shape) >= 7, {(7,)}),
    ({"dims": (1, 3)}, lambda shape: len(shape) > 1, {(1, 1)}),
    ({"min_side": (3, 5), "multiple_of": (1, 4)}, lambda shape: True, {(3, 8)}),
]


class TestShrinking:
    @pytest.mark.parametrize(("options", "broken", "expected"), SHAPES)
    @pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
    def test_shapes(
        self, options: dict[str, Any], broken: Callable[[Any], object], expected: set[tuple[int, ...]], number: int
    ) -> None:
        assert smallest(gst.shapes(**options), broken, number) in expected

    def test_a_product_shrinks_to_just_over_its_limit(self) -> None:
        found = smallest(gst.shapes(max_bytes="16GiB"), lambda shape: math.prod(shape) > 2**31, 1)
        assert 2**31 < math.prod(found) < 1.01 * 2**31

    def test_other_shapes(self) -> None:
        assert smallest(gst.matmul_shapes(), lambda s: s.k > 32 and s.m > 16, 0) == gst.MatmulShape(m=17, n=1, k=33)
        found = smallest(gst.attention_shapes(), lambda s: s.queries > 128, 0)
        assert found == gst.AttentionShape(1, 1, 1, queries=129, keys=129, head_dim=64)
        assert smallest(gst.attention_shapes(), lambda s: s.heads > s.kv_heads, 0) == (1, 2, 1, 1, 1, 64)
        assert smallest(gst.ragged_lengths(max_count=8), lambda s: True, 0) == (0,)
        assert smallest(gst.ragged_lengths(max_count=8), lambda s: len(set(s)) > 1, 0) in {(0, 1), (1, 0)}


class TestBounds:
    @settings(max_examples=50, deadline=None)
    @given(data=st.data())
    def test_shapes(self, data: st.DataObject) -> None:
        multiple = data.draw(st.integers(1, 40))
        least = data.draw(st.integers(0, 300))
        most = data.draw(st.integers(least + multiple, 5000))
        limit = data.draw(st.integers(2 * (least + multiple) ** 2, 10**7))
        options: dict[str, Any] = {"min_side": least, "max_side": most, "multiple_of": multiple}
        shape = data.draw(gst.shapes(**options, max_bytes=limit, dtype="float16"))
        assert all(least <= side <= most and side % multiple == 0 for side in shape)
        assert 2 * math.prod(shape) <= limit
        m, n, k = data.draw(gst.matmul_shapes(**options, max_bytes=3 * limit, dtype="float16"))
        assert all(least <= side <= most and side % multiple == 0 for side in (m, n, k))
        assert 2 * (m * k + k * n + m * n) <= 3 * limit

    @settings(max_examples=50, deadline=None)
    @given(data=st.data())
    def test_attention(self, data: st.DataObject) -> None:
        limit = data.draw(st.integers(4 * 128 * 2, 10**7))
        heads = data.draw(st.integers(1, 20))
        drawn = data.draw(gst.attention_shapes(max_batch=3, max_heads=heads, head_dims=(80, 128), max_bytes=limit))
        assert drawn.batch <= 3
        assert drawn.heads <= heads
        assert drawn.heads % drawn.kv_heads == 0
        assert 4 * (math.prod(drawn.q) + math.prod(drawn.kv)) <= limit
        alone = data.draw(gst.attention_shapes(cross=False, grouped=False, min_length=0, max_bytes=limit))
        assert (alone.heads, alone.queries) == (alone.kv_heads, alone.keys)

    @settings(max_examples=50, deadline=None)
    @given(data=st.data())
    def test_ragged(self, data: st.DataObject) -> None:
        least, count = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
        total = data.draw(st.integers(least * count, 300))
        lengths = data.draw(
            gst.ragged_lengths(min_count=count, max_count=9, min_length=least, max_length=100, max_total=total)
        )
        assert count <= len(lengths) <= 9
        assert sum(lengths) <= total
        assert all(least <= length <= 100 for length in lengths)

    def test_kinds_of_ragged_batches_and_of_attention(self) -> None:
        lengths = draws(gst.ragged_lengths(max_count=8))
        assert any(len(batch) > 3 and len(set(batch)) == 1 for batch in lengths)
        assert any(len(batch) > 3 and max(batch) > 50 * sorted(batch)[-2] for batch in lengths)
        assert any(0 in batch and max(batch) > 0 for batch in lengths)
        attention = draws(gst.attention_shapes(max_bytes="512MiB"))
        assert sum(each.queries == 1 < each.keys for each in attention) >= 0.03 * MANY
        assert sum(each.heads > each.kv_heads for each in attention) >= 0.03 * MANY
        assert any(each.batch > 1 for each in attention)

    def test_the_shapes_of_the_parts(self) -> None:
        assert gst.MatmulShape(2, 3, 4).a == (2, 4)
        assert gst.MatmulShape(2, 3, 4).b == (4, 3)
        attention = gst.AttentionShape(2, 8, 4, 10, 20, 64)
        assert attention.q == (2, 8, 10, 64)
        assert attention.kv == (2, 4, 20, 64)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: gst.shapes(max_bytes=3), r"max_bytes=3 is too small: a tensor of the smallest .* \(1, 1\), takes 4 bytes"),
    (lambda: gst.shapes(min_side=64, max_bytes="8KiB"), r"max_bytes=8192 is too small: .* \(64, 64\), takes 16384"),
    (lambda: gst.shapes(min_side=5, max_side=4), "min_side=5 is larger than max_side=4"),
    (lambda: gst.shapes(multiple_of=17, max_side=16), "no multiple of 17 lies between min_side=1 and max_side=16"),
    (lambda: gst.shapes(min_side=17, max_side=31, multiple_of=16), "no multiple of 16 lies between min_side=17 and"),
    (lambda: gst.shapes(min_side=-1), "min_side=-1 is not valid: it must be at least 0"),
    (lambda: gst.shapes(multiple_of=0), "multiple_of=0 is not valid: it must be at least 1"),
    (lambda: gst.shapes(min_side=1.5), "min_side=1.5 is not valid: it must be a whole number"),  # type: ignore[arg-type]
    (lambda: gst.shapes(dims=-1), "dims=-1 is not valid: it must be at least 0"),
    (lambda: gst.shapes(dims=True), "dims=True is not valid: it must be a whole number"),
    (lambda: gst.shapes(dims=(2, 1)), r"dims=\(2, 1\) has a least that is larger than its most"),
    (lambda: gst.shapes(dims=(1, 2, 3)), "give an int, or the least and the most"),  # type: ignore[arg-type]
    (lambda: gst.shapes(min_side=(1, 2, 3)), r"min_side=\(1, 2, 3\) has 3 entries for dims=2 sides"),
    (lambda: gst.shapes(dims=(1, 2), max_side=(3, 4)), "entries for a number of dimensions that is drawn"),
    (lambda: gst.shapes(dtype="float31"), "dtype='float31' is not known: choose from float32, float16"),
    (lambda: gst.shapes(max_bytes="64 Mb per GPU"), "max_bytes='64 Mb per GPU' is not valid"),
    (lambda: gst.shapes(max_bytes=-1), "max_bytes=-1 is not valid: it must be at least 0"),
    (lambda: gst.matmul_shapes(max_bytes=11), r"a matrix product of the smallest .* takes 12 bytes"),
    (lambda: gst.matmul_shapes(min_side=3, max_side=2), "min_side=3 is larger than max_side=2"),
    (lambda: gst.attention_shapes(max_bytes=511), r"attention of the smallest .* takes 512 bytes"),
    (lambda: gst.attention_shapes(head_dims=()), r"head_dims=\(\) holds no sizes"),
    (lambda: gst.attention_shapes(head_dims=(0,)), r"head_dims\[0\]=0 is not valid: it must be at least 1"),
    (lambda: gst.attention_shapes(max_heads=0), "max_heads=.* is not valid: it must be at least 1"),
    (lambda: gst.attention_shapes(min_length=9, max_length=8), "min_length=9 is larger than max_length=8"),
    (lambda: gst.matmul_shapes(batch=-1), "batch=.* is not valid: it must be at least 0"),
    (lambda: gst.matmul_shapes(batch=(2, 1)), r"batch=\(2, 1\) has a least that is larger"),
    (lambda: gst.matmul_shapes(batch=(1, 2, 3)), r"batch=\(1, 2, 3\) is no number of dimensions"),  # type: ignore[arg-type]
    (lambda: gst.matmul_shapes(batch="1"), "batch='1' is not valid: it must be a whole number"),  # type: ignore[call-overload]
    (lambda: gst.matmul_shapes(batch=1, max_batch=0), "max_batch=.* is not valid: it must be at least 1"),
    (lambda: gst.attention_shapes(cross="no"), "cross='no' is not valid: it must be True or False"),  # type: ignore[arg-type]
    (lambda: gst.ragged_lengths(min_count=2, max_count=1), "min_count=2 is larger than max_count=1"),
    (lambda: gst.ragged_lengths(min_count=3, min_length=4, max_total=11), "max_total=11 is too small for min_count=3"),
]


class TestRefused:
    @pytest.mark.parametrize(("ask", "reason"), REFUSED)
    def test_invalid_arguments(self, ask: Callable[[], object], reason: str) -> None:
        with pytest.raises(InvalidArgument, match=reason):
            ask()

    @pytest.mark.parametrize(
        ("ask", "least"),
        [
            (lambda: gst.shapes(max_bytes=4), (1, 1)),
            (lambda: gst.shapes(min_side=64, max_bytes="16KiB"), (64, 64)),
            (lambda: gst.shapes(multiple_of=16, max_side=16), (16, 16)),
            (lambda: gst.shapes(dims=0), ()),
            (lambda: gst.matmul_shapes(max_bytes=12), (1, 1, 1)),
            (lambda: gst.attention_shapes(max_bytes=512), (1, 1, 1, 1, 1, 64)),
            (lambda: gst.ragged_lengths(min_count=3, min_length=4, max_total=12), (4, 4, 4)),
        ],
    )
    def test_just_enough(self, ask: Callable[[], SearchStrategy[Any]], least: Sequence[int]) -> None:
        assert set(draws(ask(), 20)) == {tuple(least)}


@pytest.mark.parametrize("batch", [0, 1, 3, (0, 2)])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_batches_of_matrices(batch: int | tuple[int, int], data: st.DataObject) -> None:
    shape = data.draw(gst.matmul_shapes(batch=batch, max_batch=6, max_bytes=4000, dtype="float16"))
    least, most = batch if isinstance(batch, tuple) else (batch, batch)
    assert least <= len(shape.batch) <= most
    assert all(side >= 1 for side in shape.batch)
    matrices = math.prod(shape.batch)
    assert matrices <= 6
    assert 2 * matrices * (shape.m * shape.k + shape.k * shape.n + shape.m * shape.n) <= 4000
    assert (shape.a, shape.b) == ((*shape.batch, shape.m, shape.k), (*shape.batch, shape.k, shape.n))


def test_batches_shrink_to_fewest() -> None:
    shapes = gst.matmul_shapes(batch=(0, 2))
    assert smallest(shapes, lambda shape: True, 0) == ((), 1, 1, 1)
    assert smallest(shapes, lambda shape: math.prod(shape.batch) > 3, 0) == ((4,), 1, 1, 1)
    assert smallest(shapes, lambda shape: len(shape.batch) > 1, 0) == ((1, 1), 1, 1, 1)


def test_a_batch_has_room_for_each_matrix() -> None:
    shapes = gst.matmul_shapes(batch=1, max_bytes=24)  # of 12 bytes each
    found = {find(shapes, lambda s, n=n: s.batch == (n,)).batch for n in (1, 2)}  # type: ignore[misc]
    assert found == {(1,), (2,)}
    with pytest.raises(NoSuchExample):
        find(shapes, lambda s: s.batch[0] > 2, settings=settings(database=None))
