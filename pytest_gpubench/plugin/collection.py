"""The collected tests: which are run, and on which device."""

import json
import os
from pathlib import Path

import pytest

from pytest_gpubench.child_process import LISTED_TESTS
from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.context import cuda_was_started
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.plugin.gpu_turn import GpuTurns
from pytest_gpubench.plugin.items import gpus_needed, uses_fixture
from pytest_gpubench.plugin.options import usage_error
from pytest_gpubench.plugin.workers import hand_on, handed_on, is_worker, without_group
from pytest_gpubench.report.layout import Screen
from pytest_gpubench.report.terminal import header_line
from pytest_gpubench.settings import Settings
from pytest_gpubench.units import safe_line

LISTED = "gpu_bench_listed"
"""The key under which a worker is given the node ids of the only tests to run."""


class Collection:
    """The hooks that select perf tests, and prepare the device for them."""

    def __init__(self, config: pytest.Config, settings: Settings, turns: GpuTurns) -> None:
        self.settings = settings
        self.turns = turns
        self._listed = _narrow_to_listed(config)
        """The node ids of the only tests to run; None for all."""
        self._header: str | None = None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the tests that --gpu-bench-only, --gpu-bench-skip or a list of tests leave out."""
        if left_out := [item for item in items if not self._is_kept(item)]:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if self._is_kept(item)]

    def _is_kept(self, item: pytest.Item) -> bool:
        if (self.settings.only or self.settings.skip) and uses_fixture(item) != self.settings.only:
            return False
        return self._listed is None or without_group(item.nodeid) in self._listed

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Find the device and start the profiler in the background, while the first tests set themselves up."""
        if session.config.option.collectonly:
            return
        pin = self.turns.pin
        if pin is not None and pin.problem is None and any(map(_needs_several, session.items)):
            pin.wide = not cuda_was_started()  # the last moment before it is
            pin.show()
        if not any(uses_fixture(item) for item in session.items):
            return

        try:
            device = find_device(self.settings.device)
        except Exception as error:  # a broken torch, say: every perf test fails with it at its setup
            self._header = safe_line(f"gpu_bench: {error}")
            return
        settings = self.settings
        self._header = header_line(device.facts, settings)
        try:
            self.turns.refuse_clocks(device)
        except DeviceUnavailable as error:
            if not is_worker(session.config):  # whose tests fail with it
                raise usage_error(error) from None
        self.turns.sign_in(device)
        in_background = settings.startup == "background" and settings.timer == "profiler" and not settings.disable
        if device.type == "cuda" and in_background:
            from pytest_gpubench.timing.startup import start_in_background

            start_in_background(device)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say what is measured on."""
        return [] if self._header is None else Screen.current(color=False).wrapped(self._header)


def _needs_several(item: pytest.Item) -> bool:
    """Tell whether a test needs more than one GPU; a test with illegal marks fails at its setup."""
    try:
        return gpus_needed(item) > 1
    except Exception:  # such as that of a limit's `__repr__`
        return False


def _narrow_to_listed(config: pytest.Config) -> frozenset[str] | None:
    """Return the tests that a list in the environment names, and collect their files only; None without a list.

    The list is written by `ab`, and by a run that starts a fresh process.
    """
    path = os.environ.pop(LISTED_TESTS, None)  # not for what the tests start
    listed = handed_on(config, LISTED) if path is None else json.loads(Path(path).read_text())
    if listed is None:
        return None
    hand_on(config, LISTED, listed)
    files = dict.fromkeys(config.rootpath / nodeid.partition("::")[0] for nodeid in listed)
    if all(file.is_file() for file in files):
        config.args = list(map(str, files))
    return frozenset(listed)
