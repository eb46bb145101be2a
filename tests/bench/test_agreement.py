"""References for which a candidate need compute nothing, and what their first results are compared with."""

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_gpubench import BadRequest, UnfairComparison, WrongResult
from tests.bench.calls import agreement_of, double

X = torch.arange(4.0)


@pytest.mark.parametrize(
    ("outputs", "raised", "noted"),
    [
        (torch.full((3,), 1e-6), True, False),
        ((torch.full((3,), 1e-6), torch.zeros(2)), True, False),
        ((torch.full((3,), 1e-6), torch.ones(2)), False, True),
        ((torch.full((3,), 1e-6), torch.arange(2)), False, True),
        (torch.zeros(3), False, False),
        (torch.ones(3), False, False),
        (torch.arange(3.0), False, False),
        (3, False, False),
    ],
)
def test_outputs_that_zeros_would_match(outputs: object, raised: bool, noted: bool) -> None:
    agreement = agreement_of(lambda: outputs)
    with (
        pytest.raises(
            UnfairComparison, match=r"^a candidate that computes nothing would pass: .* would tell \(or golden"
        )
        if raised
        else nullcontext()
    ):
        agreement.refuse_flat(agreement.run_reference())
    assert bool(agreement.remarks) is noted
    replace(agreement, golden="float64").refuse_flat(agreement.run_reference())


def test_an_argument_that_is_returned_unwritten_is_looked_at_before_the_reference_is_called_again() -> None:
    agreement = agreement_of(lambda x, out: torch.mul(x, 2, out=out), torch.ones(3), torch.zeros(3))
    expected = agreement.run_reference()
    with pytest.raises(WrongResult, match=r"^mine is wrong: out: 3 of 3 elements"):
        agreement.check("mine", lambda x, out: out, expected)


@pytest.mark.parametrize(
    ("errors", "hinted"), [((1e-4,), True), ((1.0,), False), ((1e-4, 1e-4), True), ((1e-4, 1.0), False)]
)
def test_only_what_may_all_be_rounding_says_how_to_judge_rounding(errors: tuple[float, ...], hinted: bool) -> None:
    agreement = agreement_of(lambda x: tuple(double(x) for _ in errors), torch.arange(8.0))
    with pytest.raises(WrongResult) as caught:
        agreement.check("near", lambda x: tuple(double(x) + error for error in errors), agreement.run_reference())
    hint = '; if only rounding differs, compare with golden="float64", or give rtol= and atol='
    assert str(caught.value).endswith(hint) is hinted
    assert str(caught.value).count("rounding") == hinted


def test_what_the_reference_returned_at_first_is_no_output_of_a_candidate() -> None:
    kept = torch.empty(4)
    hidden = itertools.repeat(kept)  # what functions hold would be put back
    agreement = agreement_of(lambda x: torch.mul(x, 2, out=next(hidden)), torch.arange(4.0))
    expected = agreement.run_reference()
    with pytest.raises(UnfairComparison, match=r"^out of 'mine' is memory of the reference's out"):
        agreement.check("mine", lambda x: next(hidden), expected)


def test_an_input_is_no_output_of_a_candidate_where_the_reference_fills_a_buffer_of_its_own() -> None:
    """That the buffer is put back as inputs are does not make it one."""
    out = torch.zeros(4)
    agreement = agreement_of(lambda x: torch.mul(x, 1, out=out), torch.arange(4.0))
    expected = agreement.run_reference()
    with pytest.raises(UnfairComparison, match=r"^out of 'mine' is memory of args\[0\], .*: return a copy$"):
        agreement.check("mine", lambda x: x, expected)
    agreement.check("mine", torch.clone, expected)


def test_each_output_may_be_an_input_where_that_of_the_reference_is_one() -> None:
    agreement = agreement_of(lambda x: (x, x.clone()), torch.arange(4.0))
    expected = agreement.run_reference()
    with pytest.raises(UnfairComparison, match=r"^out\[1\] of 'mine' is memory of args\[0\], .*: return a copy$"):
        agreement.check("mine", lambda x: (x, x), expected)
    agreement.check("mine", lambda x: (x, x.clone()), expected)


def with_attribute(x: torch.Tensor) -> torch.Tensor:
    out = x * 2
    out.scale = 2  # type: ignore[attr-defined]
    return out


def in_place(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2)


@pytest.mark.parametrize("candidate", [with_attribute, double])
def test_an_output_may_have_the_attributes_of_the_references(candidate: Callable[..., object]) -> None:
    agreement = agreement_of(with_attribute, torch.arange(4.0))
    agreement.check("mine", candidate, agreement.run_reference())


@pytest.mark.parametrize("again", [False, True])
def test_golden_is_not_given_the_memory_that_outputs_lie_in(again: bool) -> None:
    x = torch.arange(4.0)
    agreement = replace(agreement_of(in_place, setup=lambda: (x if again else x.clone(),)), golden="float64")
    agreement.check("mine", in_place, agreement.run_reference())


@pytest.mark.parametrize("who", ["the reference 'reference'", "'mine'", "golden=", "setup"])
def test_every_function_has_to_leave_switches_as_it_found_them_but_setup(who: str) -> None:
    """As it found them when the comparison began."""
    threads = torch.get_num_threads()

    def acting(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
        def reference(x: torch.Tensor) -> torch.Tensor:
            torch.set_num_threads(threads + 2 if name == who else torch.get_num_threads())
            return x.double() * 2

        return reference

    def setup() -> tuple[torch.Tensor]:
        acting("setup")(X)
        return (X,)

    given: dict[str, Any] = {"setup": setup} if who == "setup" else {}
    agreement = agreement_of(acting("the reference 'reference'"), *([] if given else [X]), **given)
    agreement = replace(agreement, golden=acting("golden="))
    torch.set_num_threads(threads + 1)
    refused = pytest.raises(UnfairComparison, match=rf"^{who} changed torch\.set_num_threads from {threads + 1}")
    try:
        with nullcontext() if who == "setup" else refused, agreement.leaving_state():
            agreement.check("mine", acting("'mine'"), agreement.run_reference())
        assert torch.get_num_threads() == threads + 1 + (who == "setup")
    finally:
        torch.set_num_threads(threads)


def test_golden_has_the_gradients_of_the_references_outputs() -> None:
    agreement = agreement_of(double, torch.arange(4.0, requires_grad=True))
    agreement = replace(agreement, golden="float64", grads=True)
    found = agreement.check("mine", lambda x: x + x, agreement.run_reference())
    assert [each.name for each in found] == ["out", "grad args[0]"]


def test_a_candidate_without_gradients_is_wrong_and_a_reference_without_them_a_bad_request() -> None:
    agreement = replace(agreement_of(double, torch.arange(4.0, requires_grad=True)), grads=True)
    with pytest.raises(WrongResult, match=r"^mine is wrong: grad args\[0\]: found NoneType, .*, undetached if"):
        agreement.check("mine", lambda x: x.detach() * 2, agreement.run_reference())
    with pytest.raises(BadRequest, match=r"^grads=True compares .*, or the reference's outputs have none"):
        replace(agreement, reference=lambda x: x.detach() * 2).run_reference()
