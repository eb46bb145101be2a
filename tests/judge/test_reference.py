"""The reference of a case: its tolerance, its fairness, and its inputs, which are kept for many candidates."""

from collections import namedtuple
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
import torch

from pytest_gpubench import BadRequest, UnfairComparison
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge.reference import ReadyCase, Reference
from pytest_gpubench.judge.request import spec_of


@pytest.mark.parametrize(
    ("tolerance", "message"),
    [
        ({"golden": "float32"}, "golden= must be 'float64' or a function, found 'float32'"),
        ({"golden_factor": 3}, "golden_factor=3 is given without golden="),
        ({"rtoll": 1}, r"judge\(\): tolerance has no 'rtoll': did you mean rtol"),
        (1e-3, r"judge\(\): tolerance = 0.001 is not valid: give a dict, of rtol, atol"),
    ],
)
def test_a_tolerance_that_is_not_valid_is_refused(tolerance: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        Reference(spec_of(torch.tanh, lambda seed: torch.zeros(4), tolerance), cpu_device())


@pytest.mark.parametrize(
    ("first", "second", "atol", "message"),
    [
        (1.0, -1.0, 0.9, ""),
        (1.0, -1.0, 1.1, "zeros are right within the tolerance"),
        (1.0, 1.0, 0.0, "returns the same for two seeds"),
        (1.0, -1.0, 2.1, "returns the same for two seeds"),
        (None, None, 0.0, "the spec has no tensors as inputs"),
    ],
)
def test_a_spec_by_which_nothing_need_be_computed_is_refused(
    first: float | None, second: float | None, atol: float, message: str
) -> None:
    """The reference returns its input; None stands for an input that is no tensor."""
    spec = spec_of(lambda x: x, lambda seed: 1, {"rtol": 0, "atol": atol})
    inputs = [(1,) if each is None else (torch.full((4,), each),) for each in (first, second)]
    with pytest.raises(UnfairComparison, match=message) if message else nullcontext():
        Reference(spec, cpu_device()).check_fair(*inputs)


@pytest.mark.parametrize(("reference", "found"), [(torch.log, "expected nan"), (torch.rand_like, "the worst at")])
def test_a_reference_that_is_wrong_itself_is_refused(reference: Any, found: str) -> None:
    """Every candidate would be; it returns NaN, or other numbers in each call."""
    inputs = [(torch.full((4,), each),) for each in (1.0, -1.0)]
    with pytest.raises(
        UnfairComparison, match=f"the reference itself, called again, is not within the tolerance: out: .*{found}"
    ):
        Reference(spec_of(reference, lambda seed: 1, None), cpu_device()).check_fair(*inputs)


def test_containers_are_given_and_compared_as_they_are_sent() -> None:
    """A candidate gets and returns a plain tuple, whose leaves have other names than those of a named one."""
    Pair = namedtuple("Pair", "x y")
    spec = spec_of(lambda pair: Pair(*pair), lambda seed: (Pair(torch.randn(4), torch.randn(4)),), None)
    ready = ReadyCase(spec, {}, cpu_device())
    [pair] = ready.example
    assert type(pair) is tuple
    assert all(each.passed for each in ready.reference.differences(pair, ready.example))


@pytest.mark.parametrize(("spread", "is_fair"), [(0.019, False), (0.021, True)])
def test_a_tolerance_within_which_one_number_is_right_is_refused(spread: float, is_fair: bool) -> None:
    """It allows 0.01 more or less."""
    spec = spec_of(lambda x: x.sigmoid() * spread + 7, lambda seed: 1, {"rtol": 0, "atol": 0.01})
    first, second = (20 * torch.randn(1000, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    message = "one number everywhere is right within the tolerance"
    with nullcontext() if is_fair else pytest.raises(UnfairComparison, match=message):
        Reference(spec, cpu_device()).check_fair((first,), (second,))


@pytest.mark.parametrize(
    ("shape", "more", "is_fair"),
    [((4,), 0.009, False), ((2, 2), 0.009, False), ((4,), 0.0, True), ((2, 2), 0.011, True)],
)
@pytest.mark.parametrize("columns", [1, 2])
def test_an_input_that_is_right_in_the_place_of_one_output_is_refused(
    shape: tuple[int, ...], more: float, is_fair: bool, columns: int
) -> None:
    """It allows 0.01 more or less. One that is an input, or a view of one, is a copy, and may be judged."""
    spec = spec_of(
        lambda x, y: {"copy": y, "tanh": y.tanh(), "moved": (x + more).view(4, 1), "size": 4},
        lambda seed: 1,
        {"rtol": 0, "atol": 0.01},
    )
    first, second = ((torch.full(shape, each), torch.arange(4.0 * columns) * each) for each in (1.0, -1.0))
    message = r"^out\['moved'\] is right within the tolerance if it is inputs\[0\] unchanged"
    with nullcontext() if is_fair else pytest.raises(UnfairComparison, match=message):
        Reference(spec, cpu_device()).check_fair(first, second)


@pytest.mark.parametrize(
    ("middle", "spread", "words"),
    [
        (0.0, 0.009, "zeros are right"),
        (7.0, 0.009, "one number everywhere is right"),
        *((middle, spread, "") for middle in (0.0, 7.0) for spread in (0.0, 0.011)),
    ],
)
@pytest.mark.parametrize("tries_each", [True, False])
def test_one_of_two_outputs_that_is_one_number_within_the_tolerance_is_refused(
    middle: float, spread: float, words: str, tries_each: bool
) -> None:
    """It allows 0.01 more or less. One that is exactly that number may be judged."""
    spec = spec_of(lambda x: (x, middle + spread * x.sin()), lambda seed: 1, {"rtol": 0, "atol": 0.01})
    first, second = (20 * torch.randn(1000, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    reference = Reference(replace(spec, tries_each=tries_each), cpu_device())
    is_refused = words and tries_each
    with pytest.raises(UnfairComparison, match=rf"^out\[1\] alone: {words}") if is_refused else nullcontext():
        reference.check_fair((first,), (second,))


def test_outputs_whose_names_differ_from_seed_to_seed_are_no_error_of_ours() -> None:
    """They are compared, and nothing is right in the place of one that is not there."""
    spec = spec_of(lambda x: {f"at {x[0]:g}": x, "sum": x.sum()}, lambda seed: 1, None)
    Reference(spec, cpu_device()).check_fair((torch.arange(1.0, 5),), (torch.arange(2.0, 6),))


def test_outputs_that_are_memory_of_inputs_are_known() -> None:
    spec = spec_of(lambda x, y: (x[1:], x + 1, y.view(2, 2), y.clone()), lambda seed: 1, None)
    found = Reference(spec, cpu_device()).outputs((torch.ones(4), torch.ones(4)))
    assert [each.is_input for each in found] == [True, False, True, False]


RING = cycle(torch.zeros(2, 4))


@pytest.mark.parametrize(
    "overwrite",
    [lambda kept: kept.copy_(torch.randn(4)), lambda kept: next(RING).copy_(torch.randn(4)), torch.Tensor.neg_],
)
def test_inputs_that_overwrite_earlier_ones_are_refused(overwrite: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Outputs are compared when later inputs have been drawn. Bytes count: -0 for 0 is another input."""
    kept = torch.zeros(4)
    spec = spec_of(torch.add, lambda seed: (torch.randn(4), overwrite(kept)), None)
    with pytest.raises(BadRequest, match="inputs of the spec overwrite earlier ones"):
        ReadyCase(spec, {}, cpu_device()).warm()


def fewer(*seeds: int) -> Callable[[int], torch.Tensor]:
    """Return inputs of which these seeds have fewer that are positive."""
    return lambda seed: torch.tensor([1.0, -1.0 if seed in seeds else 1.0])


@pytest.mark.parametrize(
    ("reference", "inputs", "message"),
    [
        (lambda x: [None], lambda seed: torch.randn(4), "there is nothing to compare: the reference returns no output"),
        (torch.tanh, lambda seed: torch.ones(4).to_sparse(), "the inputs has a Tensor of layout"),
        (torch.tanh, lambda seed: torch.full((4,), float(seed > 2)), "returns the same for two seeds"),
        *((lambda x: x[x > 0], fewer(*seeds), "outputs differ in shape from seed") for seeds in ([1], [2], [1, 2])),
    ],
)
def test_a_case_that_cannot_be_judged_is_refused(
    reference: Callable[..., object], inputs: Callable[[int], torch.Tensor], message: str
) -> None:
    """Always: it is made ready by the same seeds each time, as others may differ by chance."""
    with pytest.raises((BadRequest, UnfairComparison), match=message):
        ReadyCase(spec_of(reference, inputs, None), {}, cpu_device()).warm()


@pytest.mark.parametrize(("reference", "inputs"), [(3, len), (len, 3)])
def test_a_spec_is_made_of_functions(reference: Any, inputs: Any) -> None:
    with pytest.raises(BadRequest, match=r"=\.\.\.\) must be a function, found int"):
        spec_of(reference, inputs, None)


def test_a_candidate_is_known_by_the_name_of_a_reference_that_has_one() -> None:
    names = [spec_of(each, lambda seed: 1, None).entry.names for each in (torch.tanh, lambda x: x)]
    assert names == [("tanh", "candidate"), ("candidate",)]


def test_inputs_that_differ_in_shape_from_seed_to_seed_are_refused() -> None:
    """By whichever arm is given them first."""
    reference = Reference(spec_of(torch.tanh, lambda seed: torch.zeros(4), None), cpu_device())
    reference.begin_case((torch.zeros(4),), 2)
    reference.fill((torch.ones(4),), 1)
    assert [each.sum() for (each,) in reference.sets] == [0, 4]
    with pytest.raises(BadRequest, match="differ from seed to seed in more than the values of their tensors"):
        reference.fill((torch.zeros(99),), 1)


def test_new_inputs_are_called_on_before_they_are_timed() -> None:
    """The first call on each may be slower. They are kept for as many calls."""
    seen: list[int] = []
    reference = Reference(spec_of(lambda x: seen.append(x.data_ptr()), lambda seed: torch.zeros(4), None), cpu_device())
    for _ in range(2):
        reference.begin_case((torch.zeros(4),), 2)
    assert len(set(seen)) == len(seen) == 2
    reference.begin_case((torch.zeros(4),), 3)
    assert (len(reference.sets), len(seen)) == (3, 5)
