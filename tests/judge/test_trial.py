"""The trial of a candidate: checks of its times, without a process."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_gpubench.judge.judgement import Time, time_of
from pytest_gpubench.judge.process import Ended
from pytest_gpubench.judge.trial import Rules, Trial
from pytest_gpubench.judge.witness import ReplayCost
from pytest_gpubench.verdict.limits import Limits


def trial_of(candidate_us: float, reference_us: float) -> Trial:
    """Return a trial that has found these times."""
    trial: Any = Trial.__new__(Trial)
    trial.device = SimpleNamespace(type="cuda", cache_bytes=400, facts=SimpleNamespace(name="H200"))
    trial.candidate_us, trial.reference_us = time_of([candidate_us] * 8), time_of([reference_us] * 8)
    trial.found, trial.cost = {}, None
    return trial  # type: ignore[no-any-return]


@pytest.mark.parametrize("cost", [None, ReplayCost(1.0, 1.0)])
def test_a_replayed_call_has_the_referees_clock_as_its_witness(
    monkeypatch: pytest.MonkeyPatch, cost: ReplayCost | None
) -> None:
    """It knows the reference's time as one graph, and how often a call launches a kernel."""
    asked: list[object] = []
    found = time_of([11.0])

    def witness(candidate: object, ready: object, cost: object, reference_us: float) -> SimpleNamespace:
        asked.append(reference_us)

        def time(recorded: object, kernels: int, alpha: float, budget_s: float) -> Time:
            asked.append(kernels)
            return found

        return SimpleNamespace(time=time)

    monkeypatch.setattr("pytest_gpubench.judge.trial.Witness", witness)
    ignore = lambda *given, **named: None  # noqa: E731
    launched: list[object] = []
    reference: Any = SimpleNamespace(begin_case=ignore, launch=launched.append, whole_us=lambda: 5.0, compared=0)
    known: list[object] = []

    @contextmanager
    def alone() -> Iterator[None]:
        known.append("alone")
        yield
        known.append("not alone")

    candidate: Any = SimpleNamespace(begin_case=ignore, first=ignore, alone=alone)
    candidate.process = SimpleNamespace(ask=lambda do, **message: known.append(message.get("known")), allow=ignore)
    reference.runner = SimpleNamespace(taxes=["tax"])
    ready: Any = SimpleNamespace(device=None, reference=reference, example=(), outputs=[], name="", saved=b"call")
    trial: Any = Trial(candidate, ready, Rules(Limits()), cost, "it waits", launches=5)
    trial.candidate_us, trial._sets_for = time_of([10.0] * 8), lambda example: 1
    trial._time, trial._check, trial._find_floor = ignore, ignore, ignore
    judged = trial.judge()
    assert asked == ([] if cost is None else [5.0, 5])
    assert launched == [b"call" if cost else b""], "both arms are launched alike"
    own = ["tax"] if cost else ()
    assert known == ["alone", own, "not alone"], "a candidate's own process is told nothing of the reference"
    assert (judged.timed_by, judged.clock_us) == (("candidate", None) if cost is None else ("referee", found))
    assert list(judged.phases_s) == ["checking", "warming up", "timing", "witness"][: 3 + (cost is not None)]


@pytest.mark.parametrize(
    ("times_us", "too_fast"), [((81.0, 101.0), False), ((79.0, 101.0), True), ((79.0, 99.0), False)]
)
def test_a_time_below_what_memory_needs_is_invalid(times_us: tuple[float, float], too_fast: bool) -> None:
    """It moves 500 bytes, 400 of them may be in the cache, at a byte in a microsecond: 80 us are the least.

    A reference below 100 us does not need all of its inputs.
    """
    trial = trial_of(*times_us)
    outputs, example = torch.zeros(65), (torch.zeros(60),)
    trial.candidate = SimpleNamespace(bandwidth=1.0, output=lambda: outputs)  # type: ignore[assignment]
    message = r"faster than memory allows: 79.00 us, and a copy takes 100.0 us"
    with pytest.raises(Ended, match=message) if too_fast else nullcontext():
        trial._find_floor(example)
    assert trial.found["floor_us"] == 100


@pytest.mark.parametrize(("memory_bytes", "sets"), [(2**30, 8), (8 * 8 * 1024 - 1, 7), (8 * 3 * 1024 - 1, 2), (1, 2)])
def test_there_are_as_many_sets_as_memory_has_room_for(memory_bytes: int, sets: int) -> None:
    """Each takes 1024 bytes; eight are used, and take an eighth of the memory, unless two take more."""
    trial = trial_of(10.0, 10.0)
    trial.candidate = SimpleNamespace(process=SimpleNamespace(memory_bytes=memory_bytes))  # type: ignore[assignment]
    assert trial._sets_for((torch.zeros(256),)) == sets


def test_something_else_is_done_in_the_first_call_of_a_candidate() -> None:
    """It may compile then."""
    given: list[object] = []
    candidate: Any = SimpleNamespace(begin_case=lambda *given: None, first=given.append, meanwhile="prepare")
    allowed: list[float] = []
    candidate.process = SimpleNamespace(allow=allowed.append)
    reference = SimpleNamespace(compared=0)
    ready: Any = SimpleNamespace(device=None, reference=reference, example=(), outputs=[], name="")
    trial: Any = Trial(candidate, ready, Rules(Limits(), timeout_s=7.0))
    trial._check = lambda example: None
    assert trial.check().status == "pass"
    assert (given, allowed) == (["prepare"], [7.0])
