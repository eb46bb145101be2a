"""Calls in memory with margins: what reads or writes beyond its arguments is told, what does not is left alone."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import cast

import pytest
import torch

from pytest_gpubench import UnfairComparison, WrongResult, bench, scripted
from pytest_gpubench.bench.guarded import GuardedCall
from pytest_gpubench.correctness.pool import PoisonedPool
from tests.bench.calls import agreement_of, double

Function = Callable[..., torch.Tensor]


def beyond(x: torch.Tensor, elements: int) -> torch.Tensor:
    """Return a tensor's memory from its first element on, and so many elements more."""
    return x.as_strided((x.numel() + elements,), (1,), x.storage_offset())


def reads_past(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y) + 0 * beyond(y, 1)[-1]


def reads_before(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y) + 0 * x.as_strided((1,), (1,), x.storage_offset() - 1)


def reads_past_without_use(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    beyond(y, 3).clone()
    return x + y


def writes_past(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x + y
    beyond(x, 2)[-1] = 3
    return out


def indexes_past(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[beyond(y, 1)].sum(0, keepdim=True)


def beyond_counts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Wrong where the arguments lie, as there is a number behind."""
    return beyond(y, 1).sum()


def only_where_it_lies(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y if x.data_ptr() in HOME else x - y


def raises_elsewhere(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.data_ptr() not in HOME:
        raise ValueError("somewhere else")
    return x + y


MEMORY = torch.arange(40.0)
X, Y = MEMORY[4:9], torch.arange(20.0)[4:9]
Z = torch.arange(5.0)
HOME = [X.data_ptr()]
ROWS = torch.tensor([0, 3, 2, 0])[:3]


@pytest.mark.parametrize(
    ("candidate", "reference", "args", "raised", "noted"),
    [
        (torch.add, torch.add, (X, Y), None, None),
        (reads_past, torch.add, (X, Y), r"reads past args\[1\]: its outputs depend on what lies there", None),
        (reads_before, torch.add, (X, Y), r"reads past args\[0\]", None),
        (reads_past_without_use, torch.add, (X, Y), None, None),
        (writes_past, torch.add, (X, Y), r"writes past args\[0\] \(margins=False", None),
        (indexes_past, lambda x, i: x[i].sum(0, keepdim=True), (Z, ROWS), r"reads past args\[1\]", None),
        (only_where_it_lies, torch.add, (X, Y), None, "it is right only where its arguments lie"),
        (raises_elsewhere, torch.add, (X, Y), None, "at other addresses it raised ValueError('somewhere else')"),
        (beyond_counts, lambda x, y: y.sum(), (X, Y), r"reads past args\[1\]", None),
        (lambda: MEMORY * 2, lambda: MEMORY + MEMORY, (), None, None),
    ],
)
def test_candidates(
    candidate: Function, reference: Function, args: tuple[torch.Tensor, ...], raised: str | None, noted: str | None
) -> None:
    agreement = agreement_of(reference, *args)
    expected = agreement.run_reference()
    agreement.found("mine", candidate, expected)
    given = [tensor.clone() for tensor in (MEMORY, Y)]
    with nullcontext() if raised is None else pytest.raises(WrongResult, match=rf"^mine {raised}"):
        guarded = GuardedCall(agreement, "mine", candidate, expected, None)
        assert guarded.is_possible is bool(args)
        guarded.check()
    notes = [] if noted is None else [f"mine was not tried with margins around its arguments: {noted}"]
    assert agreement.remarks == notes
    assert all(map(torch.equal, (MEMORY, Y), given)), "the arguments themselves are not touched"


def test_without_margins_nothing_is_moved() -> None:
    agreement = agreement_of(torch.add, X, Y)
    object.__setattr__(agreement, "margins", False)
    assert not GuardedCall(agreement, "mine", reads_past, agreement.run_reference(), None).is_possible


def test_arguments_that_are_overwritten_may_be_moved() -> None:
    agreement = agreement_of(torch.Tensor.mul_, torch.arange(3.0), 2.0)
    expected = agreement.run_reference()
    agreement.check("mine", torch.Tensor.mul_, expected)
    GuardedCall(agreement, "mine", torch.Tensor.mul_, expected, None).check()
    assert agreement.remarks == []


def test_a_candidate_that_is_wrong_elsewhere_alone_is_called_as_often_as_it_takes_to_tell() -> None:
    calls: list[int] = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return double(x)

    agreement = agreement_of(double, torch.ones(3))
    GuardedCall(agreement, "mine", counted, agreement.run_reference(), None).check()
    assert len(calls) == 1


def test_a_candidate_that_may_overwrite_an_argument_is_called_with_margins_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, check = [], GuardedCall.check

    def counted(self: GuardedCall) -> object:
        calls.append(self.name)
        return check(self)

    monkeypatch.setattr(GuardedCall, "check", counted)
    clear = scripted([10.0] * 40)(lambda x, y: double(x) + 0 * y.zero_())
    plain = scripted([10.0] * 40)(lambda x, y: double(x))
    bench.compare({"mine": clear}, plain, (torch.arange(5.0), torch.arange(5.0)), overwrites=("args[1]",))
    assert calls == ["mine"]


def test_a_reference_that_does_not_repeat_itself_is_named_where_margins_show_it() -> None:
    calls = itertools.count()
    agreement = agreement_of(lambda x: x * (2 if next(calls) == 0 else 3), Z)
    with pytest.raises(UnfairComparison, match=r"^the reference '<lambda>' computes something else when"):
        GuardedCall(agreement, "mine", lambda x: x * 3, agreement.run_reference(), None).check()


@pytest.mark.parametrize(("growths", "calls"), [(0, 1), (1, 2), (3, 4), (4, 4)])
def test_a_call_that_needs_more_memory_than_was_filled_is_made_again(growths: int, calls: int) -> None:
    class Pool:
        growths = fills = 0

        def fill(self) -> None:
            self.fills += 1

        @contextmanager
        def use(self) -> Iterator[None]:
            yield
            self.growths += self.fills <= growths

        def overwritten(self, outputs: object) -> list[str]:
            return []

    agreement, pool = agreement_of(double, torch.ones(3)), Pool()
    GuardedCall(agreement, "mine", double, agreement.run_reference(), cast(PoisonedPool, pool)).check()
    assert pool.fills == calls


def with_index(use: Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor], breaks: bool) -> Function:
    """Return a kernel that reads an index beyond its rows, and does something with it."""

    def kernel(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        inside = bool(0 <= beyond(rows, 1)[-1] < len(x))
        if breaks and not inside:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return use(x, rows, inside)

    return kernel


NOTE = "mine reads past args[1]: as indices, what lies there breaks the GPU (margins=False leaves margins out)"


@pytest.mark.parametrize(
    ("use", "breaks", "raised", "notes"),
    [
        (lambda x, rows, inside: x[rows], False, None, [NOTE, ""]),
        (lambda x, rows, inside: x[rows], True, r"^CUDA error", [NOTE]),
        (
            lambda x, rows, inside: x[rows] + float(not inside),
            False,
            r"^mine reads past args\[1\]: its outputs",
            [NOTE, ""],
        ),
        (lambda x, rows, inside: x[rows] + 0 * beyond(x, 1)[-1], True, r"^mine reads past args\[0\]: its outputs", []),
    ],
)
def test_a_note_before_each_call_that_may_break_the_gpu(
    use: Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor],
    breaks: bool,
    raised: str | None,
    notes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is taken back where the GPU is as before."""
    monkeypatch.setattr("pytest_gpubench.bench.guarded.context_error", lambda: "broken" if breaks else None)
    agreement, noted = agreement_of(lambda x, rows: x[rows], Z, ROWS), list[str]()
    call = GuardedCall(agreement, "mine", with_index(use, breaks), agreement.run_reference(), None)
    with nullcontext() if raised is None else pytest.raises((RuntimeError, WrongResult), match=raised):
        call.name_what_breaks(noted.append)
    assert noted == notes
