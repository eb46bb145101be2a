"""What a test is told of its ranks: the cause, once for all, and what the others did."""

from pathlib import Path
from typing import Any

import pytest

from pytest_gpubench.errors import BadRequest, MeasurementError
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing.ranks import Job, devices_of
from pytest_gpubench.timing.ranks.crew import Crew, Member, ranks_text, said_of
from pytest_gpubench.timing.ranks.failure import Failure
from tests.timing.ranks.jobs import PLAN, notes, nothing


def test_the_cpu_is_every_ranks_device() -> None:
    assert devices_of(cpu_device(), 3) == [cpu_device()] * 3


@pytest.mark.parametrize(
    ("indices", "expected"), [([1], "rank 1"), ([0, 1], "ranks 0 and 1"), ([0, 2, 3], "ranks 0, 2 and 3")]
)
def test_ranks_by_number(indices: list[int], expected: str) -> None:
    assert ranks_text(indices) == expected


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        (
            [
                Failure(MeasurementError, "noticed", "", at_s=1.0),
                Failure(MeasurementError, "died", died=True, at_s=2.0),
            ],
            "^rank 1 of 2 of 'nothing' died",
        ),
        (
            [Failure(MeasurementError, "noticed", "trace", at_s=2.0), Failure(BadRequest, "failed", "", at_s=1.0)],
            "^rank 1 of 2 of 'nothing' failed",
        ),
    ],
)
def test_the_cause_is_told_and_not_what_others_notice_of_it(failures: list[Failure], expected: str) -> None:
    with pytest.raises(failures[1].kind, match=expected):
        crew_of(*failures)._raise_failed()


def crew_of(*failures: Failure | None) -> Crew:
    """Return a crew some of whose ranks have failed, and the others are done."""
    crew = Crew(Job(nothing, PLAN), b"", [])
    nobody: Any = None
    crew.members = [Member(nobody, nobody, Path(), "measuring", done=True, failure=failure) for failure in failures]
    return crew


def test_a_failure_is_said_once_for_all_ranks_and_the_others_beside_it() -> None:
    planted = [Failure(MeasurementError, "raised ValueError: x", f"trace {n}", at_s=9 - n) for n in range(2)]
    noticed = Failure(MeasurementError, "raised RuntimeError: " + "gone " * 100, "trace", at_s=20.0)
    dead = Failure(MeasurementError, "was ended by SIGKILL", at_s=20.0)
    with pytest.raises(MeasurementError) as caught:
        crew_of(planted[0], noticed, planted[1], None, dead)._raise_failed()
    assert str(caught.value) == "ranks 0 and 2 of 5 of 'nothing' raised ValueError: x"
    trace, others = notes(caught.value)
    assert trace == "trace 1"  # of the first
    first, third, last = others.removeprefix("gpu_bench: meanwhile ").split("; ")
    assert first == "rank 1 was measuring, and " + ("raised RuntimeError: " + "gone " * 100)[:150]
    assert third == "rank 3 was done"
    assert last == "rank 4 was measuring, and was ended by SIGKILL"


def test_what_died_says_so_by_itself() -> None:
    dead = Failure(MeasurementError, "was ended by SIGKILL while it was measuring", died=True)
    assert said_of(crew_of(dead).members[0]) == dead.sentence


def test_where_all_fail_alike_there_are_no_others() -> None:
    with pytest.raises(MeasurementError) as caught:
        crew_of(*[Failure(MeasurementError, "raised ValueError: x")] * 2)._raise_failed()
    assert notes(caught.value) == []
