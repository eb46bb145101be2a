"""Foreign work on the GPUs of the running test: processes that take no turns."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.plugin.workers import CONTROLLER, handed_on
from pytest_gpubench.settings import Settings

if TYPE_CHECKING:
    from pytest_gpubench.gpu.foreign import ForeignWork


class ForeignWatch:
    """Looks for foreign work before the test, and for foreign processes that came while it ran."""

    def __init__(self, config: pytest.Config, settings: Settings, gpus: tuple[str, ...]) -> None:
        self.config = config
        self.settings = settings
        self.gpus = gpus
        self._before: dict[str, ForeignWork | None] = {}

    def look_first(self, idle_s: float, say: Callable[[str], None]) -> list[str]:
        """Wait, warn or fail as --gpu-bench-busy says; return warnings of foreign work that continues.

        idle_s: for how long this run has left the GPUs idle; the utilisation still includes our own last test's work.
        """
        from pytest_gpubench.gpu.foreign import SETTLE_S, apply_busy_policy

        for uuid in self.gpus:
            self._before[uuid] = apply_busy_policy(
                self.settings.busy,
                lambda uuid=uuid: self._look(uuid, idle_s > SETTLE_S),  # type: ignore[misc] # a default binds it
                self.settings.lock_timeout,
                say,
            )
        found = [each for each in self._before.values() if each is not None]
        return [f"{each.sentence}: what was measured meanwhile may be too slow" for each in found]

    def newcomers(self) -> str | None:
        """Return in one sentence which foreign processes came since the first look; None where none did."""
        from pytest_gpubench.gpu.foreign import newcomers

        sentences = (newcomers(before, self._look(uuid, False)) for uuid, before in self._before.items())
        return next(filter(None, sentences), None)

    def _look(self, uuid: str, idle: bool) -> "ForeignWork | None":
        """Return foreign work on a GPU; the utilisation counts only where this run leaves the GPU idle."""
        from pytest_gpubench.gpu.foreign import find_foreign, read_gpu
        from pytest_gpubench.gpu.nvml import Nvml

        try:
            reading = read_gpu(Nvml.open(uuid))
        except RuntimeError:
            return None
        listed = {process.pid for process in reading.processes or ()}
        reading = reading if idle else replace(reading, utilisation=None)
        return find_foreign(reading, self._own_processes(uuid, listed), uses_gpu=self._has_context(uuid))

    def _has_context(self, uuid: str) -> bool:
        """Tell whether this process has a CUDA context on a GPU."""
        if self.gpus[0] != uuid:
            return False
        import torch

        started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return started and torch.cuda.memory_reserved() > 0  # a torch that was started need not have a context

    def _own_processes(self, uuid: str, listed: set[int]) -> frozenset[int]:
        """Return the processes of this run and of others that take turns; their children only if that matters."""
        from pytest_gpubench.gpu.claim import claimants
        from pytest_gpubench.gpu.lock_file import lock_folder
        from pytest_gpubench.gpu.processes import family, pid_namespace

        roots = {os.getpid(), *claimants(uuid, lock_folder(self.settings.lock_folder))}
        if listed <= roots:
            return frozenset(roots)
        controller, namespace = handed_on(self.config, CONTROLLER) or (0, None)
        is_here = namespace == pid_namespace() and controller == os.getppid()
        return family([*roots, controller] if is_here else roots)
