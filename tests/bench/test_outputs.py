"""Timed calls return outputs in memory of their own, and leave switches and inputs as they were."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing._internal.two_tensor import TwoTensor

from pytest_gpubench import MeasurementError, UnfairComparison, WrongResult
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.ran import Ran
from pytest_gpubench.correctness import inputs
from pytest_gpubench.correctness.pool import PoisonedPool, with_enough
from pytest_gpubench.stats.speedup import round_orders
from pytest_gpubench.timing.calls import Backward, make_call
from tests.bench.calls import agreement_of, check, double, recorded


@given(rounds=st.integers(2, 6), arms=st.integers(2, 3), seed=st.integers(0, 1000))
def test_all_calls_of_a_round_write_to_the_same_memory(rounds: int, arms: int, seed: int) -> None:
    """Whatever their order; those of the next round to that of the round before it."""
    agreement = agreement_of(double, torch.ones(4))
    recorder, names = OutputRecorder(agreement, arms=arms), "abc"[:arms]
    calls = {name: recorder.watch(name, make_call(double, agreement.arguments, label=name)) for name in names}
    recorder.begin()
    for number, order in enumerate(round_orders(names, rounds, seed)):
        before = next(iter(recorder.last.values()), None)
        for name in order:
            timed = calls[name].prepare()
            assert not recorder.last  # so the memory of the call before is free
            assert recorder.spare is before
            timed()
        assert (recorder.spare is None) is (number == 0)


def test_an_expanded_output_is_copied_once_for_each_address() -> None:
    """Its elements would take 4 TB."""
    agreement = agreement_of(lambda x: x.expand(10**9, 1000), torch.arange(1000.0))
    recorder = recorded(agreement.reference, agreement)
    copy: Any = recorder.last_of("reference", Ran(None, {})).copied().outputs
    assert (copy.shape, copy.untyped_storage().nbytes()) == ((10**9, 1000), 4000)


def test_a_copy_of_a_tensor_that_wraps_others_has_copies_of_them() -> None:
    wrapper: Any = TwoTensor(torch.ones(3), torch.ones(3))  # type: ignore[no-untyped-call]
    wrapper.scale = 2
    copy: Any = Ran(wrapper, {}).copied().outputs
    wrapper.a.fill_(5)
    assert (copy.a.tolist(), copy.b.tolist(), copy.scale) == ([1, 1, 1], [1, 1, 1], 2)


def test_a_copy_of_an_array_is_one_too() -> None:
    array = numpy.ones(3)
    copy: Any = Ran([array], {}).copied().outputs
    array.fill(5)
    assert copy[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c")])
def test_every_arm_has_an_output_of_its_own_in_the_end(names: tuple[str, ...]) -> None:
    agreement = agreement_of(double, torch.ones(4))
    recorder = OutputRecorder(agreement, arms=len(names))
    calls = {name: recorder.watch(name, make_call(double, agreement.arguments, label=name)) for name in names}

    def take() -> None:
        for name in (*names, *names):
            calls[name].prepare()()

    take()
    assert len(recorder.last) == 1
    assert recorder.end()
    with_enough(recorder.pool, take)
    assert recorder.last.keys() == set(names)
    assert len({id(output) for output in recorder.last.values()}) == len(names)


@pytest.mark.parametrize("growths", [0, 1, 2])
def test_checked_calls_of_candidates_alone_have_the_pool(growths: int) -> None:
    """It is filled before each, and is told whether another candidate's output lies in it."""
    agreement, fills, uses = agreement_of(double, torch.ones(4)), list[tuple[list[str], bool]](), list[list[str]]()

    class Pool:
        growths = 0

        def fill(self, in_use: bool) -> None:
            fills.append(([*recorder.last], in_use))

        def use(self) -> AbstractContextManager[None]:
            uses.append([*recorder.last])
            return nullcontext()

    recorder = OutputRecorder(agreement, arms=3, pool=cast(PoisonedPool, Pool()), reference="r")
    calls = [recorder.watch(name, make_call(double, agreement.arguments, label=name)) for name in "abr"]

    def take() -> None:
        for call in calls:
            call.prepare()()
        Pool.growths += len(uses) <= 2 * growths

    take()
    assert recorder.end()
    with_enough(recorder.pool, take)
    again = [(["b", "r"], True), (["r", "a"], True)]
    assert fills == [([], False), (["a"], True), *again * growths]
    assert uses == [kept for kept, _ in fills]
    assert recorder.last.keys() == {"a", "b", "r"}
    recorder.forget_all()
    calls[0].prepare()
    assert fills[-1] == ([], False)


def test_a_pool_is_filled_when_gradients_are_dropped() -> None:
    """Nothing of the call before lies in it then."""
    x, fills = torch.ones(4, requires_grad=True), list[tuple[object, bool]]()
    agreement = agreement_of(double, x, backward="backward")

    class Pool:
        def fill(self, in_use: bool) -> None:
            fills.append((x.grad, in_use))

        def use(self) -> AbstractContextManager[None]:
            return nullcontext()

    recorder = OutputRecorder(agreement, pool=cast(PoisonedPool, Pool()), reference="r")
    call = recorder.watch("a", make_call(double, agreement.arguments, "backward", "a"))
    recorder.end()
    for _ in range(3):
        call.prepare()()
        assert x.grad is not None
    assert fills == [(None, False)] * 3


def test_the_references_own_memory_is_no_output_of_a_candidate() -> None:
    """What the reference wrote is not there any more when a candidate is called."""
    x, out = torch.arange(4.0), torch.zeros(4)
    agreement = agreement_of(lambda x: torch.mul(x, 2, out=out), x)
    expected = agreement.run_reference()
    assert torch.equal(out, torch.arange(4.0) * 2)
    with pytest.raises(WrongResult, match=r"^mine is wrong: out: 3 of 4 elements"):
        agreement.check("mine", lambda x: out, expected)


# calls in mirrored order

Function = Callable[..., object]


class Rounds:
    """Calls of arms in mirrored order, the reference first, watched as timed calls are."""

    def __init__(
        self,
        arms: dict[str, Function],
        *args: object,
        setup: Callable[[], object] | None = None,
        overwrites: bool = False,
    ) -> None:
        self.reference, *self.names = arms
        agreement = agreement_of(arms[self.reference], *args, setup=setup, overwrites=overwrites)
        self.recorder = OutputRecorder(agreement, reference=self.reference)
        calls = {name: make_call(arm, agreement.arguments, label=name) for name, arm in arms.items()}
        self.calls = [self.recorder.watch(name, call) for name, call in calls.items()]
        self.recorder.begin()

    def take(self, rounds: int = 1) -> "Rounds":
        for call in (*self.calls, *self.calls[::-1]) * rounds:
            call.prepare()()
        return self

    def take_in_order(self) -> None:
        """Call each arm once, and end."""
        for call in self.calls:
            call.prepare()()
        self.recorder.end()

    def check(self) -> None:
        check(self.recorder, self.names)


def in_call(number: int, deed: Callable[..., object]) -> Function:
    """Return a function that doubles, and in one of its calls does something else first."""
    calls: list[int] = []

    def candidate(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == number:
            deed(x)
        return x * 2

    return candidate


# inputs


@pytest.mark.parametrize(
    "deed",
    [
        lambda x: x.zero_(),
        lambda x: x.data.fill_(3),
        lambda x: x.resize_(2),
        lambda x: x.t_(),
        lambda x: x.set_(torch.ones(2, 3)),
        lambda x: x.requires_grad_(),
    ],
    ids=["values", "values past torch's count", "shape", "strides", "memory", "gradient"],
)
@pytest.mark.parametrize("number", [1, 2, 5])
def test_inputs_that_a_timed_call_changes(deed: Function, number: int) -> None:
    """An input that moves is refused where it is to be put back, if chance has it looked at then, or at the end."""
    rounds = Rounds({"torch": double, "mine": in_call(number, deed)}, torch.arange(6.0).reshape(2, 3))
    changed = r"^a timed call of 'torch' or 'mine' changed args\[0\], which no|^a call changes where args\[0\] lies"
    with pytest.raises((UnfairComparison, MeasurementError), match=changed):
        rounds.take(3).check()


def test_a_change_that_is_undone_is_seen_by_the_rep_that_chance_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    def flips(x: torch.Tensor) -> torch.Tensor:
        return x.neg_() * 2

    monkeypatch.setattr(inputs, "FIRST_CALLS", 0)
    monkeypatch.setattr(inputs, "CALLS_PER_LOOK", 1)
    rounds = Rounds({"mine": flips, "torch": double}, torch.ones(3))
    with pytest.raises(UnfairComparison, match=r"changed args\[0\]"):
        rounds.take(2)


def test_an_output_in_the_memory_of_an_input_is_not_written_over_while_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where an input is looked at that a call was the first to change."""
    monkeypatch.setattr(inputs, "FIRST_CALLS", 0)
    rounds = Rounds({"torch": double, "mine": in_call(3, torch.zero_)}, torch.ones(3)).take()
    rounds.recorder.end()
    monkeypatch.setattr(inputs, "CALLS_PER_LOOK", 1)
    rounds.take()
    with pytest.raises(UnfairComparison, match=r"^a timed call of 'torch' or 'mine' changed args\[0\]"):
        rounds.check()


def test_what_is_said_to_be_overwritten_is_the_same_for_every_call() -> None:
    x = torch.arange(3.0)
    seen: list[list[float]] = []

    def overwriting(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.tolist())
        return x.mul_(2)

    rounds = Rounds({"torch": double, "mine": overwriting}, x, overwrites=True)
    rounds.take(3)
    assert rounds.recorder.end()
    with_enough(rounds.recorder.pool, rounds.take)
    rounds.check()
    assert seen == [[0, 1, 2]] * 8


def train(x: torch.Tensor, weight: Any, factor: float = 1.0) -> Any:
    loss = (x * weight).sum()
    (factor * loss).backward()
    return loss.detach()


@pytest.mark.parametrize(
    ("candidate", "told"),
    [
        (lambda x, weight: train(x, weight), None),
        (lambda x, weight: train(x, weight, 2.0), "3 of 4 elements"),
        (lambda x, weight: (x * weight).sum().detach(), "the candidate leaves it as it was"),
    ],
)
def test_gradients_that_timed_calls_leave_are_compared(candidate: Function, told: str | None) -> None:
    """In calls that are made for that, as those of the rounds have left them to the next."""
    rounds = Rounds({"torch": train, "mine": candidate}, torch.arange(4.0), torch.ones(4, requires_grad=True)).take()
    assert rounds.recorder.end()
    rounds.take()
    wrong = rf"^mine is wrong in a timed call, though right when checked: args\[1\]\.grad: {told}"
    with nullcontext() if told is None else pytest.raises(WrongResult, match=wrong):
        rounds.check()


@pytest.mark.parametrize(
    ("right", "told"), [(99, None), (3, r"out\[0\]: 3 of 4 elements .*; args\[1\]\[0\]: 3 of 4 elements")]
)
def test_what_timed_calls_put_into_a_list_is_compared(right: int, told: str | None) -> None:
    """Also where they return the list, which is put back for the next call; right: the calls that are."""
    calls: list[int] = []

    def append(x: torch.Tensor, kept: list[torch.Tensor]) -> list[torch.Tensor]:
        kept.append(x * 2)
        return kept

    def candidate(x: torch.Tensor, kept: list[torch.Tensor]) -> list[torch.Tensor]:
        calls.append(1)
        return append(x * (1 + (len(calls) > right)), kept)

    rounds = Rounds({"torch": append, "mine": candidate}, torch.arange(4.0), [])
    rounds.recorder.agreement.run_reference()
    assert rounds.take().recorder.end()
    rounds.take()
    wrong = f"^mine is wrong in a timed call, though right when checked: {told}"
    with nullcontext() if told is None else pytest.raises(WrongResult, match=wrong):
        rounds.check()


@pytest.mark.parametrize("backward", ["backward", "both"])
def test_gradients_of_timed_backward_runs_are_not_copied(backward: Backward) -> None:
    agreement = agreement_of(double, torch.ones(4, requires_grad=True), backward=backward)
    recorder = OutputRecorder(agreement, reference="r")
    call = recorder.watch("r", make_call(double, agreement.arguments, backward, "r"))
    recorder.end()
    call.prepare()()
    assert recorder.last_of("r", Ran(None, {})).inputs == {}


# switches


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("setup", [True, False])
def test_a_switch_that_a_timed_call_leaves_changed(number: int, setup: bool) -> None:
    before = torch.get_num_threads()
    x = torch.ones(3)
    arms = {"torch": double, "mine": in_call(number, lambda x: torch.set_num_threads(before + 1))}
    rounds = Rounds(arms, setup=lambda: (x,)) if setup else Rounds(arms, x)
    with pytest.raises(UnfairComparison, match=r"^'mine' changed torch\.set_num_threads from .* and left it so"):
        rounds.take(2).check()
    assert torch.get_num_threads() == before


def test_a_switch_that_setup_sets_is_its_own() -> None:
    before = torch.backends.cudnn.benchmark
    x = torch.ones(3)

    def setup() -> tuple[torch.Tensor]:
        torch.backends.cudnn.benchmark = True
        return (x,)

    try:
        Rounds({"torch": double, "mine": double}, setup=setup).take(2).check()
    finally:
        torch.backends.cudnn.benchmark = before


# outputs


def borrowing() -> dict[str, Function]:
    """Return arms of which the last returns what the one before it returned."""
    kept: list[torch.Tensor] = []

    def worker(x: torch.Tensor) -> torch.Tensor:
        kept[:] = [x * 2]
        return kept[0]

    return {"torch": double, "worker": worker, "mine": lambda x: kept[0]}


@pytest.mark.parametrize("after", [False, True])
def test_an_output_that_another_candidate_made(after: bool) -> None:
    """In rounds that count, or after them."""
    rounds = Rounds(borrowing(), torch.ones(3))
    if after:
        rounds.recorder.end()
    with pytest.raises(UnfairComparison, match=r"^out of 'mine' is memory of 'worker', its out: .*; give each its own"):
        rounds.take_in_order()


def test_setup_is_not_called_for_a_look() -> None:
    calls: list[int] = []

    def setup() -> tuple[torch.Tensor]:
        calls.append(1)
        return (torch.ones(3),)

    Rounds({"torch": double}, setup=setup).take(3).check()
    assert len(calls) == 6
