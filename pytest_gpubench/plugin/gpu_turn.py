"""Turns at the GPU: a test that measures, or asks for it by mark, has its GPUs for itself as long as it runs.

Clocks are locked for a turn, too, and not for the run: between its turns others measure, who did not ask for it, or
for another clock; and a process that dies without a turn leaves nothing behind. Warming up waits for the clock.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from pytest_gpubench.errors import BadRequest, DeviceUnavailable, GpuBenchError, NotMeasured
from pytest_gpubench.plugin import markers
from pytest_gpubench.plugin.workers import Pin, controller_pid, lock_folder, same_gpu
from pytest_gpubench.settings import ClockWish, Settings, ini_name

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_gpubench.gpu.claim import Claim
    from pytest_gpubench.gpu.device import Device
    from pytest_gpubench.gpu.foreign import ForeignWork
    from pytest_gpubench.results.model import Turn

WORKER_SAYS_AFTER_S = 30.0
"""Workers of one run wait for each other all the time; only what takes longer is told."""


@dataclass
class Held:
    """The GPUs that the running test has for itself."""

    ends: ExitStack
    """Gives back what was taken for the turn, the GPUs last."""
    gpus: tuple[str, ...]
    waited_s: float
    began_s: float
    foreign: "dict[str, ForeignWork | None]" = field(default_factory=dict)


class TooFewGpus(Exception):
    """Raised for a test that needs more GPUs than this process may use: it is skipped, unless GPUs are required."""


class Turns:
    """The hooks that take turns, and what the running test has."""

    def __init__(self, config: pytest.Config, settings: Settings, pin: Pin | None, reach: "Reach") -> None:
        self.config = config
        self.settings = settings
        self.pin = pin
        self.held: Held | None = None
        self.warnings: list[str] = []
        self._first_warnings = [pin.problem] if pin is not None and pin.problem is not None else []
        self._reach = reach
        self._refusal: BadRequest | DeviceUnavailable | TooFewGpus | None = None
        self._visible: tuple[str, ...] | None = None
        self._claims: dict[str, Claim] = {}
        self._ended_s = -1e9
        self._said: set[str] = set()

    @property
    def folder(self) -> "Path":
        """Where the locks are."""
        return lock_folder(self.settings)

    # hooks

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Hold the GPUs around the whole test; from before it begins, so that its timeout does not count waiting."""
        self._refusal, self.warnings = None, self._first_warnings
        try:
            if self._reach.uses_gpu(item):
                self._first_warnings = []
                try:
                    self._take(item)
                except (BadRequest, DeviceUnavailable, TooFewGpus) as error:
                    self._refusal = error
                    self.give_back()
            return (yield)
        finally:
            self.give_back()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Refuse a test that could not have its GPUs."""
        if isinstance(self._refusal, TooFewGpus) and not self.settings.require_gpu:
            raise NotMeasured(str(self._refusal))
        if self._refusal is not None:
            pytest.fail(str(self._refusal), pytrace=False)

    # what they are made of

    def prepare(self, items: Sequence[pytest.Item]) -> None:
        """Let a pinned worker see more GPUs than its own if a test needs them: the last moment before CUDA starts."""
        if self.pin is not None and any(wants_several(item) for item in items):
            self.pin.widen()

    def sign_in(self, device: "Device") -> None:
        """Claim the GPU that is about to be used, so that other runs do not take this process for a stranger."""
        if device.type != "cuda" or self.settings.disable or self.settings.timer == "scripted":
            return
        with suppress(BadRequest, DeviceUnavailable):  # the first test that wants its turn says so
            self._claim(self._choose(device, 1))
            if self.settings.lock_clocks is not None:
                self._restore_clocks()

    def refuse_clocks(self, device: "Device") -> None:
        """Raise DeviceUnavailable where the command line asks for locked clocks and there is no GPU.

        What the ini file or the environment asks for is for all machines, and only said.
        """
        sentence = self._without_clocks(device)
        if sentence is not None and self.config.getoption(ini_name("lock_clocks"), None) is not None:
            raise DeviceUnavailable(sentence)

    def record(self) -> "Turn | None":
        """Return what is kept of the turn; None where there was none."""
        from pytest_gpubench.results.model import Turn

        if self.held is None:
            return None
        held = self.held
        return Turn(gpus=held.gpus, began_s=held.began_s, ended_s=time.time(), waited_s=held.waited_s)

    def newcomers(self) -> str | None:
        """Return in one sentence who began to compute on the GPUs since the turn began; None where nobody did."""
        from pytest_gpubench.gpu import foreign

        if self.held is None:
            return None
        for uuid, before in self.held.foreign.items():
            if sentence := foreign.newcomers(before, self._look(uuid, idle=False)):
                return sentence
        return None

    def give_back(self) -> None:
        """Let others have the GPUs, with the clocks as they were."""
        if self.held is None:
            return
        held, self.held = self.held, None
        try:
            held.ends.close()
        except GpuBenchError as error:
            self._say(str(error))
        finally:
            self._ended_s = time.monotonic()

    def _take(self, item: pytest.Item) -> None:
        count = markers.gpus_needed(item)
        device = self._reach.device(item)
        if device is None or device.type != "cuda":
            if count > 1:
                raise TooFewGpus(f"the test needs {count} GPUs, and there is none to use")
            self._mind_clocks(device)
            return
        gpus = self._choose(device, count)
        if self.settings.disable or self.settings.timer == "scripted":
            return
        self._hold(gpus, item.nodeid)
        self._mind_foreign(gpus)
        if self.settings.lock_clocks is not None:
            self._lock_clocks(gpus, self.settings.lock_clocks)

    def _choose(self, device: "Device", count: int) -> tuple[str, ...]:
        """Return the UUIDs of the current GPU and of those after it."""
        visible = self._shown()
        uuid = device.facts.uuid or "GPU-unknown"
        current = next((each for each in visible if same_gpu(each, uuid)), uuid)
        gpus = (current, *(each for each in visible if each != current))
        if len(gpus) >= count:
            return gpus[:count]
        if self.pin is not None and len(self.pin.order) >= count:
            raise TooFewGpus(
                f"the test needs {count} GPUs, but CUDA was started while tests were collected, when this worker saw "
                "its own only: start CUDA in tests or fixtures, or run this test without xdist"
            )
        raise TooFewGpus(f"the test needs {count} GPUs, and this process may use {len(gpus)}")

    def _shown(self) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs that CUDA shows this process, in its order."""
        if self.pin is not None and self.pin.problem is None:
            return self.pin.uuids
        if self._visible is None:
            from pytest_gpubench.gpu import visible

            self._visible = tuple(gpu.uuid for gpu in visible.find_visible())
        return self._visible

    def _hold(self, gpus: tuple[str, ...], nodeid: str) -> None:
        from pytest_gpubench.gpu.holder import Holder, command_line
        from pytest_gpubench.gpu.lock import GpuLock, Patience

        worker = getattr(self.config, "workerinput", None)
        self._claim(gpus)
        arguments = sys.argv if worker is None else worker.get("mainargv", sys.argv)
        lock = GpuLock(gpus, self.folder, Holder.of_this_process(nodeid, command_line(arguments)))
        patience = Patience(self.settings.lock_timeout, self._say)
        if worker is not None:
            patience.say_after_s = WORKER_SAYS_AFTER_S
        waited_s = lock.acquire(patience)
        ends = ExitStack()
        ends.callback(lock.release)
        self.held = Held(ends, gpus, waited_s, time.time())

    def _claim(self, gpus: tuple[str, ...]) -> None:
        """Take seats at GPUs, once for each."""
        from pytest_gpubench.gpu.claim import claim_gpu
        from pytest_gpubench.gpu.visible import VisibleGpu

        own = self.pin.claim.gpu.uuid if self.pin is not None else None
        for uuid in gpus:
            if uuid not in self._claims and uuid != own:
                self._claims[uuid] = claim_gpu([VisibleGpu(uuid, None, "")], self.folder)

    def _lock_clocks(self, gpus: tuple[str, ...], wish: ClockWish) -> None:
        from pytest_gpubench.gpu.clocks import ClockLock

        assert self.held is not None
        for uuid in gpus:
            self.held.ends.enter_context(ClockLock(uuid, wish, self.folder, self._warn))

    def _mind_clocks(self, device: "Device | None") -> None:
        """Refuse a test on the CPU whose clocks were to be locked, or say that they are not; see `refuse_clocks`."""
        if device is None:
            return
        self.refuse_clocks(device)
        if sentence := self._without_clocks(device):
            self._warn(sentence)

    def _without_clocks(self, device: "Device") -> str | None:
        """Return why no clocks are locked though that was asked for; None where they are, or nothing is measured."""
        wish = self.settings.lock_clocks
        played = self.settings.disable or self.settings.timer == "scripted"
        if wish is None or played or device.type == "cuda":
            return None
        from pytest_gpubench.gpu.device import why_no_gpu

        chosen = "--gpu-bench-device=cpu" if self.settings.device == "cpu" else why_no_gpu()
        return (
            f"--gpu-bench-lock-clocks={wish} locks the clocks of a GPU, but the device is the CPU: {chosen}; "
            "run where there is a GPU, or leave the option out"
        )

    def _restore_clocks(self) -> None:
        """Give back the clocks that another run left locked when it died."""
        from pytest_gpubench.gpu.clocks import restore_abandoned

        for found in restore_abandoned(self.folder):
            if not found.in_use:
                self._say(found.sentence)
                self._first_warnings.append(found.sentence)

    def _mind_foreign(self, gpus: tuple[str, ...]) -> None:
        from pytest_gpubench.gpu.foreign import SETTLE_S, enforce

        idle = time.monotonic() - self._ended_s > SETTLE_S  # before, the utilisation is our own last test's
        assert self.held is not None
        for uuid in gpus:
            found = enforce(
                self.settings.busy,
                lambda uuid=uuid: self._look(uuid, idle),  # type: ignore[misc] # a default binds it
                self.settings.lock_timeout,
                self._say,
            )
            self.held.foreign[uuid] = found
            if found is not None:
                self.warnings.append(f"{found.sentence}: what was measured meanwhile may be too slow")

    def _look(self, uuid: str, idle: bool) -> "ForeignWork | None":
        """Return who else computes on a GPU, by its utilisation, too, where this run leaves it idle."""
        from pytest_gpubench.gpu.foreign import find_foreign, read_gpu
        from pytest_gpubench.gpu.nvml import Nvml

        try:
            reading = read_gpu(Nvml.open(uuid))
        except RuntimeError:
            return None
        listed = {process.pid for process in reading.processes or ()}
        reading = reading if idle else replace(reading, utilisation=None)
        return find_foreign(reading, self._ours(uuid, listed), uses_gpu=self._uses(uuid))

    def _uses(self, uuid: str) -> bool:
        """Tell whether this process has a CUDA context on a GPU."""
        if self.held is None or self.held.gpus[0] != uuid:
            return False
        import torch

        started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return started and torch.cuda.memory_reserved() > 0  # a torch that was started need not have a context

    def _ours(self, uuid: str, listed: set[int]) -> frozenset[int]:
        """Return the processes of this run and of others that take turns, too; their children only if that matters."""
        from pytest_gpubench.gpu.claim import claimants
        from pytest_gpubench.gpu.processes import family

        roots = {os.getpid(), *claimants(uuid, self.folder)}
        controller = controller_pid(self.config)
        return frozenset(roots) if listed <= roots else family(roots | ({controller} if controller else set()))

    def _warn(self, sentence: str) -> None:
        """Say something of the clocks now, and with the results of the running test; once in a run."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._say(sentence)
            self.warnings.append(sentence)

    def _say(self, sentence: str) -> None:
        """Say something now, though a test is about to run; in a worker on the stderr that it has of the controller."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if not hasattr(self.config, "workerinput") and reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"gpu_bench: {sentence}")
            return
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:
            with capture.global_and_fixture_disabled():
                sys.stderr.write(f"gpu_bench: {os.environ.get('PYTEST_XDIST_WORKER', '')} {sentence}\n")
                sys.stderr.flush()


@dataclass(frozen=True)
class Reach:
    """Which tests take turns, and the device that one of them uses."""

    uses_gpu: Callable[[pytest.Item], bool]
    device: "Callable[[pytest.Item], Device | None]"


def wants_several(item: pytest.Item) -> bool:
    """Tell whether a test asks for more than one GPU; not where its marks are wrong, which it is told at its setup."""
    try:
        return markers.gpus_needed(item) > 1
    except BadRequest:
        return False
