"""A plugin that tells how long a run asks what kernels take: `-p tests.on_gpu.study.resources_cost`."""

import time
from importlib import import_module
from typing import Any

import pytest

BEGAN_S = time.perf_counter()
ASKED_S: list[float] = []
"""The seconds of each call that was asked about."""


def pytest_collection_finish() -> None:
    """Time every question from here on."""
    request: Any = import_module("pytest_gpubench.bench.request")
    asked = request.with_resources

    def timed(*args: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return asked(*args)
        finally:
            ASKED_S.append(time.perf_counter() - began_s)

    request.with_resources = timed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell the seconds of all questions, and of the run."""
    told = f"asked of {len(ASKED_S)} calls in {sum(ASKED_S):.3f} s, at most {max(ASKED_S, default=0):.3f} s"
    terminalreporter.write_line(f"what kernels take: {told}, in a run of {time.perf_counter() - BEGAN_S:.1f} s")
