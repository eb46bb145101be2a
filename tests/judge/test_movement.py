"""Which references only move data, so that a copy engine of a GPU could do their work."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import pad

from pytest_gpubench.judge.movement import moves_data

X = torch.randn(64, 64)
HALF = X.bfloat16()
ROWS = torch.randint(64, (10,))
COMPLEX = torch.randn(8, 8, dtype=torch.complex64)
MOVES: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
    "clone": (torch.clone, (X,)),
    "transpose": (lambda x: x.t().contiguous(), (X,)),
    "rows": (lambda x, rows: x[rows], (X, ROWS)),
    "upper half": (torch.triu, (X,)),
    "padding, beside zeros": (lambda x: pad(x, (1, 1)), (X.relu(),)),
    "bytes of a wider type": (lambda x: x.float(), (HALF,)),
    "padding with a value of the input": (lambda x: pad(x, (1, 1), value=2.0), (X.round(),)),
    "complex": (lambda x: x.t().contiguous(), (COMPLEX,)),
    "NaN": (torch.clone, (torch.where(X > 0, X, torch.nan),)),
    "nothing": (torch.zeros_like, (X,)),
    "two dtypes": (lambda x, y: torch.cat([x, y.float()]), (X, HALF)),
    "integers alone": (lambda rows: rows * 2, (ROWS,)),
}
COMPUTES: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
    "double": (lambda x: x * 2, (X,)),
    "negative": (torch.neg, (X,)),
    "relu": (torch.relu, (X,)),
    "maximum": (lambda x: x.amax(1), (X,)),
    "sort": (lambda x: x.sort(-1), (X,)),
    "place of the maximum": (lambda x: x.argmax(-1), (X,)),
    "sum": (torch.sum, (X,)),
    "softmax": (lambda x: x.softmax(-1), (HALF,)),
    "narrower type": (lambda x: x.half(), (X,)),
    "conjugate": (lambda x: x.conj().resolve_conj(), (COMPLEX,)),
    "one output of two": (lambda x: (x.clone(), x.sum()), (X,)),
}


@pytest.mark.parametrize("name", [*MOVES, *COMPUTES])
def test_a_reference_computes_where_other_values_do_not_give_those_outputs(name: str) -> None:
    function, args = (MOVES | COMPUTES)[name]
    assert moves_data(function, args) is (name in MOVES)


def test_inputs_that_leave_no_room_are_taken_for_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sorts all values."""

    def full(*given: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch, "unique", full)
    assert moves_data(torch.neg, (X,))


def test_the_example_stays_as_it_is() -> None:
    """Whatever the reference writes into what it is given, be it an index."""

    def scale_rows(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        x[rows] *= 2
        rows.zero_()
        return x

    given = X.clone(), ROWS.clone()
    assert not moves_data(scale_rows, given)
    assert torch.equal(given[0], X)
    assert torch.equal(given[1], ROWS)
