"""What torch counts, what it cannot, and that counting changes nothing."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_gpubench.correctness.flops import Counted, counted


def count_flops(function: Callable[..., object], *given: Any) -> int | None:
    return counted(function, *given).flops


def conv(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, weight)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(F.linear(x, weight, bias))


@pytest.mark.parametrize(
    ("function", "shapes", "flops"),
    [
        (torch.bmm, [(3, 4, 5), (3, 5, 6)], 2 * 3 * 4 * 5 * 6),
        (linear, [(4, 5), (6, 5), (6,)], 2 * 4 * 5 * 6),
        (conv, [(1, 2, 8, 8), (3, 2, 3, 3)], 2 * 3 * 2 * 9 * 36),
        (F.scaled_dot_product_attention, [(2, 4, 64, 32)] * 3, 2 * 2 * 2 * 4 * 64 * 64 * 32),
    ],
)
def test_what_is_counted(function: Callable[..., object], shapes: list[tuple[int, ...]], flops: int) -> None:
    assert count_flops(function, [torch.zeros(shape) for shape in shapes]) == flops


def test_a_backward_run_counts() -> None:
    a, b = torch.randn(4, 5, requires_grad=True), torch.randn(5, 6, requires_grad=True)
    assert count_flops(lambda: torch.autograd.grad((a @ b).sum(), (a, b))) == 3 * 2 * 4 * 5 * 6


def test_attention_backward_counts() -> None:
    q = torch.randn(2, 4, 64, 32, requires_grad=True)
    forward = count_flops(lambda: F.scaled_dot_product_attention(q, q, q))
    both = count_flops(lambda: torch.autograd.grad(F.scaled_dot_product_attention(q, q, q).sum(), q))
    assert forward is not None
    assert both is not None
    assert both > 3 * forward


def test_keywords_are_passed() -> None:
    out = torch.empty(2, 2)
    assert count_flops(torch.mm, (torch.ones(2, 2), torch.ones(2, 2)), {"out": out}) == 16
    assert out.tolist() == [[2, 2], [2, 2]]


def broken() -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize("function", [lambda: torch.zeros(3) + 1, lambda: None, lambda: torch.zeros(9).sum(), broken])
def test_what_cannot_be_counted_is_not_known(function: Callable[[], object]) -> None:
    assert counted(function) == Counted(None, None)


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_flops(interrupted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_dtype_that_is_multiplied(dtype: torch.dtype) -> None:
    x = torch.ones(4, 4, dtype=dtype)
    assert counted(lambda: torch.mm(x, x).float() + 1).dtype == str(dtype).removeprefix("torch.")


def test_the_dtype_of_most_operations() -> None:
    small, large = torch.ones(2, 2), torch.ones(8, 8, dtype=torch.bfloat16)
    assert counted(lambda: (small @ small, large @ large, small @ small)) == Counted(1024 + 32, "bfloat16")


def test_autocast_is_considered() -> None:
    x = torch.ones(4, 4)

    def product() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return x @ x

    assert counted(product).dtype == "bfloat16"


def test_it_is_run_once_and_nothing_stays(capsys: pytest.CaptureFixture[str]) -> None:
    runs = []

    def function() -> torch.Tensor:
        runs.append(1)
        warnings.warn("of its own", stacklevel=1)
        return torch.ones(2, 2) @ torch.ones(2, 2)

    assert count_flops(function) == 16
    assert len(runs) == 1
    assert capsys.readouterr() == ("", "")
    with pytest.warns(UserWarning, match="of its own"):
        function()


def test_a_compiled_function_is_counted_before_compilation() -> None:
    def backend(module: torch.nn.Module, inputs: object) -> torch.nn.Module:
        raise AssertionError("nothing is to be compiled")

    compiled = torch.compile(lambda x: x @ x, backend=backend)
    assert count_flops(compiled, (torch.ones(2, 2),)) == 16
    module = torch.compile(torch.nn.Linear(3, 2, bias=False), backend=backend)
    assert count_flops(module, (torch.ones(4, 3),)) == 48
