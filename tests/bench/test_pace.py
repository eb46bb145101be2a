"""The pace of calls whose inputs hold other values."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_gpubench import InvalidResult
from pytest_gpubench.bench.pace import Pace
from pytest_gpubench.timing.base import Rep
from pytest_gpubench.timing.comparison import take_once_more
from pytest_gpubench.timing.rounds import Interleaved, Sample
from tests.bench.calls import agreement_of, double, match_of, taken_before
from tests.timing.fakes import ArmsTimer, Clock, rep


def pace_of(play: Callable[[str, bool, int], float]) -> tuple[Pace, dict[str, float]]:
    """Return the pace of calls that take so long, by arm, whether values are varied, and the number of that change."""
    x = torch.arange(4.0)
    agreement = agreement_of(double, x)
    agreement.vary("turned round")
    changes: list[tuple[bool, list[str]]] = []

    def take(name: str, number: int) -> Rep:
        varied = x[0].item() == 3
        if not changes or changes[-1][0] is not varied:
            changes.append((varied, []))
        is_first = name not in changes[-1][1]
        changes[-1][1].append(name)
        return rep(play(name, is_first, len(changes)), "ab")

    timer, match = ArmsTimer(Clock(), take), match_of()
    taken = taken_before()
    return Pace(agreement, match, timer, taken, "turned round", nullcontext), take_once_more(
        match, timer, taken, ["r", "c"]
    )


@pytest.mark.parametrize(
    ("play", "raised"),
    [
        (lambda name, is_first, change: 100.0, False),
        (lambda name, is_first, change: 120.0 if name == "c" and is_first else 100.0, False),
        (lambda name, is_first, change: 130.0 if name == "c" and is_first else 100.0, True),
        (lambda name, is_first, change: 130.0 if name == "c" else 100.0, False),  # it has become slower for good
        (lambda name, is_first, change: 130.0 if name == "c" and change == 1 else 100.0, False),  # by chance
        (lambda name, is_first, change: 130.0 if name == "c" and change < 4 else 100.0, False),
        (lambda name, is_first, change: 130.0 if is_first else 100.0, False),  # the reference too
        (lambda name, is_first, change: 1000.0 if name == "r" and is_first else 100.0, False),
    ],
)
@pytest.mark.parametrize("known", ["rc", "c"])
def test_a_candidate_that_is_slower_whenever_its_inputs_change(play: Any, raised: bool, known: str) -> None:
    """A candidate that seems slower is tried beside the reference, also if the reference's first call was not timed."""
    pace, varied = pace_of(play)
    varied = {name: varied[name] for name in known}
    with (
        pytest.raises(InvalidResult, match=r"^c took 130.0 us when the values of its inputs had changed, and usually")
        if raised
        else nullcontext()
    ):
        pace.check(["c"], varied)


@pytest.mark.parametrize(("call_us", "raised"), [(1.9, False), (2.4, True)])
def test_a_microsecond_more_is_no_suspicion(call_us: float, raised: bool) -> None:
    pace, varied = pace_of(lambda name, is_first, change: call_us if name == "c" and is_first else 1.0)
    pace = replace(pace, taken=Interleaved({name: Sample([rep(1, "ab")] * 40) for name in "rc"}))
    with pytest.raises(InvalidResult) if raised else nullcontext():
        pace.check(["c"], varied)
