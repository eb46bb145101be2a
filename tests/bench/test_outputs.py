"""What is known of the outputs of timed calls."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing._internal.two_tensor import TwoTensor

from pytest_gpubench import WrongResult
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.ran import copied
from pytest_gpubench.correctness.pool import PoisonedPool
from pytest_gpubench.stats.speedup import round_orders
from pytest_gpubench.timing.calls import make_call
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
    copy: Any = recorder.ran("reference").copied().outputs
    assert (copy.shape, copy.untyped_storage().nbytes()) == ((10**9, 1000), 4000)


def test_a_copy_of_a_tensor_that_wraps_others_has_copies_of_them() -> None:
    wrapper: Any = TwoTensor(torch.ones(3), torch.ones(3))  # type: ignore[no-untyped-call]
    wrapper.scale = 2
    copy: Any = copied(wrapper)
    wrapper.a.fill_(5)
    assert (copy.a.tolist(), copy.b.tolist(), copy.scale) == ([1, 1, 1], [1, 1, 1], 2)


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
    recorder.take(take)
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
    recorder.take(take)
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


def test_views_of_the_same_input_are_no_loan() -> None:
    agreement = agreement_of(lambda x: x[:2], torch.ones(4))
    check(recorded(lambda x: x[:2], agreement), ["mine"])


def test_the_references_own_memory_is_no_output_of_a_candidate() -> None:
    """What the reference wrote is not there any more when a candidate is called."""
    x, out = torch.arange(4.0), torch.zeros(4)
    agreement = agreement_of(lambda x: torch.mul(x, 2, out=out), x)
    expected = agreement.run_reference()
    assert torch.equal(out, torch.arange(4.0) * 2)
    with pytest.raises(WrongResult, match=r"^mine is wrong: out: 3 of 4 elements"):
        agreement.check("mine", lambda x: out, expected)
