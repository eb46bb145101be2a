"""The pace of calls whose inputs hold other values."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from pytest_gpubench import InvalidResult
from pytest_gpubench.bench.pace import Pace

Play = Callable[[str, bool, int], float]


def check(play: Play, known: str, usual_us: float) -> None:
    """Check calls that take so long, by arm, whether it is the first since a change, and the number of that change."""
    changes = iter(range(3, 100, 2))  # to other values, those as given, other values, ...

    def once_more() -> tuple[dict[str, float], dict[str, float]]:
        change = next(changes)
        return {arm: play(arm, False, change - 1) for arm in "rc"}, {arm: play(arm, True, change) for arm in "rc"}

    found = {arm: play(arm, True, 1) for arm in known}
    Pace("r", dict.fromkeys("rc", usual_us), once_more).check(["c"], found)


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
    told = r"^c took 130.0 us when the values of its inputs had changed, and usually takes 100.0 us: "
    with pytest.raises(InvalidResult, match=told) if raised else nullcontext():
        check(play, known, 100.0)


@pytest.mark.parametrize(("call_us", "raised"), [(1.9, False), (2.4, True)])
def test_a_microsecond_more_is_no_suspicion(call_us: float, raised: bool) -> None:
    with pytest.raises(InvalidResult) if raised else nullcontext():
        check(lambda name, is_first, change: call_us if name == "c" and is_first else 1.0, "rc", 1.0)
