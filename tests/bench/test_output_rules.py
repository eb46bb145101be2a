"""Outputs that are no plain tensors of their own."""

from contextlib import nullcontext

import pytest
import torch

from pytest_gpubench import BadRequest, InvalidResult, UnfairComparison
from pytest_gpubench.bench.output_rules import refuse_strange_tensors
from tests.bench.calls import Lazy, agreement_of


@pytest.mark.parametrize(
    ("outputs", "expected", "named"),
    [
        (torch.ones(2), torch.ones(2), None),
        (torch.nn.Parameter(torch.ones(2)), torch.ones(2), None),
        (torch.ones(2).as_subclass(Lazy), torch.ones(2), "out"),
        ({"a": [torch.ones(2), torch.ones(2).as_subclass(Lazy)]}, torch.ones(2), r"out\['a'\]\[1\]"),
        (torch.ones(2).as_subclass(Lazy), torch.ones(2).as_subclass(Lazy), None),
        (3.0, torch.ones(2), None),
    ],
)
def test_an_output_of_a_class_of_its_own(outputs: object, expected: object, named: str | None) -> None:
    sentence = rf"^{named} of 'mine' is a Lazy, which may compute later, .*: return a plain"
    with nullcontext() if named is None else pytest.raises(InvalidResult, match=sentence):
        refuse_strange_tensors("mine", outputs, expected)


def with_attribute(name: str) -> torch.Tensor:
    tensor = torch.ones(2)
    setattr(tensor, name, lambda: None)
    return tensor


@pytest.mark.parametrize(
    ("outputs", "expected", "error", "sentence"),
    [
        (with_attribute("later"), torch.ones(2), InvalidResult, "^out of 'mine' has an attribute of its own, 'later'"),
        ([with_attribute("later")], [torch.ones(2)], InvalidResult, r"^out\[0\] of 'mine' has an attribute"),
        (with_attribute("later"), with_attribute("later"), None, ""),
        (with_attribute("_dynamo_dynamic_indices"), torch.ones(2), None, ""),
        (torch.ones(1, 3).expand(2, 3), torch.ones(2, 3), UnfairComparison, "^out of 'mine' is expanded: several"),
        (torch.ones(1, 3).expand(2, 3), torch.ones(1, 3).expand(2, 3), None, ""),
        (torch.ones(1, 3).expand(1, 3), torch.ones(1, 3), None, ""),
        (torch.ones(3, 2).t(), torch.ones(2, 3), None, ""),
    ],
)
def test_an_output_that_is_no_plain_tensor_of_its_own(
    outputs: object, expected: object, error: type[Exception] | None, sentence: str
) -> None:
    with nullcontext() if error is None else pytest.raises(error, match=sentence):
        refuse_strange_tensors("mine", outputs, expected)


def test_an_output_in_the_layout_of_mkldnn() -> None:
    agreement = agreement_of(torch.Tensor.to_mkldnn, torch.ones(2))
    with pytest.raises(BadRequest, match=r"^out of the reference '.*' has the layout of MKL-DNN, .*: return .to_dense"):
        agreement.run_reference()
