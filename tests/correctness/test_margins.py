"""Copies of arguments in memory with margins."""

import pytest
import torch

from pytest_gpubench.correctness.margins import Moved, moved
from tests.correctness.samples import COMPLEX, FLOAT8, FLOATS, INTEGERS

LEAST_MARGIN_BYTES = 66048

CPU = torch.device("cpu")


def prepared(*args: object, showing: bool = True) -> Moved:
    found = moved(args, {}, CPU)
    found.prepare(None if showing else ())
    return found


def around(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the element before a tensor, and the one after its last."""
    end = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    before = tensor.as_strided((1,), (1,), tensor.storage_offset() - 1)
    return before, tensor.as_strided((1,), (1,), end + 1)


def moved_tensor(found: Moved, place: int = 0) -> torch.Tensor:
    tensor = found.args[place]
    assert isinstance(tensor, torch.Tensor)
    return tensor


@pytest.mark.parametrize("dtype", [*FLOATS, *FLOAT8, *COMPLEX], ids=str)
def test_margins_of_floats_are_nan(dtype: torch.dtype) -> None:
    x = torch.ones(5, 3).to(dtype)
    found = moved_tensor(prepared(x))
    assert torch.equal(found.to(torch.complex128), x.to(torch.complex128))
    assert all(bool(each.to(torch.complex64).isnan()) for each in around(found))
    zeros = moved_tensor(prepared(x, showing=False))
    assert all(float(each.to(torch.complex64).abs()) == 0 for each in around(zeros))


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool], ids=str)
@pytest.mark.parametrize(("values", "margin"), [([0, 3, 1], 3), ([0, 0], 1)])
def test_margins_of_integers_are_values_that_may_be_indices(dtype: torch.dtype, values: list[int], margin: int) -> None:
    wide_unsigned = dtype in (torch.uint16, torch.uint32, torch.uint64)
    found = moved_tensor(prepared(torch.tensor(values).to(dtype)))
    expected = 1 if wide_unsigned or dtype is torch.bool else margin
    assert [int(each) for each in around(found)] == [expected, expected]


@pytest.mark.parametrize("name", ["bits8", "uint4"])
def test_margins_of_what_torch_can_only_store(name: str) -> None:
    values = torch.tensor([0, 3, 1], dtype=torch.uint8).view(getattr(torch, name))
    found = moved_tensor(prepared(values)).view(torch.uint8)
    assert found.tolist() == [0, 3, 1]
    assert [int(each) for each in around(found)] == [3, 3]


def test_layouts_stay_and_gaps_are_margins() -> None:
    x = torch.arange(60.0).reshape(6, 10)
    args = (x[1:5, 2:6], x[:1].expand(4, 10), x.t(), x.as_strided((4, 3), (1, 1)))
    for place, one in enumerate(args):
        found = moved_tensor(prepared(one))
        assert torch.equal(found, one), place
        assert (found.stride(), found.dtype) == (one.stride(), one.dtype)
    gaps = moved_tensor(prepared(args[0]))
    assert bool(gaps.as_strided((1,), (1,), gaps.storage_offset() + 4).isnan())


def test_tensors_of_one_memory_still_share_it() -> None:
    x = torch.arange(10.0)
    first, second = prepared(x[:5], x[3:]).args
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert second.data_ptr() - first.data_ptr() == 12
    same = prepared(x, x).args
    assert same[0] is same[1]


def test_a_gradient_comes_along() -> None:
    """A step of an optimizer reads it."""
    x = torch.ones(3, requires_grad=True)
    x.grad = torch.ones(3)
    found = moved_tensor(prepared(x))
    assert found.grad is not None
    found.grad.add_(1)
    assert x.grad.tolist() == [1, 1, 1]
    assert moved_tensor(prepared(torch.ones(3, requires_grad=True))).grad is None


def test_a_parameter_still_requires_a_gradient() -> None:
    weight = moved_tensor(prepared(torch.nn.Parameter(torch.ones(3))))
    assert (type(weight), weight.requires_grad, weight.is_leaf) == (torch.nn.Parameter, True, True)


@pytest.mark.parametrize("with_graph", [False, True])
def test_what_is_no_plain_tensor_is_not_moved(with_graph: bool) -> None:
    """Nor is any other beside a tensor with a graph, which leads back to others."""
    x, with_attribute = torch.ones(3), torch.ones(3)
    with_attribute.scale = 2.0  # type: ignore[attr-defined]
    odd: tuple[object, ...] = (
        x.as_subclass(type("Odd", (torch.Tensor,), {})),
        x.to_sparse(),
        torch.empty(0),
        torch.rand(2, dtype=torch.complex64).conj(),
        with_attribute,
        torch.nn.Linear(2, 2),
        "text",
        None,
        *((x, (x * 1).requires_grad_() * 2) if with_graph else ()),
    )
    found = prepared(*odd)
    assert all(one is other for one, other in zip(found.args, odd, strict=True))
    assert found.buffers == []


@pytest.mark.parametrize("place", [-1, 5, -LEAST_MARGIN_BYTES // 4, 4 + LEAST_MARGIN_BYTES // 4])
def test_a_write_past_a_tensor(place: int) -> None:
    found = prepared(torch.zeros(3), torch.zeros(5))
    tensor = moved_tensor(found, 1)
    tensor.mul_(2).add_(1)
    assert found.overwritten() == []
    tensor.add_(1)
    tensor.as_strided((1,), (1,), tensor.storage_offset() + place).fill_(5)
    assert found.overwritten() == ["args[1]"]


@pytest.mark.parametrize(("elements", "margin"), [(1, LEAST_MARGIN_BYTES), (2**22, 4194816)])
def test_margins_are_as_large_as_the_tensor_within_limits(elements: int, margin: int) -> None:
    (buffer,) = moved((torch.zeros(elements),), {}, CPU).buffers
    assert margin <= buffer.margin_bytes < margin + 512
