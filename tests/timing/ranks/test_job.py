"""Jobs of ranks: invalid ones are refused before a process starts."""

from typing import Any

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing.ranks import Job, measure_ranks
from tests.timing.ranks.jobs import PLAN, nothing


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
