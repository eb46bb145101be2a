"""Tensors that functions reach without being given them."""

import functools
from collections.abc import Callable

import pytest
import torch

from pytest_gpubench.correctness.held import tensors_held

X = torch.ones(2)
TABLE = torch.nn.Embedding(2, 2)


class Runner:
    def __init__(self) -> None:
        self.buffer = torch.zeros(3)
        self.cache = {"a": [torch.zeros(1)]}

    def run(self) -> torch.Tensor:
        return self.buffer

    def __call__(self) -> torch.Tensor:
        return self.buffer


def closure() -> Callable[[], torch.Tensor]:
    x, pair = torch.ones(1), (torch.ones(2), "text")

    def inner() -> torch.Tensor:
        return x

    return lambda: inner() + pair[0]


def wrapped() -> Callable[[], torch.Tensor]:
    y = torch.ones(1)

    @functools.wraps(closure)
    def outer(f: object = None) -> torch.Tensor:
        return y

    return outer


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (torch.softmax, []),
        (len, []),
        (lambda: X * 2, ["X of <lambda>"]),
        (lambda: TABLE(X), ["TABLE of <lambda>", "X of <lambda>"]),
        (lambda x=X: x, ["[0] of <lambda>"]),
        (closure(), ["x of <lambda>", "pair[0] of <lambda>"]),
        (functools.partial(torch.add, X, alpha=2), ["[0] of partial"]),
        (X.mul_, ["itself of mul_"]),
        (torch.nn.BatchNorm1d(2), ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]),
        (Runner(), ["buffer of Runner", "cache['a'][0] of Runner"]),
        (Runner().run, ["buffer of run", "cache['a'][0] of run"]),
        (wrapped(), ["y of closure"]),
        (torch.compile(lambda: X), None),
    ],
)
def test_names(function: Callable[..., object], names: list[str] | None) -> None:
    found = [name for name, _ in tensors_held(function)]
    if names is None:
        assert len(found) == 1
    elif isinstance(function, torch.nn.Module):
        assert found == [f"{name} of BatchNorm1d" for name in names]
    else:
        assert [name.replace("weight of", "TABLE of") for name in found] == names


def test_a_function_that_holds_itself() -> None:
    def again() -> object:
        return again

    assert tensors_held(again) == []


def test_a_variable_that_is_not_there_yet() -> None:
    def function() -> torch.Tensor:
        return later

    assert tensors_held(function) == []
    later: torch.Tensor = X
    assert [tensor for _, tensor in tensors_held(function)] == [later]
