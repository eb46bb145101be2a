"""Turns: a test that measures, or is marked `gpu_turn`, has its GPUs or the CPU to itself while it runs.

Clocks are locked for a turn and not for the run: between the turns others measure, who want other clocks or none, and a
process that dies between its turns leaves nothing locked.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial

import pytest

from pytest_gpubench.child_process import interrupts_raised
from pytest_gpubench.errors import BadRequest, DeviceUnavailable, GpuBenchError, NotMeasured
from pytest_gpubench.gpu import foreign, visible
from pytest_gpubench.gpu.clocks import ClockLock
from pytest_gpubench.gpu.device import Device, find_device, required_device, why_no_gpu
from pytest_gpubench.gpu.holder import Holder, command_line
from pytest_gpubench.gpu.lock import SAY_AFTER_S, GpuLock, Patience, claimants
from pytest_gpubench.gpu.lock_file import lock_folder_of
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.gpu.processes import family, pid_namespace
from pytest_gpubench.gpu.turn import claim_once, cpu_lock_names
from pytest_gpubench.gpu.visible import same_gpu
from pytest_gpubench.plugin import terminal
from pytest_gpubench.plugin.items import gpus_needed, is_perf, takes_turns, uses_fixture
from pytest_gpubench.plugin.workers import CONTROLLER, Pin, handed_on, is_worker, run_arguments
from pytest_gpubench.results.model import Turn
from pytest_gpubench.settings import Settings, ini_name

WORKER_SAYS_AFTER_S = 30.0
"""Workers of one run wait for each other all the time: only a longer wait for one test is told."""


class HeldDevices:
    """The GPUs, or the CPU, that the running test has to itself, and the foreign work on GPUs: before it and since."""

    def __init__(self, config: pytest.Config, settings: Settings, names: tuple[str, ...], waited_s: float) -> None:
        self.config = config
        self.settings = settings
        self.names = names
        self.waited_s = waited_s
        self.began_s = time.time()
        self.cleanup = ExitStack()
        """Resets the clocks and releases the devices."""
        self._before: dict[str, foreign.ForeignWork | None] = {}

    def look_first(self, idle_s: float, say: Callable[[str], None]) -> None:
        """Look for others; wait or fail where --gpu-bench-busy says so.

        idle_s: for how long this run has left the GPUs idle; the utilisation still includes our own last test's work.
        """
        for uuid in self.names:
            self._before[uuid] = foreign.apply_busy_policy(
                self.settings.busy,
                lambda uuid=uuid: self._look(uuid, idle_s > foreign.SETTLE_S),  # type: ignore[misc] # a default binds it
                self.settings.lock_timeout,
                say,
            )

    @property
    def neighbours(self) -> list[str]:
        """A sentence on the foreign work on each GPU that went on when the test began."""
        return [each.sentence for each in self._before.values() if each is not None]

    def computing(self) -> str | None:
        """Return in one sentence which foreign processes computed since the first look; None where none did."""
        for uuid, before in self._before.items():
            if found := foreign.computing(before, self._look(uuid, False), partial(Nvml.open, uuid), self.began_s):
                return found
        return None

    def _look(self, uuid: str, idle: bool) -> foreign.ForeignWork | None:
        """Return foreign work on a GPU; the utilisation counts only where this run leaves the GPU idle."""
        import torch

        try:
            processes, utilisation = foreign.read_gpu(Nvml.open(uuid))
        except RuntimeError:
            return None
        # a torch that was started need not have a context
        has_started: bool = self.names[0] == uuid and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        has_context = has_started and torch.cuda.memory_reserved() > 0
        # processes of this run, and of others that take turns; their children only if that matters
        own = frozenset({os.getpid(), *claimants(uuid, lock_folder_of(self.settings))})
        if not {process.pid for process in processes or ()} <= own:
            controller, namespace = handed_on(self.config, CONTROLLER) or (0, None)
            is_here = namespace == pid_namespace() and controller == os.getppid()
            own = family([*own, controller] if is_here else own)
        return foreign.find_foreign((processes, utilisation if idle else None), own, uses_gpu=has_context)


class TooFewGpus(Exception):
    """Raised for a test that needs more GPUs than this process may use: it is skipped unless GPUs are required."""


class GpuTurns:
    """The hooks that hold the GPUs of a test while it runs."""

    def __init__(self, config: pytest.Config, settings: Settings, pin: Pin | None) -> None:
        self.config = config
        self.settings = settings
        self.pin = pin
        self.held: HeldDevices | None = None
        self.warnings: list[str] = []
        """Warnings of the running test."""
        self._next_warnings = [pin.problem] if pin is not None and pin.problem is not None else []
        """Warnings for the next test that takes a turn."""
        self._refusal: Exception | None = None
        """The error from before the running test's setup, which raises it."""
        self._visible: tuple[str, ...] | None = None
        self.ended_s = -1e9
        """The end of the last turn, or of the run before: the GPU's utilisation still shows it."""
        self._said: set[str] = set()

    # hooks

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Hold the GPUs around the whole protocol, so that a test's timeout does not count waiting."""
        self._refusal, self.warnings = None, []
        try:
            try:
                if takes_turns(item):
                    self.warnings, self._next_warnings = self._next_warnings, []
                    self._take(item)
            except Exception as error:  # raised again in the test's setup
                self._refusal = error
                self.release()
            return (yield)
        finally:
            self.release()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip or fail a test that could not have its GPUs."""
        if isinstance(self._refusal, TooFewGpus) and not self.settings.require_gpu:
            raise NotMeasured(str(self._refusal))
        if isinstance(self._refusal, (BadRequest, DeviceUnavailable, TooFewGpus)):
            pytest.fail(str(self._refusal), pytrace=False)
        if self._refusal is not None:
            raise self._refusal

    # for the other hooks

    def sign_in(self, device: Device) -> None:
        """Claim the GPU before the profiler starts on it, so that other runs do not call this process foreign."""
        if device.type != "cuda" or not self.settings.takes_times:
            return
        with suppress(BadRequest, DeviceUnavailable):  # the first test that takes a turn fails with it
            self._claim(self._choose(device, 1))

    def refuse_clocks(self, device: Device) -> None:
        """Raise DeviceUnavailable where the command line asks for locked clocks and there is no GPU.

        The ini file and the environment are for all machines: what they ask for only causes a warning.
        """
        sentence = self._why_clocks_stay(device)
        if sentence is not None and self.config.getoption(ini_name("lock_clocks"), None) is not None:
            raise DeviceUnavailable(sentence)

    def record(self) -> Turn | None:
        """Return what is kept of the turn; None where there was none."""
        if (held := self.held) is None:
            return None
        return Turn(gpus=held.names, began_s=held.began_s, ended_s=time.time(), waited_s=held.waited_s)

    def release(self) -> None:
        """Release the devices, with the clocks as they were."""
        if self.held is None:
            return
        held, self.held = self.held, None
        try:
            held.cleanup.close()
        except Exception as error:  # outside of the test's phases
            self._say(str(error) if isinstance(error, GpuBenchError) else f"{type(error).__name__}: {error}")
        finally:
            self.ended_s = time.monotonic()

    # a turn

    def _take(self, item: pytest.Item) -> None:
        """Take the turn of a test; one that does not measure needs no device."""
        count, device = gpus_needed(item), None
        if uses_fixture(item):
            device = required_device(self.settings.device, self.settings.require_gpu)
        else:
            with suppress(DeviceUnavailable):
                device = find_device(self.settings.device)
        if device is None or device.type == "cpu":
            if count > 1:
                raise TooFewGpus(f"the test needs {count} GPUs, and there is none to use")
            if device is not None:
                self.refuse_clocks(device)
                self._warn(self._why_clocks_stay(device))
                if self.settings.takes_times and is_perf(item):
                    self._hold(item, cpu_lock_names())
            return
        gpus = self._choose(device, count)
        if self.settings.takes_times:
            self._claim(gpus)
            self._prepare_gpus(self._hold(item, gpus))

    def _hold(self, item: pytest.Item, names: tuple[str, ...]) -> HeldDevices:
        """Wait for the devices of these names, and hold them for a test."""
        note = Holder.of_this_process(item.nodeid, command_line(run_arguments(self.config)))
        lock = GpuLock(names, lock_folder_of(self.settings), note)
        say_after_s = WORKER_SAYS_AFTER_S if is_worker(self.config) else SAY_AFTER_S
        patience = Patience(self.settings.lock_timeout, self._say, say_after_s)
        self.held = HeldDevices(self.config, self.settings, names, lock.acquire(patience))
        self.held.cleanup.callback(lock.release)
        return self.held

    def _prepare_gpus(self, held: HeldDevices) -> None:
        """Look for others on the GPUs, and lock their clocks where the settings say so."""
        held.look_first(idle_s=time.monotonic() - self.ended_s, say=self._say)
        self.warnings += [f"{each}: what was measured meanwhile may be too slow" for each in held.neighbours]
        if self.settings.lock_clocks is not None:
            if is_worker(self.config):  # any other run ends in order where a signal ends it
                held.cleanup.enter_context(interrupts_raised())
            for uuid in held.names:
                clocks = ClockLock(uuid, self.settings.lock_clocks, lock_folder_of(self.settings), self._warn)
                held.cleanup.enter_context(clocks)

    def _choose(self, device: Device, count: int) -> tuple[str, ...]:
        """Return the UUIDs of the current GPU and of those after it, in CUDA's order."""
        shown = self._visible = self._visible or tuple(gpu.uuid for gpu in visible.find_visible())
        uuid = device.facts.uuid or "GPU-unknown"
        current = next((each for each in shown if same_gpu(each, uuid)), uuid)
        gpus = (current, *(each for each in shown if each != current))
        if len(gpus) >= count:
            return gpus[:count]
        if self.pin is not None and len(self.pin.order) >= count:
            raise TooFewGpus(
                f"the test needs {count} GPUs, but CUDA was started while tests were collected, when this worker saw "
                "its own only: start CUDA in tests or fixtures, or run this test without xdist"
            )
        raise TooFewGpus(f"the test needs {count} GPUs, and this process may use {len(gpus)}")

    def _claim(self, gpus: tuple[str, ...]) -> None:
        """Claim GPUs, once each, as a pinned worker has claimed its own."""
        for uuid in gpus:
            if self.pin is None or uuid != self.pin.claim.gpu.uuid:
                claim_once(uuid, lock_folder_of(self.settings))

    # clocks

    def _why_clocks_stay(self, device: Device) -> str | None:
        """Return why clocks that should be locked are not; None where they are, or nothing is measured."""
        wish = self.settings.lock_clocks
        if wish is None or not self.settings.takes_times or device.type == "cuda":
            return None
        chosen = "--gpu-bench-device=cpu" if self.settings.device == "cpu" else why_no_gpu()
        return (
            f"--gpu-bench-lock-clocks={wish} locks the clocks of a GPU, but the device is the CPU: {chosen}; "
            "run where there is a GPU, or leave the option out"
        )

    def _warn(self, sentence: str | None) -> None:
        """Say something about the clocks now, and with the results of the running test; once in a run."""
        if sentence is not None and sentence not in self._said:
            self._said.add(sentence)
            self._say(sentence)
            self.warnings.append(sentence)

    def _say(self, sentence: str) -> None:
        terminal.announce(self.config, sentence)
