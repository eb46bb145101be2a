"""Other values in the inputs of every call."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_gpubench import UnfairComparison
from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.bench.other_values import OtherValues
from pytest_gpubench.correctness import Tolerance
from tests.bench.calls import agreement_of, double


def others_of(agreement: Agreement) -> OtherValues:
    return OtherValues(agreement, agreement.run_reference())


LAST = torch.tensor([[3, 2, 1, 0]])


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize(
    ("function", "inputs", "way"),
    [
        (double, torch.arange(4.0), "turned round"),
        (torch.sum, torch.arange(4.0), "partly levelled"),
        (lambda x: x.flip(0) * x, torch.arange(4.0), "partly levelled"),
        (torch.abs, torch.ones(4), None),
        (torch.sum, torch.zeros(4), None),
        (torch.sum, torch.ones(4), None),
        (torch.log, torch.tensor([0.0, 1.0, 2.0]), "turned round"),  # as infinite as before
        (lambda x: 1 / (x - x[0] + 1), torch.tensor([2.0, 1.0, 3.0]), "turned round"),
        (lambda x: x / (x[0] - 2), torch.tensor([1.0, 1.0, 2.0]), "partly levelled"),  # turned round it is infinite
        (torch.linalg.cholesky, torch.eye(3), None),  # turned round or levelled it is not positive
        (double, torch.arange(4), None),  # offsets, maybe
        (double, torch.tensor([3, 1, 2]), "turned round integer"),
        (lambda x: x.sort().values, torch.tensor([3, 1, 2]), "levelled integer"),
        (lambda x: x + 0, torch.tensor([True, False]), "turned round integer"),
        (double, torch.ones(4, dtype=torch.float8_e4m3fn), None),
        (double, torch.arange(4.0).to(torch.float8_e4m3fn), "turned round"),
        (double, torch.arange(4.0).view(4, 1).expand(4, 4), "turned round"),
        (lambda x: x.shape[0], torch.arange(4.0), None),
        (lambda x: x.nonzero(), torch.arange(4.0), "turned round"),
        (lambda x: (x, x.view(2, 2)), torch.arange(4.0), "turned round"),
        (lambda x: torch.sparse_coo_tensor(LAST, x, (4,), check_invariants=True), torch.arange(4.0), "turned round"),
        (lambda x: (x * torch.tensor([0, 0, 1, 1])).to_sparse(), torch.arange(4.0), "turned round"),  # one element less
    ],
)
def test_which_way_gives_other_outputs(function: Any, inputs: torch.Tensor, way: str | None) -> None:
    before = inputs.clone()
    if inputs.dtype is torch.float8_e4m3fn:
        function = lambda x: x.float()  # noqa: E731
    agreement = agreement_of(function, inputs)
    assert others_of(agreement).find() == way
    assert agreement.variation.way == "as given"
    assert torch.equal(inputs.float(), before.float())


def test_a_table_of_the_reference_is_left_alone() -> None:
    table = torch.arange(8.0)
    agreement = agreement_of(lambda x: table[int(x[0]) :][:4], torch.arange(4.0))
    assert others_of(agreement).find() == "turned round"
    assert table.tolist() == list(range(8))


def test_the_values_as_given_are_no_other_ones() -> None:
    """Inputs that a call changes are put back after that, as ever."""
    agreement = agreement_of(lambda x: x.mul_(2), torch.arange(4.0), overwrites=True)
    for way in ("as given", "turned round", "as given"):
        agreement.vary(way)
    for _ in range(3):
        args, _ = agreement.fresh()
        found: Any = agreement.reference(*args)
        assert found.tolist() == [0, 2, 4, 6]


def test_a_call_without_arguments_is_varied_once() -> None:
    """By its random numbers: no way changes what is not there."""
    calls: list[int] = []

    def ones() -> torch.Tensor:
        calls.append(1)
        return torch.ones(4)

    others = others_of(agreement_of(ones))
    before = len(calls)
    others.find()
    assert len(calls) == before + 1


def test_a_reference_that_refuses_other_values() -> None:
    def careful(x: torch.Tensor) -> torch.Tensor:
        if x.tolist() != [0, 1, 2, 3]:
            raise ValueError("these only")
        return x * 2

    x = torch.arange(4.0)
    assert others_of(agreement_of(careful, x)).find() is None
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("function", "tolerance", "raised"),
    [
        (lambda x: x.mean() * 100, Tolerance(0.5, 1000), True),
        (lambda x: x.mean() * 100, Tolerance(0, 1e-5), False),
        (lambda x: x.amax() + 0 * x.sum(), Tolerance(0.5, 1000), False),  # nothing changes
        (lambda x: x.mean() * 1e-7, Tolerance(), False),  # the dtype's own
        (double, Tolerance(0.5, 1000), True),
    ],
)
def test_a_tolerance_that_hides_other_values(
    function: Callable[..., object], tolerance: Tolerance, raised: bool
) -> None:
    agreement = replace(agreement_of(function, torch.tensor([4.0, 1.0, 1.0])), tolerance=tolerance)
    with (
        pytest.raises(
            UnfairComparison, match=r"^out of the reference changes by .*, which rtol=0.5 and atol=1000 allow"
        )
        if raised
        else nullcontext()
    ):
        others_of(agreement).find()


@pytest.mark.parametrize(
    ("function", "inputs", "noted"),
    [
        (double, torch.arange(4.0), False),
        (torch.abs, torch.ones(4), True),
        (lambda x: torch.ones(2), torch.ones(4), True),
    ],
)
def test_inputs_that_cannot_be_varied_are_a_remark(
    function: Callable[..., object], inputs: torch.Tensor, noted: bool
) -> None:
    agreement = agreement_of(function, inputs)
    assert (others_of(agreement).find() is None) is noted
    assert bool(agreement.remarks) is noted
    assert all("returned the same when the values of its inputs were to change" in each for each in agreement.remarks)
    timed_backward = replace(agreement, backward="backward", remarks=[])
    assert others_of(timed_backward).find() == ("as given" if noted else "turned round")
    assert timed_backward.remarks == []


@pytest.mark.parametrize(("numbers", "noted"), [(0, False), (1, False), (2, True)])
def test_a_search_may_draw_single_numbers(numbers: int, noted: bool) -> None:
    agreement = agreement_of(double, torch.ones(numbers))
    assert others_of(agreement).find() is None
    assert bool(agreement.remarks) is noted


def test_an_infinite_output_with_a_gradient_is_looked_at_without_a_warning() -> None:
    """A warning is an error for some users, and would switch the check off."""
    weight = torch.ones(3, requires_grad=True)
    agreement = agreement_of(lambda x: torch.log(x * weight), torch.tensor([0.0, 1.0, 2.0]))
    torch.set_warn_always(True)
    try:
        assert others_of(agreement).find() is not None
    finally:
        torch.set_warn_always(False)
