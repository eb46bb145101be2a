"""Strategies for shapes: of a tensor, a matrix product, attention and a ragged batch."""

import math
from collections.abc import Sequence
from typing import NamedTuple, overload

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument
from hypothesis.strategies import DrawFn, SearchStrategy

from pytest_gpubench.bounds import true_or_false
from pytest_gpubench.limits import memory_size
from pytest_gpubench.strategies.arguments import check_order, count_at_least, parsed
from pytest_gpubench.strategies.choices import DtypeLike, find_dtype
from pytest_gpubench.strategies.sizes import Range, sizes

INT32_ELEMENTS = 2**31
"""From here on, offsets do not fit into 32 bits."""

DEFAULT_BYTES = "64MiB"


class MatmulShape(NamedTuple):
    """The sizes of a matrix product: (m, k) times (k, n) is (m, n)."""

    m: int
    n: int
    k: int

    @property
    def a(self) -> tuple[int, int]:
        """The shape of the left matrix."""
        return self.m, self.k

    @property
    def b(self) -> tuple[int, int]:
        """The shape of the right matrix."""
        return self.k, self.n


class BatchedMatmulShape(NamedTuple):
    """The sizes of a batch of matrix products: (*batch, m, k) times (*batch, k, n) is (*batch, m, n)."""

    batch: tuple[int, ...]
    m: int
    n: int
    k: int

    @property
    def a(self) -> tuple[int, ...]:
        """The shape of the left matrices."""
        return *self.batch, self.m, self.k

    @property
    def b(self) -> tuple[int, ...]:
        """The shape of the right matrices."""
        return *self.batch, self.k, self.n


class AttentionShape(NamedTuple):
    """The sizes of attention; `heads` is a multiple of `kv_heads`."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int

    @property
    def q(self) -> tuple[int, int, int, int]:
        """The shape of the queries: (batch, heads, queries, head_dim)."""
        return self.batch, self.heads, self.queries, self.head_dim

    @property
    def kv(self) -> tuple[int, int, int, int]:
        """The shape of the keys and of the values: (batch, kv_heads, keys, head_dim)."""
        return self.batch, self.kv_heads, self.keys, self.head_dim


def shapes(
    *,
    dims: int | tuple[int, int] = 2,
    min_side: int | Sequence[int] = 1,
    max_side: int | Sequence[int | None] | None = None,
    multiple_of: int | Sequence[int] = 1,
    max_bytes: int | str = DEFAULT_BYTES,
    dtype: DtypeLike = "float32",
) -> SearchStrategy[tuple[int, ...]]:
    """Draw the shape of a tensor, with sides at which kernels break.

    Sides are 1, primes, powers of two and their neighbours, multiples of 16, 32, 64 and 128 and their neighbours, and
    anything between, small ones as often as large ones; 0 only where `min_side` is 0. Where `max_bytes` allows, some
    shapes have just over 2**31 elements. Shrinks towards fewest dimensions, and `min_side` for each side.

    * `dims` is the number of dimensions, or the fewest and the most: `(1, 3)`.
    * `min_side`, `max_side` and `multiple_of` hold for every side; with a fixed `dims`, each may be a sequence with one
      entry per side. A `max_side` of None leaves the limit to `max_bytes`.
    * `max_bytes` is the most that a tensor of this `dtype` may take: a number, or text such as "64MiB".

    Raises InvalidArgument if there is no such shape.
    """
    least, most = _dims(dims)
    item = find_dtype(dtype).itemsize
    limit = parsed(max_bytes, "max_bytes", memory_size)
    given = {"min_side": min_side, "max_side": max_side, "multiple_of": multiple_of}
    ranges = {}
    for number in range(least, most + 1):
        columns = [_per_side(asked, name, number, least == most) for name, asked in given.items()]
        sides = zip(*columns, strict=True)
        ranges[number] = [_range("side", low, high, multiple, limit // item) for low, high, multiple in sides]
    smallest = tuple(max(1, side.first) for side in ranges[least])
    _check_room(smallest, math.prod(smallest) * item, limit, "a tensor")
    fitting = [number for number in ranges if math.prod(max(1, side.first) for side in ranges[number]) * item <= limit]
    return st.sampled_from(fitting).flatmap(lambda number: _shapes(ranges[number], limit // item))


@overload
def matmul_shapes(
    *,
    batch: None = None,
    max_batch: int = 8,
    min_side: int = 1,
    max_side: int | None = None,
    multiple_of: int = 1,
    max_bytes: int | str = DEFAULT_BYTES,
    dtype: DtypeLike = "float32",
) -> SearchStrategy[MatmulShape]: ...


@overload
def matmul_shapes(
    *,
    batch: int | tuple[int, int],
    max_batch: int = 8,
    min_side: int = 1,
    max_side: int | None = None,
    multiple_of: int = 1,
    max_bytes: int | str = DEFAULT_BYTES,
    dtype: DtypeLike = "float32",
) -> SearchStrategy[BatchedMatmulShape]: ...


def matmul_shapes(
    *,
    batch: int | tuple[int, int] | None = None,
    max_batch: int = 8,
    min_side: int = 1,
    max_side: int | None = None,
    multiple_of: int = 1,
    max_bytes: int | str = DEFAULT_BYTES,
    dtype: DtypeLike = "float32",
) -> SearchStrategy[MatmulShape] | SearchStrategy[BatchedMatmulShape]:
    """Draw the sizes m, n and k of a matrix product, as `shapes` draws sides; shrinks towards `min_side` for each.

    * `batch` is the number of batch dimensions, or the fewest and the most: `(0, 2)`. It draws a `BatchedMatmulShape`,
      which shrinks towards fewest dimensions of size 1; None draws a `MatmulShape`.
    * `max_batch` is the most matrices in a batch, over all its dimensions.
    * `max_bytes` is the most that both inputs and the output of this `dtype` may take together.

    Raises InvalidArgument if there are no such sizes.
    """
    item = find_dtype(dtype).itemsize
    limit = parsed(max_bytes, "max_bytes", memory_size)
    side = _range("side", min_side, max_side, multiple_of, limit // item)
    least = max(1, side.first)
    _check_room((least,) * 3, 3 * least**2 * item, limit, "a matrix product")
    most_matrices = min(count_at_least(max_batch, "max_batch", least=1), limit // (3 * least**2 * item))
    if batch is None:
        return _matmul_shapes(side, limit // item)
    return _batched_matmul_shapes(_dims(batch, "batch"), most_matrices, side, limit // item)


def attention_shapes(
    *,
    max_batch: int = 8,
    max_heads: int = 32,
    grouped: bool = True,
    head_dims: Sequence[int] = (64, 128),
    min_length: int = 1,
    max_length: int | None = None,
    multiple_of: int = 1,
    cross: bool = True,
    max_bytes: int | str = DEFAULT_BYTES,
    dtype: DtypeLike = "float16",
) -> SearchStrategy[AttentionShape]:
    """Draw the sizes of attention, its lengths as `shapes` draws sides.

    Shrinks towards one batch, one head, the first of `head_dims` and as many queries as keys, `min_length` each.

    * `grouped` allows fewer heads of keys and values than of queries.
    * `min_length`, `max_length` and `multiple_of` hold for the number of queries and of keys.
    * `cross` allows other numbers of queries than of keys, often just one query (if `min_length` allows).
    * `max_bytes` is the most that queries, keys, values and output of this `dtype` may take together.

    Raises InvalidArgument if there are no such sizes.
    """
    item = find_dtype(dtype).itemsize
    limit = parsed(max_bytes, "max_bytes", memory_size)
    length = _range("length", min_length, max_length, multiple_of, limit // item)
    asked: object = head_dims
    if isinstance(asked, str) or not isinstance(asked, Sequence) or not asked:
        raise InvalidArgument(f"head_dims={asked!r} holds no sizes: give a tuple such as (64, 128)")
    dims = [count_at_least(size, f"head_dims[{number}]", least=1) for number, size in enumerate(head_dims)]
    least = max(1, length.first)
    _check_room((1, 1, 1, least, least, min(dims)), 4 * least * min(dims) * item, limit, "attention")
    return _attention_shapes(
        max_batch=count_at_least(max_batch, "max_batch", least=1),
        max_heads=count_at_least(max_heads, "max_heads", least=1),
        grouped=parsed(grouped, "grouped", true_or_false),
        head_dims=[size for size in dims if 4 * least * size * item <= limit],
        length=length,
        cross=parsed(cross, "cross", true_or_false),
        room=limit // item,
    )


def ragged_lengths(
    *,
    min_count: int = 1,
    max_count: int = 64,
    min_length: int = 0,
    max_length: int = 2048,
    max_total: int | None = None,
) -> SearchStrategy[tuple[int, ...]]:
    """Draw the lengths of the sequences of a ragged batch: all equal, one long among short ones, or any.

    Shrinks towards `min_count` sequences of `min_length` each. Their sum is at most `max_total`, unless that is None.
    Raises InvalidArgument if there are no such lengths.
    """
    check_order("count", count_at_least(min_count, "min_count"), count_at_least(max_count, "max_count"))
    length = _range("length", min_length, max_length, 1, max_length)
    total = max_count * max_length if max_total is None else count_at_least(max_total, "max_total")
    if min_count * min_length > total:
        raise InvalidArgument(
            f"max_total={total} is too small for min_count={min_count} sequences of min_length={min_length}: "
            f"at least {min_count * min_length} is needed"
        )
    most = min(max_count, total // min_length) if min_length else max_count
    return _ragged_lengths(min_count, most, length, total)


@st.composite
def _shapes(draw: DrawFn, ranges: Sequence[Range], room: int) -> tuple[int, ...]:
    first = draw(st.integers(0, max(0, len(ranges) - 1)))  # the side drawn first may take all the room
    order = [*range(first, len(ranges)), *range(first)]
    shape = [max(1, side.first) for side in ranges]
    for axis in order:
        beside = math.prod(max(1, size) for number, size in enumerate(shape) if number != axis)
        within = ranges[axis]._replace(most=min(ranges[axis].most, room // beside))
        last = axis == order[-1]
        shape[axis] = draw(_sizes_or_just_over(within, INT32_ELEMENTS // beside) if last else sizes(within))
    return tuple(shape)


@st.composite
def _sizes_or_just_over(draw: DrawFn, within: Range, threshold: int) -> int:
    """Draw the length of a side, one in four just over a threshold; shrinks towards the smallest."""
    over = within.multiple_of * (threshold // within.multiple_of + 1)
    if not within.first <= over <= within.last:
        return draw(sizes(within))
    # the same choices follow either way, so that hypothesis can shrink from just over the threshold to any size
    above = Range(over, min(within.most, over + over // 64), within.multiple_of)
    return draw(sizes(draw(st.sampled_from([within, within, within, above]))))


@st.composite
def _matmul_shapes(draw: DrawFn, side: Range, room: int) -> MatmulShape:
    first = draw(st.integers(0, 2))
    shape = [max(1, side.first)] * 3
    for axis in (first, (first + 1) % 3, (first + 2) % 3):
        one, other = (max(1, size) for number, size in enumerate(shape) if number != axis)
        most = (room - one * other) // (one + other)
        shape[axis] = draw(sizes(side._replace(most=min(side.most, most))))
    return MatmulShape(*shape)


@st.composite
def _batched_matmul_shapes(
    draw: DrawFn, dims: tuple[int, int], most_matrices: int, side: Range, room: int
) -> BatchedMatmulShape:
    batch: list[int] = []
    for _ in range(draw(st.integers(*dims))):
        batch.append(draw(st.integers(1, most_matrices // math.prod(batch))))
    return BatchedMatmulShape(tuple(batch), *draw(_matmul_shapes(side, room // math.prod(batch))))


@st.composite
def _attention_shapes(
    draw: DrawFn,
    *,
    max_batch: int,
    max_heads: int,
    grouped: bool,
    head_dims: Sequence[int],
    length: Range,
    cross: bool,
    room: int,
) -> AttentionShape:
    least = max(1, length.first)
    relation = draw(st.sampled_from(["equal", "any", "one query"] if cross else ["equal"]))
    head_dim = draw(st.sampled_from(head_dims))
    rows = room // (2 * head_dim)  # of queries and keys together, over batches and heads
    batch = draw(st.integers(1, min(max_batch, rows // (2 * least))))
    kv_heads = draw(st.integers(1, min(max_heads, rows // (2 * least * batch))))
    groups = min(max_heads // kv_heads, (rows // (batch * kv_heads) - least) // least)
    group = draw(st.integers(1, groups)) if grouped else 1
    rows //= batch * kv_heads
    if relation == "equal":
        queries = keys = draw(sizes(length._replace(most=min(length.most, rows // (group + 1)))))
    else:
        one_query = relation == "one query" and length.first <= 1 <= length.last
        most = min(length.most, (rows - least) // group)
        queries = 1 if one_query else draw(sizes(length._replace(most=most)))
        keys = draw(sizes(length._replace(most=min(length.most, rows - group * max(1, queries)))))
    return AttentionShape(batch, group * kv_heads, kv_heads, queries, keys, head_dim)


@st.composite
def _ragged_lengths(draw: DrawFn, min_count: int, max_count: int, length: Range, total: int) -> tuple[int, ...]:
    count = draw(st.integers(min_count, max_count))
    relation = draw(st.sampled_from(["equal", "any", "one long"]))
    if not count:
        return ()
    if relation == "equal":
        return (draw(sizes(length._replace(most=min(length.most, total // count)))),) * count
    short = length.least if relation == "any" else min(length.least + 1, total // count, length.most)
    if relation == "one long":
        long = draw(sizes(length._replace(most=min(length.most, total - short * (count - 1)))))
        place = draw(st.integers(0, count - 1))
        return tuple(long if number == place else short for number in range(count))
    lengths: list[int] = []
    for left in range(count - 1, -1, -1):
        most = min(length.most, total - sum(lengths) - left * length.least)
        lengths.append(draw(sizes(length._replace(most=most))))
    return tuple(lengths)


def _dims(asked: int | tuple[int, int], name: str = "dims") -> tuple[int, int]:
    if not isinstance(asked, tuple):
        return (count_at_least(asked, name),) * 2
    if len(asked) != 2:
        raise InvalidArgument(f"{name}={asked!r} is no number of dimensions: give an int, or the least and the most")
    least, most = (count_at_least(number, name) for number in asked)
    if least > most:
        raise InvalidArgument(f"{name}={asked!r} has a least that is larger than its most")
    return least, most


def _per_side(asked: object, name: str, dims: int, fixed: bool) -> Sequence[object]:
    if isinstance(asked, str) or not isinstance(asked, Sequence):
        return [asked] * dims
    if not fixed or len(asked) != dims:
        wanted = f"dims={dims} sides" if fixed else "a number of dimensions that is drawn"
        raise InvalidArgument(f"{name}={asked!r} has {len(asked)} entries for {wanted}: give one int, or one per side")
    return asked


def _range(name: str, least: object, most: object, multiple_of: object, room: int) -> Range:
    """Return the range of a side; without a given maximum, up to what there is room for."""
    multiple = count_at_least(multiple_of, "multiple_of", least=1)
    least = count_at_least(least, f"min_{name}")
    given = most is not None
    most = count_at_least(most, f"max_{name}") if given else max(room, least, multiple)
    check_order(name, least, most)
    found = Range(least, most, multiple)
    if found.first > found.last and given:
        raise InvalidArgument(f"no multiple of {multiple} lies between min_{name}={least} and max_{name}={most}")
    return found if given else found._replace(most=max(most, found.first))


def _check_room(smallest: tuple[int, ...], needed: int, limit: int, of: str) -> None:
    if needed > limit:
        raise InvalidArgument(
            f"max_bytes={limit} is too small: {of} of the smallest sizes allowed, {smallest}, takes {needed} bytes; "
            "raise max_bytes or lower the smallest sizes"
        )
