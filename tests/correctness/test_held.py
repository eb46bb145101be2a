"""Tensors that functions reach without being given them."""

import functools
import types
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from pytest_gpubench.correctness.contents import Contents
from pytest_gpubench.correctness.held import held_by, held_by_functions
from pytest_gpubench.correctness.leaves import inputs_of
from tests.correctness.samples import State

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


class Hidden:
    __slots__ = "__buffer"

    def __init__(self) -> None:
        self.__buffer = torch.zeros(3)


@dataclass
class Fields(Hidden):
    length: int = 0

    def __post_init__(self) -> None:
        Hidden.__init__(self)


def optimizer() -> torch.optim.Optimizer:
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.ones(2)
    made = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    made.step()
    return made


class Attention(torch.nn.Module):
    """Keeps tensors that are no buffers, in an object too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False)])
        self.keys = torch.zeros(1)
        self.register_buffer("mask", torch.zeros(1))
        self.state = SimpleNamespace(values=[torch.zeros(1)])


ATTENTION = Attention()


def tagged() -> Callable[[], object]:
    layer, cache, gradient = torch.nn.Tanh(), torch.ones(1), torch.ones(1)
    vars(layer)["gone"] = weakref.proxy(torch.nn.Tanh())
    vars(layer)["cache"], vars(cache)["gradient"], vars(gradient)["of"] = cache, gradient, cache
    return lambda: layer


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

    vars(outer)["cache"] = [X]
    return outer


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (torch.softmax, []),
        (len, []),
        (lambda: X * 2, ["X of <lambda>"]),
        (lambda: TABLE(X), ["X of <lambda>", "TABLE.weight of <lambda>"]),
        (lambda x=X: x, ["[0] of <lambda>"]),
        (closure(), ["inner.x of <lambda>", "pair[0] of <lambda>"]),
        (tagged(), ["layer.cache of <lambda>", "layer.cache.gradient of <lambda>"]),
        (functools.partial(torch.add, X, alpha=2), ["[0] of partial"]),
        (X.mul_, ["itself of mul_"]),
        (Runner(), ["buffer of Runner", "cache['a'][0] of Runner"]),
        (Runner().run, ["buffer of run", "cache['a'][0] of run"]),
        (functools.partial(lambda x=ATTENTION.keys: x, X), ["[0] of partial", "[0]#1 of partial"]),
        (lambda ring=deque([X]): ring, ["[0][0] of <lambda>"]),
        (optimizer().step, ["state[0]['momentum_buffer'] of step", "param_groups[0]['params'][0] of step"]),
        (wrapped(), ["y of closure", "cache[0] of closure"]),
        (
            lambda attention=ATTENTION: attention,
            [f"[0].{name} of <lambda>" for name in ("inner.0.weight", "mask", "keys", "state.values[0]")],
        ),
        (SimpleNamespace(keys=X), ["keys of SimpleNamespace"]),
        (types.ModuleType("module"), []),
        (torch.compile(lambda: X), None),
    ],
)
def test_names(function: Callable[..., object], names: list[str] | None) -> None:
    found = [name for name, _ in held_by_functions([function])]
    if names is None:
        assert len(found) == 1
    else:
        assert found == names


def test_an_object_is_looked_into_once() -> None:
    again: list[object] = []
    again += [again] * 1000
    deep = [[[[X]]]]
    assert [tensor for _, tensor in held_by_functions([lambda: (again, deep)])] == [X]


def test_the_nearest_are_looked_into_first() -> None:
    far: object = [X]
    for _ in range(2000):
        far = [far]
    near = torch.zeros(1)
    assert [tensor for _, tensor in held_by_functions([lambda: (far, near)])] == [near]


def test_a_variable_that_is_not_there_yet() -> None:
    def function() -> torch.Tensor:
        return later

    assert held_by_functions([function]) == []
    later: torch.Tensor = X
    assert [tensor for _, tensor in held_by_functions([function])] == [later]


def test_a_module_without_dicts_as_a_scriptmodule_is_has_attributes() -> None:
    module = torch.nn.Tanh()
    vars(module)["_buffers"] = types.MappingProxyType({})
    assert [each.holder for each in Contents.of(module)] == [vars(module), {}, {}]


def test_a_dataclass_holds_more_than_its_fields() -> None:
    """In attributes, and in slots of its base class."""
    state = State(1)
    vars(state)["keys"] = X
    found = held_by(inputs_of(([state, Fields()],), None))
    assert [name for name, _ in found] == ["args[0][0].keys", "args[0][1]._Hidden__buffer"]


def test_an_argument_that_refuses_to_be_asked_holds_nothing() -> None:
    class Refusing:
        __slots__ = ("__weakref__", "empty")

        def __getattr__(self, name: str) -> object:
            raise RuntimeError

    gone = weakref.proxy(Refusing())
    assert held_by([("args[0]", Refusing()), ("args[1]", [gone])]) == []
    assert [each.given for each in Contents.of(Refusing())] == [{}]
