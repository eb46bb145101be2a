"""Each row of a batch is computed as it is in a batch of its own, bit by bit."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import pytest
import torch

from pytest_gpubench import BadRequest, WrongResult
from pytest_gpubench.bench.batch_invariance import check_batch_invariance
from tests.bench.calls import agreement_of, double

MOST_ROWS = 8
X = torch.arange(12.0).reshape(4, 3)
WEIGHT = torch.ones(4)


def check(function: Callable[..., object], *args: Any, batched: Any = True) -> None:
    check_batch_invariance(agreement_of(function, *args), "mine", function, batched)


def off_by(rows: tuple[int, ...], less: float = 0.0) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that adds 2^-3 to these rows of a batch, less to later ones."""

    def function(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        for place, row in enumerate(rows):
            if len(x) > 1:
                out[row, 1] += 0.125 - place * less
        return out

    return function


def rows_of_both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


@pytest.mark.parametrize(
    ("function", "args", "batched"),
    [
        (double, (X,), True),
        (double, (X[:, :0],), True),
        (double, (X.bool(),), True),
        (double, (X.to(torch.complex64).conj(),), True),
        (lambda x: x / 0 - x / 0, (X,), True),
        (lambda x, weight: x.T.mul(weight[: len(x)]).T, (X, WEIGHT), True),
        (rows_of_both, (X, X), True),  # one tensor twice stays one
        (rows_of_both, (X, X + 1), ("args[0]", "args[1]")),
        (lambda pair: {"sum": pair[0] + pair[1], "count": 3}, ((X, X + 1),), ("args[0]",)),
        (lambda weight, x: x * 2, (WEIGHT, X), ("args[1]",)),
        (lambda x: torch.rand(3) * x, (X,), True),  # each call draws the same
        (off_by((0,)), (X,), False),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), (X,), True),
    ],
)
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_a_batch_whose_rows_stand_alone(function: Callable[..., object], args: Any, batched: Any) -> None:
    check(function, *args, batched=batched)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            off_by((2,)),
            "row 2 of out differs from that of a batch of one in 1 of 3 elements, by up to 0.12 (1 of 4 rows",
        ),
        (off_by((1, 3), less=0.1), "row 1 of out differs * by up to 0.12 (2 of 4 rows tried differ)"),
        (off_by((1, 3), less=-0.1), "row 3 of out differs * by up to 0.23 (2 of 4 rows tried differ)"),
        (lambda x: (x, x - x[-1]), "row 0 of out[[]1[]] differs * in 3 of 3 elements, by up to 9 (3 of 4 rows"),
        (lambda x: x * 0 if len(x) > 1 else -x * 0, "in the sign of a zero or the bits of a NaN only (4 of 4 rows"),
        (lambda x: x / 0 * 0 if len(x) > 1 else x, "by up to inf (4 of 4 rows"),
        (lambda x: x if len(x) > 1 else x.double(), "for a batch of one row it returns *'torch.float64'*"),
    ],
)
def test_a_row_that_depends_on_its_batch(function: Callable[..., object], words: str) -> None:
    with pytest.raises(WrongResult) as caught:
        check(function, X)
    assert fnmatchcase(str(caught.value), f"mine is not batch-invariant: *{words}*"), caught.value


@pytest.mark.parametrize(
    ("function", "args", "batched", "words"),
    [
        (lambda x: x.sum(), (X,), True, "out of 'mine' has no batch axis: its shape is () for a batch of 4"),
        (lambda x: x.T, (X,), True, "out of 'mine' has no batch axis: its shape is (3, 4) for a batch of 4"),
        (lambda x: WEIGHT, (X,), True, "out of 'mine' has no batch axis: its shape is (4,) for a batch of 1"),
        (lambda x: x.mul_(1) and None if x.numel() == 1 else None, (X,), True, "'mine' returns no tensor"),
        (lambda: X, (), True, "needs a dense tensor with rows, but none is among the arguments"),
        (double, (X.to_sparse(),), True, "needs a dense tensor with rows"),
        (double, (X[:1],), True, "takes the rows of args[0], which has shape (1, 3): give it two rows or more"),
        (double, (torch.tensor(1.0),), True, "takes the rows of args[0], which has shape ()"),
        (rows_of_both, (X, X[0]), ("args[0]", "args[1]"), "args[0], which has 4, and of args[1], which has 3"),
        (double, (X,), ("args[1]",), "batch_invariant= names 'args[1]', but the arguments are args[0]"),
        (double, (X,), "args[0]", "batch_invariant= must be True, or names of arguments"),
        (double, (X,), 1, "batch_invariant= must be True, or names of arguments"),
    ],
)
def test_what_has_no_rows(function: Callable[..., object], args: Any, batched: Any, words: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check(function, *args, batched=batched)
    assert words in str(caught.value)


def test_rows_are_spread_over_a_large_batch() -> None:
    seen: list[float] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        if len(x) == 1:
            seen.append(float(x[0, 0]))
        return x * 2

    check(function, torch.arange(100.0)[:, None])
    assert len(seen) == MOST_ROWS
    assert (seen[0], seen[-1]) == (0, 99)


def test_arguments_are_left_as_they_were() -> None:
    x = X.clone()
    check(lambda x: x.mul_(2), x)
    assert torch.equal(x, X)
