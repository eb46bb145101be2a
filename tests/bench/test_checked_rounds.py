"""Rounds that do not count, and what their outputs show."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, cast
from weakref import ReferenceType, ref

import pytest
import torch

from pytest_gpubench import IncompleteRecords, InvalidResult, KernelsDiffer, UnfairComparison, WrongResult
from pytest_gpubench.bench.agreement import Agreement
from pytest_gpubench.correctness.inputs import InputMemory
from pytest_gpubench.correctness.variation import Way
from pytest_gpubench.timing.base import Rep
from pytest_gpubench.timing.comparison import take_once_more
from tests.bench.calls import Lazy, checked_rounds, double, match_of, taken_before
from tests.timing.fakes import ArmsTimer, Clock, rep


@pytest.mark.parametrize("seed", range(4))
def test_one_more_round_counts_nothing(seed: int) -> None:
    timer, taken = ArmsTimer(Clock(), lambda name, number: rep(1, "ab")), taken_before()
    take_once_more(match_of(seed), timer, taken, ["c", "r"])
    assert timer.names == ["c", "r"]
    assert [len(sample.reps) for sample in taken.samples.values()] == [40, 40]
    assert taken.rounds == []


@pytest.mark.parametrize("times", [1, 2, 3, 1000])
def test_other_kernels_in_one_more_round(times: int) -> None:
    """Even once: what is remembered by what the inputs hold is there already when the round is taken again."""

    def play(name: str, number: int) -> Rep:
        computes = name == "c" and timer.names.count("c") <= times
        return rep(100, "abc" if computes else "ab")

    timer = ArmsTimer(Clock(), play)
    with pytest.raises(KernelsDiffer, match="does not launch the same kernels in every call"):
        take_once_more(match_of(), timer, taken_before(), ["c"])


@pytest.mark.parametrize(
    ("candidate", "vary", "raised", "sentence", "rounds"),
    [
        (double, True, None, "", 2),
        (double, False, None, "", 1),
        (lambda x: x * 3, True, WrongResult, "^c is wrong in a timed call, though right when checked", 2),
        (lambda x: x * 3, False, WrongResult, "^c is wrong in a timed call, though right when checked", 1),
        (lambda x: x * (2 + (x[0] < 1)), True, WrongResult, "^c is wrong in a timed call, though right when", 2),
        (lambda x: x * 2 + (x[0] > 1), True, WrongResult, r"^c is wrong for other values \(turned round inputs", 2),
        (lambda x: x * 2 + (x[0] > 1), False, None, "", 1),
        (lambda x: torch.arange(4.0) * 2, True, InvalidResult, "^c returns what it had computed before", 1),
        (
            lambda x: (x * 2).as_subclass(Lazy),
            True,
            InvalidResult,
            "is a tensor of class Lazy, which may",
            1,
        ),
    ],
)
def test_timed_calls_are_checked_as_given_and_with_other_values(
    candidate: Callable[..., object], vary: bool, raised: type[Exception] | None, sentence: str, rounds: int
) -> None:
    timer = ArmsTimer(Clock(), lambda *at: rep(100, "ab"))
    checked = checked_rounds(candidate, timer, vary=vary)
    with nullcontext() if raised is None else pytest.raises(raised, match=sentence) as info:
        checked.check()
    assert info is None or not (info.value.__cause__ or hasattr(info.value, "__notes__"))
    assert info is None or info.value.__context__ is None or info.value.__suppress_context__, "one error is shown"
    assert timer.names_by_session == ["c" * rounds]


def test_what_golden_alone_finds_right_is_remembered_too() -> None:
    """It is not within the tolerance of the reference, which is less exact."""
    checked = checked_rounds(lambda x: torch.arange(4.0) * 2, reference=lambda x: x * 2.01)
    checked.recorder.agreement = replace(checked.recorder.agreement, golden=lambda x: x.double() * 2)
    with pytest.raises(InvalidResult, match=r"^c returns what it had computed before"):
        checked.check()


@pytest.mark.parametrize("vary", [True, False])
@pytest.mark.parametrize(
    ("candidate", "sentence"),
    [
        (double, None),
        (lambda x: x * (2 + (x[0] < 1)), "^c is wrong in a timed call, though right when checked"),
        (lambda x: x * 2 + (x[0] > 1), r"^c is wrong for other values \(turned round inputs"),
    ],
)
@pytest.mark.parametrize("buffers", [1, 2, 9])
def test_a_reference_may_write_its_results_over_those_before(
    buffers: int, candidate: Callable[..., object], sentence: str | None, vary: bool
) -> None:
    """Into one buffer, or into several in turn."""
    turn = itertools.cycle([torch.empty(4) for _ in range(buffers)])

    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.mul(x, 2, out=next(turn))

    checked = checked_rounds(candidate, reference=reference, vary=vary)
    is_seen = sentence is not None and (vary or "other values" not in sentence)
    with pytest.raises(WrongResult, match=sentence) if is_seen else nullcontext():
        checked.check()


@pytest.mark.parametrize(("vary", "place"), [(False, -1), (True, -1), (True, 0)])
@pytest.mark.parametrize("buffers", [1, 2, 3, 4, 5, 6])
def test_what_the_reference_returned_is_no_output_of_a_candidate(
    buffers: int, vary: bool, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its buffers it wrote to last, and with the right result in it."""
    kept = [torch.arange(4.0) * 2 for _ in range(buffers)]
    calls = itertools.count(1)

    def reference(x: torch.Tensor) -> torch.Tensor:
        kept.append(kept.pop(0))
        return torch.mul(x, 2, out=kept[-1])

    monkeypatch.setattr("pytest_gpubench.correctness.held.MOST_OBJECTS", 0)  # what they hold would be put back
    latest = lambda x: kept[place] if next(calls) > 2 else x * 2  # noqa: E731
    shared = "^out of 'c' is memory of the reference's out"
    stale = "^c (returns what it had computed before|is wrong for)"
    with pytest.raises((UnfairComparison, InvalidResult, WrongResult), match=f"{shared}|{stale}"):
        checked_rounds(latest, reference=reference, vary=vary).check()


@pytest.mark.parametrize(
    ("buffers", "place", "objects"), [(1, 0, 0), (2, 0, 0), (2, 1, 0), (9, 0, 0), (9, 4, 0), (9, 8, 0), (1, 0, 9)]
)
@pytest.mark.parametrize("returned", [torch.Tensor.clone, lambda result: result])
def test_what_the_reference_left_is_not_for_the_other_values(
    returned: Callable[..., torch.Tensor], buffers: int, place: int, objects: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that copies it returns what was right before; objects: those in which held memory is looked for."""
    kept = [torch.arange(4.0) * 2 for _ in range(buffers)]
    calls = itertools.count()

    def reference(x: torch.Tensor) -> torch.Tensor:
        kept.append(kept.pop(0))
        return returned(torch.mul(x, 2, out=kept[-1]))

    monkeypatch.setattr("pytest_gpubench.correctness.held.MOST_OBJECTS", objects)
    copying = lambda x: kept[place].clone() if next(calls) > 1 else x * 2  # noqa: E731
    with pytest.raises(InvalidResult, match=r"^c returns what it had computed before"):
        checked_rounds(copying, reference=reference).check()


def test_what_the_reference_writes_after_a_candidate_is_no_result_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where both know one buffer, a copy of which is the reference's output."""
    kept, calls = torch.empty(4), itertools.count()
    monkeypatch.setattr("pytest_gpubench.correctness.held.MOST_OBJECTS", 0)  # what they hold would be put back
    knowing = lambda x: kept if next(calls) > 1 else x * 2  # noqa: E731
    with pytest.raises(InvalidResult, match=r"^c returns what it had computed before"):
        checked_rounds(knowing, reference=lambda x: torch.mul(x, 2, out=kept).clone()).check()


def test_values_are_varied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked, ways, vary = checked_rounds(double), list[str](), Agreement.vary

    def noted(agreement: Agreement, way: Way) -> None:
        ways.append(way)
        vary(agreement, way)

    monkeypatch.setattr(Agreement, "vary", noted)
    checked.check()
    assert ways == ["turned round"]


@pytest.mark.parametrize("first", [0, 1])
def test_one_that_computes_in_every_second_call_is_stale_in_a_round(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls = torch.arange(4.0) * 2, itertools.count(first)
    candidate = lambda x: torch.mul(x, 2, out=out) if next(calls) % 2 else out  # noqa: E731
    monkeypatch.setattr("pytest_gpubench.correctness.held.MOST_OBJECTS", 0)  # what it holds would be put back
    stale = "^c (returns what it had computed before|is wrong in a timed call)"
    with pytest.raises((InvalidResult, WrongResult), match=stale):
        checked_rounds(candidate).check()


def test_a_reference_may_keep_its_results_by_content() -> None:
    kept: dict[tuple[float, ...], torch.Tensor] = {}
    reference = lambda x: kept.setdefault(tuple(x.tolist()), x * 2)  # noqa: E731
    checked_rounds(double, reference=reference).check()


def test_a_reference_may_return_what_it_changed_twice() -> None:
    """Its outputs are copied one by one before the values are put back, and are one in memory all the same."""

    def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        return x, x

    def candidate(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = x.mul_(2).clone()
        return found, found

    checked_rounds(candidate, reference=reference).check()


def test_while_values_vary_no_output_of_the_values_as_given_is_held() -> None:
    made: list[ReferenceType[torch.Tensor]] = []
    living: list[int] = []

    def doubling(x: torch.Tensor) -> torch.Tensor:
        living.append(sum(each() is not None for each in made))
        out = x * 2
        made.append(ref(out))
        return out

    another = lambda x: doubling(x)  # noqa: E731
    checked = checked_rounds(doubling, another=another)
    before = len(living)
    checked.check()
    assert living[before:] == [0, 1, 0, 1]


@pytest.mark.parametrize("vary", [False, True])
def test_the_session_ends_after_a_round(vary: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU's work after it would belong to no call, and the session would be taken again."""
    done: list[str] = []

    def play(name: str, number: int) -> Rep:
        done.append("round")
        return rep(100, "ab")

    timer = ArmsTimer(Clock(), play)
    checked = checked_rounds(double, timer, vary=vary)
    session, compare = timer.session, Agreement.compare

    @contextmanager
    def ends() -> Iterator[object]:
        with session() as taking:
            yield taking
        done.append("session ends")

    def noted(*given: Any, **named: Any) -> object:
        done.append("comparison")
        return compare(*given, **named)

    monkeypatch.setattr(timer, "session", ends)
    monkeypatch.setattr(Agreement, "compare", noted)
    checked.check()
    assert done == [*["round", "comparison"] * vary, "round", "session ends", "comparison"]


@pytest.mark.parametrize(
    ("candidate", "raised"),
    [
        (torch.sum, None),
        (lambda x: x.sum() + (x[0] > 1), None),  # turned round, they tell nothing
        (lambda x: x.sum() + (x[1] == 0), WrongResult),
    ],
)
def test_the_values_of_the_second_round_are_the_first_that_tell(
    candidate: Callable[..., object], raised: type[Exception] | None
) -> None:
    timer = ArmsTimer(Clock(), lambda *at: rep(100, "ab"))
    checked = checked_rounds(candidate, timer, reference=torch.sum)
    wrong = r"^c is wrong for other values \(partly levelled inputs"
    with nullcontext() if raised is None else pytest.raises(raised, match=wrong):
        checked.check()
    assert timer.names_by_session == ["cc"]


@pytest.mark.parametrize(
    ("wrong", "raised", "sentence"),
    [(False, ValueError, "^these only"), (True, WrongResult, "^c is wrong in a timed call, though right when checked")],
)
def test_a_candidate_that_was_wrong_before_it_refuses_other_values(
    wrong: bool, raised: type[Exception], sentence: str
) -> None:
    def refusing(x: torch.Tensor) -> object:
        if x[0] > 1:
            raise ValueError("these only")
        return x * 2 + wrong

    with pytest.raises(raised, match=sentence) as info:
        checked_rounds(refusing).check()
    first = info.value.__cause__ if wrong else info.value
    assert any("its inputs were turned round" in note for note in getattr(first, "__notes__", ()))


def test_the_error_that_broke_the_gpu_is_not_hidden_by_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError("device-side assert")

    def breaking(x: torch.Tensor) -> torch.Tensor:
        if x[0] > 1:
            monkeypatch.setattr(Agreement, "end_variation", broken)
            raise RuntimeError("device-side assert in the call")
        return x * 2

    with pytest.raises(RuntimeError, match=r"^device-side assert in the call"):
        checked_rounds(breaking).check()


def test_inputs_are_put_back_where_there_was_no_room_to_vary_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(memory: InputMemory) -> None:
        raise torch.OutOfMemoryError

    checked = checked_rounds(double)
    monkeypatch.setattr(InputMemory, "begin_varied", refuse)
    with pytest.raises(torch.OutOfMemoryError):
        checked.check()
    assert cast(Any, checked.recorder.agreement.arguments.args[0]).tolist() == [0, 1, 2, 3]


def test_arms_that_share_no_memory_are_called_with_the_values_as_given_again() -> None:
    timer = ArmsTimer(Clock(), lambda *at: rep(100, "ab"))
    checked = checked_rounds(double, timer)
    checked.recorder.arms = 0
    checked.check()
    assert timer.names_by_session == ["cc"]


def test_an_output_that_a_function_holds_is_not_put_back_while_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a CUDA graph: it held the right result before, so that the first change is that by other values."""
    out = torch.arange(4.0) * 2

    def replaying(x: torch.Tensor) -> torch.Tensor:
        return torch.mul(x, 2, out=out)

    checked = checked_rounds(replaying)
    monkeypatch.setattr("secrets.randbelow", lambda below: 0)
    checked.check()


@pytest.mark.parametrize(("slow_us", "is_refused"), [(120.0, False), (130.0, True)])
def test_one_that_is_slower_whenever_the_values_change(slow_us: float, is_refused: bool) -> None:
    seen = [0.0]

    def candidate(x: torch.Tensor) -> torch.Tensor:
        seen.append(x[0].item())
        return x * 2

    timer = ArmsTimer(Clock(), lambda name, number: rep(slow_us if name == "c" and seen[-2:] == [0, 3] else 100, "ab"))
    checked = checked_rounds(candidate, timer)
    with pytest.raises(InvalidResult, match=r"^c took 130\.0 us when the") if is_refused else nullcontext():
        checked.check()
    assert cast(Any, checked.recorder.agreement.arguments.args[0]).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("incomplete", [False, True])
@pytest.mark.parametrize(
    ("others", "raised"),
    [
        ((), None),
        (("given",), KernelsDiffer),
        (("turned",), InvalidResult),
    ],
)
def test_kernels_of_both_rounds_are_those_of_the_rounds_that_count(
    others: Sequence[str], raised: type[Exception] | None, incomplete: bool
) -> None:
    """Where the records of their session are not complete, each is taken again in one of its own."""
    seen: list[str] = []

    def seeing(x: torch.Tensor) -> torch.Tensor:
        seen.append("given" if x[0] == 0 else "turned")
        return x * 2

    def play(name: str, number: int) -> Rep:
        return rep(100, "abc" if name == "c" and seen[-1] in others else "ab")

    timer = ArmsTimer(Clock(), play, [IncompleteRecords("lost")] if incomplete else ())
    checked = checked_rounds(seeing, timer)
    with nullcontext() if raised is None else pytest.raises(raised, match="not launch the same kernels"):
        checked.check()
    assert len(timer.sizes) <= (3 if incomplete else 1)
    if raised is None:
        assert timer.sizes == ([2, 1, 1] if incomplete else [2])
        assert seen[-2:] == (["given", "turned"] if incomplete else ["turned", "given"])
