"""Gradients of timed backward runs: compared with the reference's, and once more under other upstream gradients."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from pytest_gpubench import InvalidResult, WrongResult
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.ran import input_gradients
from pytest_gpubench.timing.calls import Backward, make_arguments, make_call
from tests.bench.calls import agreement_of, check, checked_rounds, double

Function = Callable[..., Any]


class Cached(torch.autograd.Function):
    """Double; return the gradient of an earlier call."""

    kept: list[torch.Tensor] = []  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        if not Cached.kept:
            Cached.kept.append(grad * 2)
        return Cached.kept[0].clone()


class LaterWrong(torch.autograd.Function):
    """Double; from the second call on the gradient is wrong."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        LaterWrong.calls += 1
        return grad * (2 if LaterWrong.calls == 1 else 3)


class InPlace(torch.autograd.Function):
    """Double; the gradient lies where the upstream gradient lay."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.mul_(2).view(-1)


@pytest.fixture(autouse=True)
def forget() -> None:
    Cached.kept.clear()
    LaterWrong.calls = 0


class Runs:
    """Timed backward runs of two arms, and their agreement."""

    def __init__(
        self,
        candidate: Function,
        backward: Backward,
        *args: object,
        setup: Function | None = None,
        reference: Function = double,
    ) -> None:
        self.agreement = agreement_of(reference, *args, setup=setup, backward=backward)
        self.recorder = OutputRecorder(self.agreement, reference="torch")
        arms = {"torch": reference, "mine": candidate}
        self.calls = [
            self.recorder.watch(name, make_call(arm, self.agreement.arguments, backward, name))
            for name, arm in arms.items()
        ]
        self.expected = self.agreement.run_reference()
        self.agreement.check("mine", candidate, self.expected)

    def take(self) -> None:
        for call in (*self.calls, *self.calls[::-1]):
            call.prepare()()


def leaf() -> torch.Tensor:
    return torch.arange(1.0, 5.0, requires_grad=True)


@dataclass
class Output:
    y: torch.Tensor


@pytest.mark.parametrize("of", [lambda y: y, Output])
@pytest.mark.parametrize("backward", ["backward", "both"])
def test_a_gradient_that_is_wrong_when_it_is_timed(backward: Backward, of: Function) -> None:
    later_wrong: Function = LaterWrong.apply
    runs = Runs(lambda x: of(later_wrong(x)), backward, leaf(), reference=lambda x: of(double(x)))
    runs.take()
    with pytest.raises(WrongResult, match=r"^mine is wrong in a timed call, though right when checked: grad args\[0\]"):
        check(runs.recorder, ["mine"])


@pytest.mark.parametrize("backward", ["backward", "both"])
@pytest.mark.parametrize(
    ("candidate", "is_kept"), [(double, False), (lambda x: x + x, False), (InPlace.apply, False), (Cached.apply, True)]
)
@pytest.mark.parametrize("reference", [double, InPlace.apply])
def test_gradients_of_timed_calls(reference: Function, candidate: Function, is_kept: bool, backward: Backward) -> None:
    """Also where they lie in the upstream gradient's memory, which both functions share.

    That of a linear function depends on no input: the upstream gradient has to change.
    """
    checked = checked_rounds(candidate, reference=reference, backward=backward)
    kept = r"^c returns what it had computed before"
    with pytest.raises(InvalidResult, match=kept) if is_kept else nullcontext():
        checked.check()


def test_a_gradient_that_is_missing_is_not_the_references() -> None:
    """Both arms accumulate into the same input: what the reference left there is none of the candidate's."""
    calls: list[int] = []

    def forgetting(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2 if len(calls) == 1 else (x.detach() * 2).requires_grad_()

    runs = Runs(forgetting, "backward", leaf())
    runs.take()
    with pytest.raises(WrongResult, match=r"^mine is wrong in a timed call.*grad args\[0\]: found NoneType"):
        check(runs.recorder, ["mine"])


@pytest.mark.parametrize("backward", ["backward", "both"])
def test_a_gradient_may_lie_in_what_the_forward_run_was_given(backward: Backward) -> None:
    """As the indices of a sparse one do: both arms return that memory."""
    lookup = lambda at, rows: torch.nn.functional.embedding(at, rows, sparse=True)  # noqa: E731
    runs = Runs(lookup, backward, torch.tensor([1, 0]), torch.ones(4, 3, requires_grad=True), reference=lookup)
    runs.take()
    runs.recorder.end()
    runs.take()
    runs.recorder.check_as_given(["mine"], runs.expected)


def test_inputs_that_setup_makes() -> None:
    runs = Runs(LaterWrong.apply, "backward", setup=lambda: (leaf(),))
    runs.take()
    with pytest.raises(WrongResult, match="in a timed call"):
        check(runs.recorder, ["mine"])


def test_inputs_in_a_closure_have_no_gradient_to_compare() -> None:
    weight = leaf()
    agreement = agreement_of(lambda: weight * 2, backward="backward")
    recorder = OutputRecorder(agreement, reference="torch")
    for name in ("torch", "mine"):
        recorder.watch(name, make_call(agreement.reference, agreement.arguments, "backward", name)).prepare()()
    check(recorder, ["mine"])


@pytest.mark.parametrize(("input_has", "output_has"), [(True, True), (True, False), (False, True)])
def test_both_an_input_and_an_output_must_require_a_gradient(input_has: bool, output_has: bool) -> None:
    output = leaf() * 2 if output_has else torch.ones(3)
    found = input_gradients(output, (leaf().requires_grad_(input_has),), {}, output)
    assert bool(found) == (input_has and output_has)


def test_a_function_that_overwrites_what_setup_made() -> None:
    """Before the first timed call, a run forward tells which tensors have gradients: it has arguments of its own."""
    call = make_call(torch.relu_, make_arguments((), None, lambda: (leaf() * 1,)), "both")
    for _ in range(2):
        call.prepare()()


def test_an_error_in_the_gradients_says_who_asked_for_them() -> None:
    def checkpointed(x: torch.Tensor) -> Any:
        return checkpoint(double, x, use_reentrant=True)

    with pytest.raises(RuntimeError, match="set use_reentrant=False") as raised:
        Runs(checkpointed, "backward", torch.ones(3, requires_grad=True))
    assert getattr(raised.value, "__notes__", []) == [
        "gpu_bench: raised by torch.autograd.grad, with which gradients are compared"
    ]


def test_all_functions_are_given_the_same_upstream_memory_and_the_one_that_overwrites_it_is_told() -> None:
    runs = Runs(InPlace.apply, "backward", leaf())
    runs.take()
    (upstream,) = runs.agreement.arguments.upstream.given.values()
    made = [call.prepare().made for call in runs.calls]
    assert [gradients for _, gradients in made] == [[upstream], [upstream]]
    assert [list(call.flags()) for call in runs.calls] == [[], ["overwrites upstream"]]


def test_upstream_gradients_are_kept_for_the_latest_shape_and_end_with_their_call() -> None:
    arguments = make_arguments((leaf(),))
    sizes = iter([4, 3, 2])
    call = make_call(lambda x: (x * 2)[: next(sizes)], arguments, "backward")
    for _ in range(3):
        call.prepare()()
    (key,) = arguments.upstream.given
    assert (key[-1], len(arguments.upstream.drawn)) == ((2,), 1)
    assert arguments.upstream.latest is not None
    assert arguments.upstream.latest() is not None
    del call
    assert arguments.upstream.latest() is None
