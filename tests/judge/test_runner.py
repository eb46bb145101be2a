"""The calls of one arm."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpubench.gpu.device import cpu_device
from pytest_gpubench.judge import runner as runner_module
from pytest_gpubench.judge.runner import Runner


@pytest.mark.parametrize("ends", ["end", "stop"])
def test_no_cache_is_set_aside_while_reps_are_taken(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """On a GPU, where a kernel may ask for that; the timer's session is inside."""
    done: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[Any]:
        done.append(name)
        try:
            yield SimpleNamespace(reps=list)
        finally:
            done.append(f"not {name}")

    runner = Runner(lambda: None, [()], cpu_device())
    runner.device, runner.timer = SimpleNamespace(type="cuda"), SimpleNamespace(session=lambda: noted("session"))  # type: ignore[assignment]
    monkeypatch.setattr(runner_module, "set_aside_as_before", lambda: noted("cold"))
    runner.begin()
    getattr(runner, ends)()
    runner.stop()
    assert done == ["cold", "session", "not session", "not cold"]
