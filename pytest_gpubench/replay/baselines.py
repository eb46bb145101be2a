"""Calls of a running test: kept in the storage as data, and replayed in turn with those that a saved run kept."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import torch

from pytest_gpubench.errors import BadFile, GpuBenchError, MeasurementError, first_line
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.replay.addresses import input_memory
from pytest_gpubench.replay.builder import find_builder
from pytest_gpubench.replay.call_data import decode_call, encode_call
from pytest_gpubench.replay.capture import CapturedCall, capture_call
from pytest_gpubench.replay.comparison import ReplayedPair
from pytest_gpubench.replay.isolated import compare_isolated
from pytest_gpubench.replay.proof import prove
from pytest_gpubench.replay.reader import ImagesMissing
from pytest_gpubench.replay.replayed import Values
from pytest_gpubench.replay.resources import difference
from pytest_gpubench.replay.stored import NO_ROOM, StoredPair
from pytest_gpubench.results.model import Measurement, Timing
from pytest_gpubench.results.store.calls import FOREIGN, CallStore
from pytest_gpubench.settings import Settings
from pytest_gpubench.stats.tolerance import RegressionTolerance
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.measurement import Plan, demangled
from pytest_gpubench.units import printable
from pytest_gpubench.verdict.replays import Replay

TIMERS = ("profiler", "events")
"""Those that time a replay as any other call."""


@dataclass(frozen=True)
class ReplayableCalls:
    """The calls of one request by label, each captured and proved when it is first needed."""

    calls: Mapping[str, Call]
    device: Device
    settings: Settings
    _found: dict[tuple[str, bool], CapturedCall | str] = field(default_factory=dict)
    """By label, and whether the images of libraries were looked for."""

    @property
    def store(self) -> CallStore:
        """The calls in the storage."""
        return CallStore(self.settings.started_in / self.settings.storage)

    def with_call(self, item: Measurement) -> Measurement:
        """Return a measurement with the name of its call, which is kept, or with the reason why it has none."""
        captured = self._captured(item.timing, self.settings.save_calls == "all")
        if isinstance(captured, str):
            return msgspec.structs.replace(item, no_call=captured)
        try:
            return msgspec.structs.replace(item, call=keep(captured, self.store))
        except BadFile as error:
            return msgspec.structs.replace(item, no_call=str(error))

    def replay(
        self,
        item: Measurement,
        old: Measurement,
        tolerance: RegressionTolerance,
        plan: Plan,
        say: Callable[[str], None],
    ) -> Replay | str:
        """Return how a measurement's call compares with the saved one, or why that cannot be replayed.

        The reason is empty where the saved run has no call for it, as that said. Raises BadFile for a damaged one.
        """
        if not old.call:
            return ""
        if not self.store.size(old.call):
            return f"the saved call is not in {printable(self.settings.storage)}"
        if not (self.settings.trust_calls or self.store.is_own(old.call)):
            return f"the saved call was {FOREIGN}"
        saved = read_captured(old.call, self.store, self.settings.trust_calls)
        captured, call = self._captured(item.timing, libraries=True), self.calls[item.timing.label]
        if isinstance(captured, str):
            return f"today's call cannot be replayed: {captured}"
        try:
            if not self.store.is_own(old.call):
                return self._compare_foreign(StoredPair(saved, captured, tolerance, self.settings, plan), call, say)
            pair = ReplayedPair(saved, captured, call, self.device, find_builder())
            return pair.compare(tolerance, self.settings, plan, say)
        except GpuBenchError as error:
            return first_line(error)
        except torch.OutOfMemoryError:
            return NO_ROOM

    def _compare_foreign(self, pair: StoredPair, call: Call, say: Callable[[str], None]) -> Replay:
        """Return how today's call compares with one that another user or machine has saved.

        Where they differ, both are built and launched in a process of their own, on copies of today's inputs.
        """

        def inputs() -> Values:
            call.prepare()
            found = input_memory(call.inputs() if call.inputs else [], self.device.torch_device)
            values = {names: memory.cpu() for names, memory in found.items()}
            torch.cuda.empty_cache()  # the other process needs as much memory
            return values

        return compare_isolated(pair, say, inputs)

    def _captured(self, timing: Timing, libraries: bool) -> CapturedCall | str:
        """Return a timed call as data, or the reason why it cannot be replayed: captured, it may do other work."""
        label = timing.label
        found = self._found.get((label, False), "")
        if isinstance(found, str):
            if (label, libraries) not in self._found:
                call = self.calls.get(label)
                self._found[label, libraries] = captured_or_reason(call, self.device, self.settings, libraries)
            found = self._found[label, libraries]
        if isinstance(found, str) or not timing.kernels:
            return found
        return difference(timing.kernels, Counter(map(demangled, found.data.kernels))) or found


def captured_or_reason(call: Call | None, device: Device, settings: Settings, libraries: bool) -> CapturedCall | str:
    """Return a call as data, proved; or the reason why it cannot be replayed. libraries: as in `capture_call`."""
    if call is None or device.type != "cuda":
        return "only calls on a GPU can be replayed"
    if settings.timer not in TIMERS:
        return f"timer={settings.timer!r} does not time replays: use one of {', '.join(TIMERS)}"
    try:
        cuda = find_builder()
        captured = capture_call(call, device, cuda, libraries)
        prove(call, captured, device, cuda)
    except ImagesMissing as error:
        return str(error) if libraries else f"{error} (--gpu-bench-save-calls=all keeps such calls)"
    except GpuBenchError as error:  # as of inputs that cannot be put back
        return first_line(error)
    return captured


def keep(captured: CapturedCall, store: CallStore) -> str:
    """Keep a call and its images in a store; return the call's name there. Raises BadFile."""
    for image in captured.images.values():
        store.add(image)
    return store.add(encode_call(captured.data))


def read_captured(name: str, store: CallStore, trusted: bool = False) -> CapturedCall:
    """Return a call of a store, with its images; raises BadFile as `CallStore.read` does."""
    data = decode_call(store.read(name, trusted))
    return CapturedCall(data, {image: store.read(image, trusted=True) for image in data.images})


def compare_kept(
    names: tuple[str, str],
    store: CallStore,
    trusted: bool,
    how: tuple[RegressionTolerance, Settings, Plan],
    device: Device,
    say: Callable[[str], None],
) -> Replay:
    """Return how the second of two calls in a store compares with the first, on inputs that are made up.

    Those that another user or machine has saved are launched in a process of their own. Raises BadFile as
    `CallStore.read` does, and MeasurementError where they cannot be compared.
    """
    old, new = (read_captured(name, store, trusted) for name in names)
    pair = StoredPair(old, new, *how)
    try:
        return pair.compare(device, say) if all(map(store.is_own, names)) else compare_isolated(pair, say)
    except (GpuBenchError, RuntimeError) as error:  # the last is torch's, of what made-up inputs break
        raise MeasurementError(first_line(error)) from error
