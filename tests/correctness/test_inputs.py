"""What calls write into their inputs is put back before the next."""

import functools
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from pytest_gpubench import MeasurementError
from pytest_gpubench.correctness import inputs
from pytest_gpubench.correctness.inputs import InputMemory
from pytest_gpubench.correctness.leaves import inputs_of, tensors_of


def memory_of(*args: object, held: list[tuple[str, object]] | None = None) -> InputMemory:
    memory = InputMemory(lambda: inputs_of(args, {}), lambda: held or [], roots=args)
    memory.restore()
    return memory


def layouts(x: torch.Tensor) -> dict[str, tuple[object, ...]]:
    return {
        "plain": (x,),
        "twice": (x, x),
        "views": (x[2:4], x[4:]),
        "overlapping": (x[:4], x[2:]),
        "strided": (x[:, ::2],),
        "transposed": (x.t(),),
        "expanded": (x[:1].expand(3, 6),),
        "windows": (x.as_strided((4, 3), (1, 1)),),
        "nested": ({"a": [x]},),
        "parameter": (torch.nn.Parameter(x),),
        "odd bytes": (x.view(torch.int8)[0, 2:5],),
        "array": (x.numpy()[:, 1:],),
        "sparse": (x.to_sparse(),),
        "wrapped": (TwoTensor(x, x + 1),),  # type: ignore[no-untyped-call]
    }


@pytest.mark.parametrize("layout", layouts(torch.ones(6, 6)))
def test_every_call_is_given_the_same(layout: str) -> None:
    args = layouts(torch.arange(36.0).reshape(6, 6) + 1)[layout]
    memory = memory_of(*args)
    parts = [part for _, part in tensors_of(inputs_of(args, {}))]
    given = [part.clone() for part in parts]
    for _ in range(4):
        for part in parts:
            part.as_strided((1,), (1,), part.storage_offset()).zero_()
        memory.restore()
        assert all(map(torch.equal, parts, given))
    assert memory.launched


def test_tensors_that_overlap_are_one_region() -> None:
    """Also one that lies within another, and one that begins after that."""
    x = torch.zeros(8)
    memory = memory_of(x[:4], x[1:2], x[3:5], x[5:])
    assert [region.names for region in memory.regions] == [["args[0]", "args[1]", "args[2]"], ["args[3]"]]


def test_what_lies_beside_a_view_is_left_alone() -> None:
    x = torch.zeros(8)
    memory = memory_of(x[2:4])
    x.fill_(1)
    memory.restore()
    assert x.tolist() == [1, 1, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(("first", "expected"), [(0, False), (1, True), (2, True), (3, False)])
def test_after_the_first_calls_chance_decides_what_is_looked_at(
    first: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.randbelow", lambda below: 1)
    x = torch.zeros(4)
    memory = memory_of(x)
    for call in range(1, 4):
        x.fill_(float(call >= first > 0))
        memory.restore()
    assert (memory.names == ["args[0]"]) is expected
    monkeypatch.setattr("secrets.randbelow", lambda below: 0)
    x.fill_(1)
    memory.restore()
    assert x.tolist() == [0] * 4
    assert (memory.late == ["args[0]"]) is True


def test_an_unchanged_input_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbelow", lambda below: 1)
    memory = memory_of(torch.ones(3))
    launched = []
    for _ in range(5):
        memory.restore()
        launched.append(memory.launched)
    assert launched == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("deed", "is_refused"),
    [
        (lambda x: x.resize_(2), True),
        (lambda x: x.t_(), True),
        (lambda x: x.set_(torch.ones(2, 3)), True),
        (lambda x: x.requires_grad_(), False),
    ],
)
def test_another_place_is_told_and_cannot_be_put_back(deed: Callable[..., object], is_refused: bool) -> None:
    x = torch.zeros(2, 3)
    memory = memory_of(x)
    deed(x)
    assert memory.look() == ["args[0]"]
    memory.looked = False
    refusal = pytest.raises(MeasurementError, match=r"changes where args\[0\] lies.*give setup=")
    with refusal if is_refused else nullcontext():
        memory.restore()


class Module(torch.nn.Module):
    """Has a parameter, a buffer, a module and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.zeros(2))
        self.inner = torch.nn.Linear(2, 2)
        self.cache: Any = None


@dataclass(slots=True, frozen=True)
class Slotted:
    """Has slots, and one that is not set at first."""

    keys: torch.Tensor
    later: torch.Tensor = field(init=False)


class SlottedList(list[object]):
    """Has a slot beside its items."""

    __slots__ = ("length",)


class Table(dict[str, object]):
    """Computes what it is asked for."""

    def keys(self) -> Any:
        raise RuntimeError

    items = __iter__ = keys


def trained() -> tuple[Module, torch.optim.Optimizer]:
    module = Module()
    module.weight.grad = torch.ones(2)
    return module, torch.optim.Adam([module.weight])


def put(holder: object, name: str, value: object) -> None:
    object.__setattr__(holder, name, value)


X = torch.zeros(2)
EXCHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object], list[str]]] = {
    "item of a list": (lambda: [X, X], lambda held: held.__setitem__(0, X + 1), ["[0]"]),
    "end of a list": (lambda: {"k": [X]}, lambda held: held["k"].append(X + 1), ["['k'][1]"]),
    "beginning of a deque": (
        lambda: SimpleNamespace(x=deque([X], 2)),
        lambda held: held.x.appendleft(1),
        [".x[0]", ".x[1]"],
    ),
    "set": (lambda: SimpleNamespace(x={1}), lambda held: held.x.add(2), []),
    "attribute of a tensor": (lambda: torch.ones(2), lambda held: put(held, "cached", X), [".cached"]),
    "item of a dict": (lambda: {"k": X}, lambda held: held.pop("k"), ["['k']"]),
    "order of a dict": (lambda: OrderedDict(k=X, n=1), lambda held: held.update(k=held.pop("k"), n=2), ["['n']"]),
    "dict that computes, and has attributes": (
        lambda: SimpleNamespace(x=Table(k=X)),
        lambda held: [dict.clear(held.x), vars(held.x).update(length=1)],
        [".x['k']", ".x.length"],
    ),
    "attribute": (lambda: SimpleNamespace(x=X), lambda held: put(held, "x", None), [".x"]),
    "another object": (lambda: SimpleNamespace(x=SimpleNamespace(y=1)), lambda held: put(held.x, "y", "1"), [".x.y"]),
    "new attribute": (lambda: SimpleNamespace(), lambda held: put(held, "x", X), [".x"]),
    "attribute that goes": (lambda: SimpleNamespace(x=X), lambda held: delattr(held, "x"), [".x"]),
    "slot": (lambda: Slotted(X), lambda held: put(held, "keys", X + 1), [".keys"]),
    "slot that is set": (lambda: Slotted(X), lambda held: put(held, "later", X), [".later"]),
    "slot of a list": (lambda: SlottedList([X]), lambda held: put(held, "length", 1), [".length"]),
    "parameter": (Module, lambda held: setattr(held, "weight", torch.nn.Parameter(X)), [".weight"]),
    "buffer": (Module, lambda held: setattr(held.inner, "bias", None), [".inner.bias"]),
    "attribute of a module": (Module, lambda held: setattr(held, "cache", [X]), [".cache", ".cache[0]"]),
    "state of an optimizer": (
        trained,
        lambda held: held[1].step(),
        ["[1].state[0]['step']", "[1].state[0]['exp_avg']", "[1].state[0]['exp_avg_sq']", "[0].weight"],
    ),
    "rate of an optimizer": (
        trained,
        lambda held: held[1].param_groups[0].update(lr=0.5),
        ["[1].param_groups[0]['lr']"],
    ),
}


@pytest.mark.parametrize("kind", EXCHANGES)
def test_what_a_call_puts_into_arguments_or_takes_out_is_put_back(kind: str) -> None:
    make, deed, names = EXCHANGES[kind]
    held = make()
    memory = memory_of(torch.ones(1), held)
    for _ in range(4):
        deed(held)
        assert memory.look() == [] or memory.names == [f"args[1]{name}" for name in names]
        assert set(memory.changed_arguments()) == {f"args[1]{name}" for name in names}
        memory.restore()
        assert memory.changed_arguments() == ()
        assert not hasattr(held, "cached")
        assert (list(held) == ["k", "n"]) if kind == "order of a dict" else (held.x == {1}) if kind == "set" else True


class Config(SimpleNamespace):
    """Computes an attribute once."""

    @functools.cached_property
    def scale(self) -> float:
        return 0.5


def test_what_a_call_compiles_and_what_a_class_computes_once_stays() -> None:
    held = Config(kernel=None)
    memory = memory_of(held)
    for _ in range(3):
        held.kernel = held.kernel or (lambda: held.scale)
        assert held.kernel() == 0.5
        assert memory.changed_arguments() == ()
        memory.restore()
        assert (held.kernel is None, "scale" in vars(held)) == (False, True)


def test_what_a_call_makes_together_stays_together() -> None:
    """A kernel without the workspace that was made with it would raise AttributeError."""
    held = SimpleNamespace(kernel=None)
    memory = memory_of(held)
    for _ in range(3):
        if held.kernel is None:
            held.workspace, held.kernel = X.clone(), lambda: held.workspace
        assert held.kernel() is held.workspace
        memory.restore()
        assert vars(held) == {"kernel": None}


def test_tensors_that_are_held_may_be_exchanged() -> None:
    held: list[tuple[str, object]] = [("cache of f", torch.zeros(2))]
    memory = memory_of(torch.ones(1), held=held)
    held[0] = ("cache of f", torch.ones(5))
    assert memory.look() == []


def test_tensors_of_one_name_are_told_apart() -> None:
    """As two functions of one class hold them."""
    first, second = torch.zeros(2), torch.zeros(3)
    memory = memory_of(held=[("weight of Norm", first), ("weight of Norm", second)])
    for tensor in (first, second):
        tensor.fill_(1)
        memory.restore()
        assert first.tolist() == [0, 0]
        assert second.tolist() == [0, 0, 0]


@pytest.mark.parametrize("room", [15, 16])
def test_without_room_for_a_copy(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest inputs are copied; a change of another one is seen, and is an error."""
    monkeypatch.setattr(inputs, "ALWAYS_BYTES", 0)
    monkeypatch.setattr(inputs, "room_on", lambda device: room + 4)
    x, small = torch.zeros(4), torch.zeros(1)
    memory = memory_of(x, small)
    x[0] = small[0] = 1
    if room < 16:
        with pytest.raises(
            MeasurementError, match=r"^a call overwrites args\[0\] \(16 B\), and there is no room for a"
        ):
            memory.restore()
    else:
        memory.restore()
        assert float(x.sum()) == 0
    assert float(small) == 0


@pytest.mark.parametrize("given", [None, torch.ones(3)])
def test_gradients_are_inputs_too(given: torch.Tensor | None) -> None:
    """Of an argument, and of what a function holds."""
    x, weight = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    x.grad, weight.grad = given, None if given is None else given.clone()
    memory = memory_of(x, held=[("weight of f", weight)])
    for _ in range(4):
        (x * weight).sum().backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        assert x.grad.tolist() == ([1] * 3 if given is None else [2] * 3)
        memory.restore()
        assert x.grad is given
        assert (weight.grad is None) is (given is None)


def test_a_gradient_that_calls_drop_is_put_back() -> None:
    x, given = torch.ones(3, requires_grad=True), torch.ones(3)
    x.grad = given
    memory = memory_of(x)
    for _ in range(4):
        x.grad = None
        assert memory.look() == []
        assert memory.changed_arguments() == ("args[0].grad",)
        assert memory.contents(["args[0].grad"]) == {"args[0].grad": None}
        memory.restore()
        assert x.grad is given


def test_a_sparse_gradient_that_calls_add_to_is_put_back() -> None:
    """Autograd exchanges its parts for longer ones."""
    weight: Any = torch.ones(4, 2, requires_grad=True)

    def call() -> None:
        torch.nn.functional.embedding(torch.tensor([1, 1, 2]), weight, sparse=True).sum().backward()  # type: ignore[no-untyped-call]

    call()
    given = weight.grad
    memory = memory_of(weight)
    for _ in range(4):
        call()
        assert (weight.grad is given, given._nnz()) == (True, 6)
        assert memory.look() == []
        assert memory.changed_arguments() == ("args[0].grad",)
        memory.restore()
        assert (weight.grad is given, given._nnz(), memory.changed_arguments()) == (True, 3, ())


def test_a_generator_draws_the_same_in_every_call() -> None:
    generator = torch.Generator().manual_seed(3)
    memory = memory_of(torch.ones(1), {"generator": generator})
    first = torch.rand(4, generator=generator)
    memory.restore()
    assert torch.equal(torch.rand(4, generator=generator), first)
    assert memory.names == []


def test_other_values_are_put_back_while_inputs_are_varied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of inputs that calls change; none is looked at."""
    monkeypatch.setattr("secrets.randbelow", lambda below: 0)
    x, y = torch.zeros(3), torch.zeros(3)
    memory = memory_of(x, y)
    x.fill_(1)
    memory.restore()
    x.fill_(2)
    y.fill_(2)
    memory.begin_varied()
    x.fill_(3)
    copy: Any = memory.contents(["args[0]"])["args[0]"]
    assert copy.tolist() == [3, 3, 3]
    memory.restore()
    assert (x.tolist(), y.tolist(), memory.names) == ([2, 2, 2], [2, 2, 2], ["args[0]"])
    y.fill_(0)
    memory.end_varied()
    memory.restore()
    assert (x.tolist(), y.tolist(), memory.names) == ([0, 0, 0], [0, 0, 0], ["args[0]"])
    y.fill_(1)
    memory.restore()
    assert (y.tolist(), memory.names) == ([0, 0, 0], ["args[0]", "args[1]"])
