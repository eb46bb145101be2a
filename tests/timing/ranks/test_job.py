"""Jobs of ranks: invalid ones are refused before a process starts; bandwidth as nccl-tests count it."""

from typing import Any

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing.ranks import Job, measure_ranks
from pytest_gpubench.timing.ranks.processes import combine
from tests.timing.ranks.jobs import PLAN, nothing, timing


@pytest.mark.parametrize("others", [{"collective": "all_reduce"}, {"message_bytes": 8}])
def test_a_collective_and_its_bytes_are_given_together(others: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="together, or neither"):
        measure_ranks(Job(nothing, PLAN, **others), cpu_device(), 2)


@pytest.mark.parametrize("part", ["setup", "check"])
def test_setup_and_check_are_functions(part: str) -> None:
    job: Any = {part: 5}
    with pytest.raises(BadRequest, match=rf"^ranks\({part}=5\) is not valid: it must be a function"):
        measure_ranks(Job(nothing, PLAN, **job), cpu_device(), 2)


def test_an_unknown_collective_is_refused() -> None:
    """Before a process starts: one that is not timed has no bandwidth."""
    job = Job(nothing, PLAN, collective="gossip", message_bytes=8, timed=False)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="must be one of all_reduce"):
        measure_ranks(job, cpu_device(), 2)


@pytest.mark.parametrize("part", ["function", "setup", "check"])
def test_what_other_processes_cannot_import_is_refused(part: str) -> None:
    parts: dict[str, Any] = {"function": nothing, part: lambda *args: None}
    job = Job(plan=PLAN, **parts)
    with pytest.raises(BadRequest, match="at the top of a module that can be imported"):
        measure_ranks(job, cpu_device(), 2)


@pytest.mark.parametrize(
    ("collective", "of_two", "of_eight"),
    [
        ("all_reduce", 1000, 1750),
        ("reduce_scatter", 500, 875),
        ("all_gather", 500, 875),
        ("all_to_all", 500, 875),
        ("broadcast", 1000, 1000),
        ("reduce", 1000, 1000),
    ],
)
def test_bus_bytes(collective: Any, of_two: int, of_eight: int) -> None:
    for ranks, moved_bytes in ((2, of_two), (8, of_eight)):
        assert combine([timing(1.0)] * ranks, collective, 1000).timing.moved_bytes == moved_bytes
