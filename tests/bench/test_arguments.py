"""Arguments that every call is given as they were."""

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast
from weakref import ref

import pytest
import torch

from pytest_gpubench import UnfairComparison, WrongResult
from pytest_gpubench.bench.arguments import VariedArguments
from pytest_gpubench.correctness.variation import Way
from pytest_gpubench.timing.calls import make_arguments
from tests.bench.calls import agreement_of, checked_rounds

# memory that setup gives again


def in_turn(sets: int) -> Callable[[], object]:
    turn = itertools.cycle([torch.arange(4.0) for _ in range(sets)])
    return lambda: (next(turn),)


def columns_in_turn() -> Callable[[], object]:
    whole = torch.arange(4.0).repeat_interleave(2).view(4, 2)
    turn = itertools.cycle([whole[:, 0], whole[:, 1]])
    return lambda: (next(turn),)


def filled(stop: int) -> Callable[[], object]:
    x = torch.arange(4.0)

    def setup() -> tuple[torch.Tensor]:
        x[:stop].copy_(torch.arange(stop))
        return (x,)

    return setup


@pytest.mark.parametrize(
    "setup", [in_turn(1), in_turn(2), in_turn(5), columns_in_turn(), filled(4), filled(2), lambda: (torch.arange(4.0),)]
)
def test_every_call_is_given_the_same(setup: Callable[[], object]) -> None:
    """As given, with other values, and after that, whatever calls write."""
    agreement = agreement_of(torch.sum, setup=setup)

    def is_given(values: list[int]) -> None:
        for _ in range(12):
            x: Any = agreement.fresh()[0][0]
            assert x.tolist() == values
            x.fill_(7)

    with agreement.leaving_state():
        is_given([0, 1, 2, 3])
        agreement.vary("turned round")
        is_given([3, 2, 1, 0])
        agreement.end_variation()
        is_given([0, 1, 2, 3])
    made: Any = setup()
    assert made[0].tolist() == [0, 1, 2, 3]


def test_what_setup_fills_may_be_given_beside_it() -> None:
    x = torch.arange(4.0)
    arguments = VariedArguments.of(make_arguments((x,), {}, lambda: None))
    for _ in range(6):
        arguments.fresh()
        assert x.tolist() == [0, 1, 2, 3]
        x.fill_(7)


def test_memory_that_setup_makes_is_kept_alive_for_no_longer_than_its_call() -> None:
    arguments = VariedArguments.of(make_arguments(setup=lambda: (torch.arange(4.0),)))
    before = None
    for _ in range(6):
        given: Any = arguments.fresh()[0][0]
        assert before is None or before() is None
        before = ref(given)
        del given
    assert arguments.setup is not None
    assert not arguments.setup.given


def test_memory_that_setup_keeps_is_soon_known_where_it_makes_other_memory_each_time() -> None:
    """Arguments are looked at in the first calls alone, and then held no more."""
    kept = torch.arange(4.0)
    arguments = VariedArguments.of(make_arguments(setup=lambda: (kept, torch.ones(8))))
    assert arguments.setup is not None
    looked_at: list[bool] = []
    for _ in range(12):
        arguments.fresh()
        looked_at.append(bool(arguments.setup.latest))
        assert kept.tolist() == [0, 1, 2, 3]
        kept.fill_(7)
    assert looked_at == [True] * 3 + [False] * 9


def test_a_setup_that_builds_on_what_it_finds_is_named_instead_of_the_candidate() -> None:
    x = torch.arange(4.0)
    agreement = agreement_of(torch.exp, setup=lambda: (x.add_(1),))
    expected = agreement.run_reference()
    with pytest.raises(UnfairComparison, match=r"^the reference 'exp' computes something else"):
        agreement.check("mine", torch.exp, expected)


@pytest.mark.parametrize("setup", [in_turn(1), in_turn(2), filled(2)])
def test_a_candidate_that_writes_into_what_setup_gives_again_may_be_wrong(setup: Callable[[], object]) -> None:
    """That it wrote there is not taken for other arguments."""
    agreement = agreement_of(torch.exp_, setup=setup)
    expected = agreement.run_reference()
    with pytest.raises(WrongResult, match=r"^mine is wrong: out: "):
        agreement.check("mine", torch.square_, expected)


@pytest.mark.parametrize(("room", "values"), [(15, [4, 5, 6, 7]), (16, [3, 2, 1, 0])])
def test_memory_that_lives_on_without_room_for_a_copy_is_left_alone(
    room: int, values: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turned round again and again, every second call would get other values than the first."""
    monkeypatch.setattr("pytest_gpubench.bench.arguments.room_on", lambda device: room)
    agreement = agreement_of(torch.sum, setup=in_turn(1))
    for way, count in (("as given", 4), ("turned round", 3)):
        agreement.vary(cast(Way, way))
        for _ in range(count):
            x: Any = agreement.fresh()[0][0]
            found = x.tolist()
            x.copy_(torch.arange(4.0, 8.0))
    assert found == values


def fresh(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.add(x, x, out=out)


def in_place(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return x.mul_(2)


@pytest.mark.parametrize(
    ("candidate", "raised"),
    [
        (fresh, None),
        (in_place, None),
        (lambda x, out: x * 2, None),
        (lambda x, out: out, WrongResult),
        (lambda x, out: x, WrongResult),
    ],
)
@pytest.mark.parametrize(
    ("reference", "filled"),  # with the right result before
    [(fresh, 0), (fresh, 2), (in_place, 0), (lambda x, out: x * 2, 0)],
)
@pytest.mark.parametrize("refills", [False, True])
@pytest.mark.parametrize("sets", [1, 2, 4])
def test_setup_may_give_memory_in_turn(
    sets: int,
    refills: bool,
    reference: Callable[..., object],
    filled: int,
    candidate: Callable[..., object],
    raised: type[Exception] | None,
) -> None:
    """A call never finds there what an earlier one left."""
    turn = itertools.cycle([(torch.arange(4.0), torch.arange(4.0) * filled) for _ in range(sets)])

    def setup() -> tuple[torch.Tensor, torch.Tensor]:
        x, out = next(turn)
        return (x.copy_(torch.arange(4.0)) if refills else x), out

    with nullcontext() if raised is None else pytest.raises(raised):
        checked = checked_rounds(candidate, reference=reference, setup=setup)
        checked.check()
