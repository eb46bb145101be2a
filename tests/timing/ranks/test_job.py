"""Jobs of ranks: invalid ones are refused before a process starts."""

from typing import Any

import pytest

from pytest_gpubench import BadRequest
from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.timing.ranks import Job, measure_ranks
from tests.timing.ranks.fake_ranks import PLAN, nothing

TOGETHER, FUNCTION, TOP = "together, or neither", "it must be a function", "at the top of a module that can be imported"


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"collective": "all_reduce"}, TOGETHER),
        ({"message_bytes": 8}, TOGETHER),
        ({"collective": "gossip", "message_bytes": 8, "timed": False}, "must be one of all_reduce"),
        ({"setup": 5}, rf"^ranks\(setup=5\) is not valid: {FUNCTION}"),
        ({"check": 5}, rf"^ranks\(check=5\) is not valid: {FUNCTION}"),
        *(({part: lambda *args: None}, TOP) for part in ("function", "setup", "check")),
    ],
)
def test_an_invalid_job_is_refused(parts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        measure_ranks(Job(**{"function": nothing, "plan": PLAN, **parts}), cpu_device(), 2)
