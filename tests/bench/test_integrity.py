"""What makes a number invalid: a cache that is kept, replaced clocks, wrong timed calls."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch

from pytest_gpubench.bench import integrity
from pytest_gpubench.bench.integrity import auditing, check_timed_calls
from pytest_gpubench.bench.outputs import OutputRecorder
from pytest_gpubench.bench.side_effects import Conduct
from pytest_gpubench.errors import InvalidResult, KernelsDiffer, WrongResult
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings import Settings
from pytest_gpubench.timing.base import Rep
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.comparison import Match, take_once_more
from tests.bench.calls import COLD, CPU, GPU, Lazy, agreement_of, double, match_of, taken_before
from tests.timing.fakes import ArmsTimer, Clock, rep

# the cache that no flush reaches


@pytest.mark.parametrize(
    ("device", "settings", "kept_free"),
    [
        (GPU, COLD, True),
        (GPU, replace(COLD, cache="dirty"), True),
        (GPU, replace(COLD, cache="hot"), False),
        (GPU, replace(COLD, timer="scripted"), False),
        (CPU, COLD, False),
    ],
)
def test_nothing_persists_where_a_cache_is_to_be_cold(
    monkeypatch: pytest.MonkeyPatch, device: Device, settings: Settings, kept_free: bool
) -> None:
    done: list[str] = []

    @contextmanager
    def nothing_persists() -> Iterator[None]:
        done.append("begin")
        yield
        done.append("end")

    monkeypatch.setattr(integrity, "nothing_persists", nothing_persists)
    monkeypatch.setattr(integrity, "replaced", lambda: None)
    with auditing(settings, device):
        done.append("measured")
    assert done == (["begin", "measured", "end"] if kept_free else ["measured"])


# clocks, before and after


@pytest.mark.parametrize("found", [["time.perf_counter"], [None, "torch.cuda.synchronize"]])
def test_clocks_are_looked_at_before_and_after(monkeypatch: pytest.MonkeyPatch, found: list[str | None]) -> None:
    answers, measured = iter(found), []
    monkeypatch.setattr(integrity, "replaced", lambda: next(answers))
    with (
        pytest.raises(
            InvalidResult, match=rf"^{found[-1]} was replaced, and measuring relies on it: .*; undo it before"
        ),
        auditing(COLD, CPU),
    ):
        measured.append(1)
    assert measured == [1] * (len(found) - 1)


def test_a_script_needs_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced clock raises nothing."""
    monkeypatch.setattr(integrity, "replaced", lambda: "time.perf_counter")
    with auditing(replace(COLD, timer="scripted"), CPU):
        pass


def test_an_error_of_the_measured_function_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([None, "time.perf_counter"])
    monkeypatch.setattr(integrity, "replaced", lambda: next(answers))
    with pytest.raises(KeyError), auditing(COLD, CPU):
        raise KeyError


def test_one_more_round_counts_nothing() -> None:
    timer, taken = ArmsTimer(Clock(), lambda name, number: rep(1, "ab")), taken_before()
    take_once_more(match_of(), timer, taken)
    assert sorted(timer.names) == ["c", "r"]
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
        take_once_more(match_of(), timer, taken_before())


@pytest.mark.parametrize(
    ("candidate", "vary", "raised", "sentence", "sessions"),
    [
        (double, True, None, "", 2),
        (double, False, None, "", 1),
        (lambda x: x * 3, True, WrongResult, "^c is wrong in a timed call, though right when checked", 1),
        (lambda x: x * (2 + (x[0] < 1)), True, WrongResult, "^c is wrong in a timed call, though right when", 1),
        (lambda x: x * 2 + (x[0] > 1), True, WrongResult, r"^c is wrong for other values \(turned round inputs", 2),
        (lambda x: x * 2 + (x[0] > 1), False, None, "", 1),
        (lambda x: torch.arange(4.0) * 2, True, InvalidResult, "^c returns what it had computed before", 2),
        (lambda x: (x * 2).as_subclass(Lazy), True, InvalidResult, "is a Lazy, which may compute later", 1),
    ],
)
def test_timed_calls_are_checked_as_given_and_with_other_values(
    candidate: Callable[..., object],
    vary: bool,
    raised: type[Exception] | None,
    sentence: str,
    sessions: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secrets.randbelow", lambda below: 1)  # no look at the inputs before a rep
    agreement = agreement_of(double, torch.arange(4.0))
    expected = agreement.run_reference()
    recorder = OutputRecorder(agreement, arms=2, conduct=Conduct(agreement, "rc"))
    functions = {"r": double, "c": candidate}
    calls = {
        name: recorder.watch(name, make_call(each, agreement.arguments, label=name)) for name, each in functions.items()
    }
    timer, match = ArmsTimer(Clock(), lambda name, number: rep(100, "ab")), Match(calls, "r")
    recorder.begin()
    for name in match.orders(1)[0]:
        calls[name].prepare()()
    with nullcontext() if raised is None else pytest.raises(raised, match=sentence):
        check_timed_calls(recorder, match, timer, taken_before(), expected, vary)
    assert [sorted(names) for names in timer.names_by_session] == [["c", "r"]] * sessions
