"""Arguments that hold a reference's result before it is called."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench import BadRequest, WrongResult
from tests.bench.calls import agreement_of

X = torch.arange(1.0, 9.0)


def into(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.mul(x, 2, out=out)


def into_without_output(x: torch.Tensor, out: torch.Tensor) -> None:
    torch.mul(x, 2, out=out)


def half(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    torch.mul(x[:4], 2, out=out[:4])
    return out


def half_without_output(x: torch.Tensor, out: torch.Tensor) -> None:
    half(x, out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize(
    ("reference", "candidate"), [(into, half), (into, lambda x, out: out), (into_without_output, half_without_output)]
)
def test_what_a_candidate_does_not_write_is_seen(
    reference: Callable[..., object], candidate: Callable[..., object], dtype: torch.dtype
) -> None:
    x = X.to(dtype)
    out = x * 2
    agreement = agreement_of(reference, x, out)

    def check(function: Callable[..., object]) -> tuple[str, ...]:
        with agreement.leaving_state():
            expected = agreement.run_reference()
            agreement.check("mine", function, expected)
            return tuple(expected.changed)

    assert check(reference) == ("args[1]",)
    with pytest.raises(WrongResult, match=r"^mine is wrong: .*args\[1\]: "):
        check(candidate)
    assert torch.equal(out, x * 2)


@pytest.mark.parametrize(
    "reference",
    [
        lambda x, out: out,
        lambda x, out: out[2:],
        lambda x, out: out.add_(0),
        lambda x, out: out.copy_(torch.maximum(out, x)),
        lambda x, out: out[:4].copy_(x[:4] * 2),
        lambda x, out: (bool(out.isnan().any()) and 1 / 0) or out.copy_(x * 2),
    ],
)
def test_what_the_reference_reads_stays(reference: Callable[..., Any]) -> None:
    out = X * 2
    agreement = agreement_of(reference, X, out)
    expected = agreement.run_reference()
    assert expected.changed == ()
    agreement.fresh()
    assert torch.equal(out, X * 2)
    assert agreement.arguments.flags() == []
    agreement.check("mine", lambda x, out: reference(x, out.clone()), expected)


def test_a_result_that_is_there_but_for_rounding_is_not_left_there() -> None:
    agreement = agreement_of(into_without_output, X, X * 2 * (1 + 2**-23))
    expected = agreement.run_reference()
    assert expected.changed == ("args[1]",)
    with pytest.raises(WrongResult, match=r"^mine is wrong: args\[1\]: 4 of 8"):
        agreement.check("mine", half_without_output, expected)


class Layer:
    """Weights, and a cache that holds the result of an earlier call."""

    def __init__(self) -> None:
        self.keys = X * 2
        self.weights = [torch.full((8,), 2.0), *(torch.ones(2) for _ in range(9))]


def write(x: torch.Tensor, layer: Layer) -> None:
    layer.keys.copy_(x * layer.weights[0])


def write_and_return(x: torch.Tensor, layer: Layer) -> Layer:
    write(x, layer)
    return layer


@pytest.mark.parametrize("reference", [write, write_and_return])
def test_a_result_that_an_object_holds_is_not_left_there(reference: Callable[..., object]) -> None:
    """One call finds it, however many tensors the object holds."""
    calls, layer = [], Layer()

    def counted(x: torch.Tensor, layer: Layer) -> object:
        calls.append(1)
        return reference(x, layer)

    agreement = agreement_of(counted, X, layer)
    with agreement.leaving_state():
        expected = agreement.run_reference()
        assert (expected.changed, len(calls)) == (("args[1].keys",), 4)
        agreement.check("mine", reference, expected)
        with pytest.raises(WrongResult, match=r"^mine is wrong: args\[1\]\.keys: the candidate leaves it as it was"):
            agreement.check("mine", lambda x, layer: layer if reference(x, Layer()) else None, expected)
    assert torch.equal(layer.keys, X * 2)
    assert torch.equal(layer.weights[0], torch.full((8,), 2.0))


@pytest.mark.parametrize("error", [ValueError, torch.OutOfMemoryError])
def test_a_reference_that_refuses_other_values_in_an_object_has_nothing_to_compare(error: type[Exception]) -> None:
    layer = Layer()

    def reference(x: torch.Tensor, layer: Layer) -> None:
        if not layer.weights[0].eq(2).all():
            raise error("other values")

    agreement = agreement_of(reference, X, layer)
    with pytest.raises(BadRequest, match=r"^there is nothing to compare: .*; let it return its results$"):
        agreement.run_reference()
    agreement.fresh()
    assert torch.equal(layer.weights[0], torch.full((8,), 2.0))


def test_what_objects_hold_is_not_tried_where_an_argument_is_the_result() -> None:
    """They may hold hundreds of weights."""
    calls, model = [], SimpleNamespace(weights=[torch.ones(2) for _ in range(9)])

    def reference(x: torch.Tensor, model: object, out: torch.Tensor) -> None:
        calls.append(1)
        torch.mul(x, 2, out=out)

    assert agreement_of(reference, X, model, X * 2).run_reference().changed == ("args[2]",)
    assert len(calls) == 3


# arguments that setup gives


class Seen:
    """A reference, and what its second argument held when it was called."""

    def __init__(self, reference: Callable[..., object]) -> None:
        self.reference = reference
        self.values: list[list[float]] = []

    def __call__(self, x: torch.Tensor, other: torch.Tensor) -> object:
        self.values.append(other.tolist())
        return self.reference(x, other)


def step(table: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = table[position.long()]
    return out, position.add_(1)


@pytest.mark.parametrize("is_kept", [False, True])
def test_what_a_call_changes_under_setup_was_no_result_before(is_kept: bool) -> None:
    """Such as a position in a table, which must not be NaN."""
    reference, position = Seen(step), torch.tensor([2.0])
    agreement = agreement_of(reference, setup=lambda: (X, position if is_kept else position.clone()))
    expected = agreement.run_reference()
    assert reference.values == [[2]]
    agreement.check("mine", step, expected)


def test_a_reference_without_results_is_called_with_setup_once() -> None:
    reference = Seen(into_without_output)
    with pytest.raises(BadRequest, match=r"^there is nothing to compare: "):
        agreement_of(reference, setup=lambda: (X.clone(), X * 3)).run_reference()
    assert reference.values == [(X * 3).tolist()]


def test_a_result_that_setup_gives_is_not_left_there() -> None:
    agreement = agreement_of(into, setup=lambda: (X, X * 2))
    expected = agreement.run_reference()
    with pytest.raises(WrongResult, match=r"^mine is wrong: out: "):
        agreement.check("mine", lambda x, out: out, expected)
