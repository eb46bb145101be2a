"""What timed calls have to leave alone: switches of torch, inputs, the outputs of other arms."""

from collections.abc import Callable

import pytest
import torch

from pytest_gpubench import MeasurementError, UnfairComparison
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.correctness import inputs
from pytest_gpubench.timing.calls import make_call
from tests.bench.calls import agreement_of, check, double

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
    """What moves is refused where it is to be put back, if chance has it looked at then, or at the end."""
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


def test_what_is_said_to_be_overwritten_is_the_same_for_every_call() -> None:
    x = torch.arange(3.0)
    seen: list[list[float]] = []

    def overwriting(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.tolist())
        return x.mul_(2)

    rounds = Rounds({"torch": double, "mine": overwriting}, x, overwrites=True)
    rounds.take(3)
    assert rounds.recorder.end()
    rounds.recorder.take(rounds.take)
    rounds.check()
    assert seen == [[0, 1, 2]] * 8


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


def test_a_switch_that_is_put_back_is_no_change() -> None:
    def without_gradient(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            return x * 2

    Rounds({"torch": double, "mine": without_gradient}, torch.ones(3)).take(2).check()


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
