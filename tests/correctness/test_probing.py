"""How much of its inputs a function needs, and every bit of them as it was."""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_gpubench.correctness import probing
from pytest_gpubench.correctness.probing import least_share, needed_share
from pytest_gpubench.timing.calls import Arguments
from tests.correctness.samples import COMPLEX, FLOATS, layouts, names, shapes
from tests.correctness.test_variation import any_bits, bits_of

PIECE_BYTES = 128
PROBES = 32

SEEDS = range(20)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def share(function: Callable[..., object], *args: object, seed: int = 0, **kwargs: object) -> float:
    return needed_share(function, lambda: (args, kwargs), seed)


def mean_share(function: Callable[..., object], *args: Any) -> float:
    kwargs = args[-1] if isinstance(args[-1], dict) else {}
    places = args[:-1] if kwargs else args
    return sum(share(function, *places, seed=seed, **kwargs) for seed in SEEDS) / len(SEEDS)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda x: x.softmax(-1), (randn(64, 200),)),
        (torch.add, (randn(64, 200), randn(64, 200))),
        (torch.add, (randn(5000), randn(5000).double())),
        (torch.matmul, (randn(40, 60), randn(60, 50))),
        (lambda x: (x * 2).bfloat16(), (randn(300, 3),)),
        (lambda x: {"y": [x.t() + 1]}, (randn(30, 30, 3)[:, 1],)),
        (torch.exp, (randn(900, 1),)),
        (torch.neg, (randn(2),)),
        (torch.neg, (torch.complex(randn(40, 9), randn(40, 9)),)),
        (lambda x, i: x * 2, (randn(64, 64), torch.arange(64))),
        (torch.neg, (torch.ones(64, 64),)),
        (torch.neg, (torch.full((64, 64), -3.0).half(),)),
        (torch.neg, (torch.nn.Parameter(randn(64)),)),
        (torch.neg, (randn(2, 30, 4).permute(2, 0, 1),)),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_all_that_is_read_matters(function: Callable[..., object], args: Sequence[object], seed: int) -> None:
    assert share(function, *args, seed=seed) == 1.0


@pytest.mark.parametrize(
    ("function", "args", "least", "most"),
    [
        (lambda x, dy: x * 2, (randn(64, 64), randn(64, 64)), 0.45, 0.55),
        (lambda x, dy: dy * 2, (randn(64, 64), randn(32).half()), 0.0, 0.02),
        (lambda x: x[: len(x) // 4] * 2, (randn(1024, 8),), 0.2, 0.3),
        (lambda x: x[:, ::4] * 2, (randn(32, 32, 32),), 0.2, 0.3),
        (lambda x: x.tril(), (randn(60, 192),), 0.1, 0.22),
        (lambda x: x.tril(), (randn(160, 160),), 0.42, 0.6),
        (lambda table, rows: table[rows], (randn(1000, 32), torch.arange(0, 1000, 100)), 0.0, 0.03),
        (lambda x, *, w: x * 2, (randn(64, 64), {"w": randn(3, 64, 64)}), 0.2, 0.3),
    ],
)
def test_as_much_as_matters(function: Callable[..., object], args: Sequence[object], least: float, most: float) -> None:
    """On average over 20 seeds, of 32 lines each; keywords, in a last dict, are inputs too."""
    assert least <= mean_share(function, *args) <= most


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda x, numbers: x + next(numbers), (randn(64), itertools.count())),
        (lambda i: i * 2, (torch.arange(99),)),
        (lambda x: x * 2.0, (torch.ones(99, dtype=torch.bool),)),
        (lambda: torch.ones(9), ()),
        (lambda x: torch.ones(9), (randn(64),)),
        (lambda x: None, (randn(64),)),
        (lambda x: x.sum().item(), (randn(64),)),
        (lambda x: x + 1, (randn(1),)),
        (lambda x: x * 2, (torch.zeros(64),)),
    ],
    ids=["not twice", "integers", "truths", "no inputs", "constant", "None", "a number", "one element", "zeros"],
)
def test_where_nothing_is_known_to_matter(function: Callable[..., object], args: Sequence[object]) -> None:
    assert share(function, *args) == 0.0


@pytest.mark.parametrize("dimension", [0, 1])
def test_it_errs_to_the_low_side_where_the_order_does_not_matter(dimension: int) -> None:
    """A line is turned round: sums within a line do not change but for their rounding, sums across lines do."""
    whole = torch.arange(64.0 * 64).reshape(64, 64)
    assert share(torch.sum, whole) == 0.0
    assert share(torch.amax, whole) < 0.2
    assert 0.0 <= share(torch.sum, randn(64, 64)) <= 1.0
    assert share(lambda x: x.sum(dimension), whole) == (0.0 if dimension else 1.0)


# inputs are as they were


class Refused(Exception):
    """What a function says of inputs that it does not like."""


@settings(deadline=None, max_examples=60)
@given(
    shape=shapes,
    dtype=st.sampled_from([*FLOATS, *COMPLEX]),
    layout=names,
    seed=st.integers(0, 2**32),
    piece=st.sampled_from([1, 8, 24, 128]),
    good_calls=st.integers(0, 40),
)
def test_every_bit_comes_back(
    shape: tuple[int, ...], dtype: torch.dtype, layout: str, seed: int, piece: int, good_calls: int
) -> None:
    """Also where the function raises at some call."""
    tensor = layouts(any_bits(shape, dtype, seed))[layout]
    whole = tensor._base if tensor._base is not None else tensor
    around, version, calls = bits_of(whole), tensor._version, itertools.count()

    def function(x: torch.Tensor, again: object) -> torch.Tensor:
        if next(calls) >= good_calls:
            raise Refused
        return x.clone()

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Refused):
        patch.setattr(probing, "PIECE_BYTES", piece)
        share(function, tensor, [tensor], seed=seed)
    assert bits_of(whole) == around
    assert tensor._version == version


def test_one_line_is_changed_at_a_time() -> None:
    x = randn(50, 100)
    before, changes = x.clone(), []

    def function(x: torch.Tensor) -> torch.Tensor:
        changes.append((x != before).nonzero())
        return x * 2

    assert share(function, x) == 1.0
    first, second, *probes = changes
    assert len(first) == len(second) == 0
    assert len(probes) == PROBES
    assert all(0 < len(probe) <= PIECE_BYTES // 4 for probe in probes)
    assert all(len(set(probe[:, 0].tolist())) == 1 for probe in probes)
    assert len({int(probe[0, 0]) for probe in probes}) > 10


@pytest.mark.parametrize("make", [lambda x, buffer: (x.clone(),), lambda x, buffer: (buffer.copy_(x),)])
def test_a_function_that_overwrites_what_setup_made(
    make: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor]],
) -> None:
    x = randn(64, 64)
    before, buffer = bits_of(x), torch.empty_like(x)
    arguments = Arguments((), {}, lambda: make(x, buffer))
    assert needed_share(lambda x: x.mul_(2), arguments.fresh) == 1.0
    assert needed_share(lambda x: x[:0], arguments.fresh) == 0.0
    assert bits_of(x) == before


# lines


@pytest.mark.parametrize(("hits", "least"), [(0, 0.0), (1, 0.0), (16, 0.23), (32, 0.806)])
def test_the_least_share_that_would_show_as_much(hits: int, least: float) -> None:
    assert least_share(hits / 32) == pytest.approx(least, abs=0.02)


def test_a_function_that_refuses_a_line_is_let_be() -> None:
    x = torch.arange(1000.0)

    def rising(x: torch.Tensor) -> torch.Tensor:
        if bool((x.diff() < 0).any()):
            raise ValueError("x must rise")
        return x * 2

    assert needed_share(rising, lambda: ((x,), {})) == 0.0
    assert torch.equal(x, torch.arange(1000.0))
