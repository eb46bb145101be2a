"""What a call does besides its kernels: where it waits for the GPU, what memory it takes, whether it repeats itself.

All of it is counted in untimed calls. What sees what:

- torch's sync debug mode sees torch's own operations wait (`.item()`, `.cpu()`, `nonzero`, `Stream.synchronize`), and
  the stack tells where. It does not see `torch.cuda.synchronize` and `Event.synchronize`: calls of those from Python
  are seen by Python's profile function, in the thread that calls.
- The profiler's record of the CUDA runtime sees every wait and every cudaMalloc of any library and thread, but not from
  which line; what the profiler itself does is known from a session around nothing.
- torch's caching allocator counts what is taken from it, on one device. Memory that other libraries take does not show
  in it; nor does what a CUDA graph of torch.compile's uses in its own pool.
"""

import gc
import linecache
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pytest_gpubench.correctness.inputs import checksum
from pytest_gpubench.correctness.leaves import flatten, inputs_of, tensors_of
from pytest_gpubench.errors import BadRequest, UnfairComparison
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Call, Timed
from pytest_gpubench.timing.calls import BackwardPass, run_backward

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True

SEED = 20240229
REPEATS = 10
"""Calls whose outputs are compared: atomics that race mostly differ within a few."""
SYNC_WARNING = "called a synchronizing CUDA operation"
BLIND_SPOTS = frozenset({"_cuda_synchronize", "_accelerator_synchronizeDevice", "synchronize"})
"""Functions of torch's C++ that wait unseen by its debug mode: of the methods `synchronize`, those of events."""
WAITS = {
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
    "cudaEventSynchronize": "Event Sync",
}
"""The runtime's functions that wait, and what the record of waiting is called where the profiler keeps one."""
COPIES_AND_WAITS = re.compile(r"cudaMemcpy(?!.*Async|.*Peer)\w*")
TAKES_MEMORY = re.compile(r"cuda(?:Malloc|Free)(?!Host|Mipmapped)\w*")
VERSION = re.compile(r"(?:_v\d+)?(?:_ptsz|_ptds)?$")
WARNINGS_FILES = ("warnings.py", "_py_warnings.py")
OWN_FOLDER = str(Path(__file__).parent) + os.sep


@dataclass(frozen=True)
class Wait:
    """One time that the host waited for the GPU."""

    what: str
    """The source line, or the function that waits."""
    where: str = ""
    """File and line of the user's code; empty where that is not known."""

    def __str__(self) -> str:
        return f"{self.what} ({self.where})" if self.where else self.what


@dataclass(frozen=True)
class Memory:
    """What one call took from torch's caching allocator."""

    allocations: int
    allocated_bytes: int
    """Of all allocations together, rounded up as the allocator does."""
    peak_bytes: int
    """The most that was allocated at once, above what was before the call; outputs included, inputs not."""
    kept_bytes: int
    """What every call adds to the memory in use though its outputs are dropped: 0 unless it leaks."""


@dataclass(frozen=True)
class Observed:
    """What a call did on a GPU."""

    waits: tuple[Wait, ...] = ()
    """Seen by torch or by Python."""
    runtime_waits: Mapping[str, int] = field(default_factory=dict)
    """How often the call, or what it calls, waited by a function of the CUDA runtime, among them those in `waits`."""
    memory: Memory | None = None
    """None where the allocator does not count."""
    driver_allocations: Mapping[str, int] = field(default_factory=dict)
    """Calls of cudaMalloc and cudaFree, by name: torch's own among them."""


def observe(call: Call, device: Device) -> Observed | None:
    """Return what a call does on the device, from one untimed call or, where it may leak, two; None on a CPU.

    The call has to be warm. Resets torch's peak memory counters. Raises ProfilerBusy where another profiler is on.
    """
    if device.type != "cuda":
        return None
    nothing = runtime_calls(device, lambda: None)
    waits: list[Wait] = []
    meter = Meter(device)
    gc.collect()  # what is garbage already is none of this call's doing
    timed = call.prepare()
    meter.note_prepared()
    seen = runtime_calls(device, partial(call_watched, timed, waits, meter)) - nothing
    del timed
    return Observed(tuple(waits), waits_in(seen), meter.memory(call), allocations_in(seen))


def call_watched(timed: Timed, waits: "list[Wait]", meter: "Meter") -> None:
    """Call once, and drop the output before memory is read."""
    with noting_waits(waits), meter:
        timed()


# where the host waits


@contextmanager
def noting_waits(waits: list[Wait]) -> Iterator[None]:
    """Note where the host waits for the GPU, as torch and Python see it."""
    import torch

    def show(message: Warning | str, *others: Any, **more: Any) -> None:
        if SYNC_WARNING in str(message):
            waits.append(wait_at(sys._getframe(1), "an operation of torch"))

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with noting_blind_spots(waits):
                yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def noting_blind_spots(waits: list[Wait]) -> Iterator[None]:
    """Note where Python calls what torch's debug mode does not see; a profile that somebody else takes goes on."""
    import torch

    events = tuple(filter(None, (torch.cuda.Event, getattr(torch, "Event", None))))

    def see(frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call" or getattr(function, "__name__", "") not in BLIND_SPOTS:
            return
        if function.__name__ != "synchronize" or isinstance(function.__self__, events):
            waits.append(wait_at(frame, "synchronize()"))

    if sys.getprofile() is not None:
        yield
        return
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(None)


def wait_at(frame: FrameType | None, otherwise: str) -> Wait:
    """Return a wait with the source line of the innermost frame that is neither torch's nor ours."""
    while frame is not None and is_of_libraries(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return Wait(otherwise)
    name = frame.f_code.co_filename
    source = linecache.getline(name, frame.f_lineno, frame.f_globals).strip()
    return Wait(source or otherwise, f"{as_seen_from_here(name)}:{frame.f_lineno}")


def is_of_libraries(filename: str) -> bool:
    """Tell whether a file is torch's or written by it, triton's, Python's `warnings`, or this package's."""
    folders = [Path(module.__file__ or "").parent for name in ("torch", "triton") if (module := sys.modules.get(name))]
    ours = (OWN_FOLDER, *(f"{folder}{os.sep}" for folder in folders))
    return filename.startswith(ours) or "torchinductor_" in filename or Path(filename).name in WARNINGS_FILES


def as_seen_from_here(filename: str) -> str:
    """Return a path relative to the current folder where it lies in it."""
    relative = os.path.relpath(filename) if os.path.isabs(filename) else filename
    return filename if relative.startswith(os.pardir) else relative


# what the CUDA runtime was asked for


def runtime_calls(device: Device, function: Timed) -> "Counter[str]":
    """Return how often each function of the CUDA runtime was called, the profiler's own calls among them."""
    from pytest_gpubench.timing.profiler import open_profile, start_profile, stop_profile
    from pytest_gpubench.timing.startup import wait_for_startup

    wait_for_startup()
    profile = open_profile()
    device.synchronize()
    start_profile(profile)
    try:
        function()
    finally:
        stop_profile(profile)
    return Counter(VERSION.sub("", event.name()) for event in profile.kineto_results.events())


def waits_in(calls: "Counter[str]") -> dict[str, int]:
    """Return the calls that wait for the GPU, each counted once though it may be recorded twice."""
    found = {name: max(calls[name], calls[record]) for name, record in WAITS.items()}
    found |= {name: number for name, number in calls.items() if COPIES_AND_WAITS.fullmatch(name)}
    return {name: number for name, number in found.items() if number}


def allocations_in(calls: "Counter[str]") -> dict[str, int]:
    """Return the calls that take GPU memory from the driver, or give it back."""
    return {name: number for name, number in calls.items() if TAKES_MEMORY.fullmatch(name)}


# what memory it takes


class Meter:
    """Read torch's allocation counters before and after what is called while this is entered."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.prepared: int | None = None
        self.before: dict[str, int] = {}
        self.after: dict[str, int] = {}

    def note_prepared(self) -> None:
        """Remember what is in use when a call has been prepared."""
        self.prepared = self._counters().get("allocated_bytes.all.current")

    def __enter__(self) -> "Meter":
        if self.prepared is not None:
            self._reset_peak()
        self.before = self._counters()
        return self

    def __exit__(self, *error: object) -> None:
        self.after = self._counters()

    def memory(self, call: Call) -> Memory | None:
        """Return what was taken; None where the allocator does not count."""
        if self.prepared is None or "allocation.all.allocated" not in self.after:
            return None
        grown = {name: self.after[name] - self.before.get(name, 0) for name in self.after}
        return Memory(
            allocations=grown["allocation.all.allocated"],
            allocated_bytes=grown["allocated_bytes.all.allocated"],
            peak_bytes=max(0, self.after["allocated_bytes.all.peak"] - self.before["allocated_bytes.all.current"]),
            kept_bytes=self._kept(call, self.prepared),
        )

    def _kept(self, call: Call, before: int) -> int:
        """Return by how much a call adds to what is in use, at the same point of each: before it, prepared.

        A first call may add something once and for all: the second one tells.
        """
        first = self._when_prepared(call, before)
        if first <= before:
            return 0
        call.prepare()()
        return max(0, self._when_prepared(call, first) - first)

    def _when_prepared(self, call: Call, expected: int) -> int:
        """Return what is in use when the next call is prepared; without garbage, where it is more than expected."""
        timed: Timed | None = call.prepare()
        if self._in_use() > expected:
            timed = None
            gc.collect()
            timed = call.prepare()
        found = self._in_use()
        del timed
        return found

    def _in_use(self) -> int:
        return self._counters()["allocated_bytes.all.current"]

    def _counters(self) -> dict[str, int]:
        import torch

        try:
            return torch.cuda.memory_stats(self.device.torch_device)
        except RuntimeError:  # an allocator from outside, which does not count
            return {}

    def _reset_peak(self) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats(self.device.torch_device)


# whether it repeats itself


def is_deterministic(call: Call, reps: int = REPEATS) -> list[str]:
    """Return the outputs that are not the same, bit by bit, in every one of so many calls; none is deterministic.

    Outputs are what the call returns (`out`, `out[0]`), the tensors it is called with as they are afterwards
    (`args[0]`), and gradients where it is a backward pass (`args[0].grad`). NaN is equal to NaN of the same bits.
    Torch's generators begin each call at the same place. What a call overwrites is put back before the next one;
    nothing else is copied, a checksum is kept of each tensor.

    Raises UnfairComparison where `setup` makes other values in every call.
    """
    with own_random_numbers():
        return compare_calls(call, reps)


def compare_calls(call: Call, reps: int) -> list[str]:
    """Return the names of outputs that differ between calls."""
    scout = Run.of(call, {})
    if not scout.outputs and not scout.after:
        raise BadRequest(
            f"deterministic=True was asked of {call.label!r}, but there is nothing to compare: it returns no tensor "
            "and is called with none; let it return what it computes"
        )
    written = {name for name, value in scout.after.items() if scout.before.get(name) != value}
    saved = {name: tensor.clone() for name, tensor in scout.tensors() if name in written}
    del scout
    first = Run.of(call, saved)
    for _ in range(reps - 1):
        again = Run.of(call, saved)
        changed = differing(first.before, again.before)
        if changed:
            raise UnfairComparison(
                f"{call.label!r} was to be called again with the same values, but {changed[0]} holds others each time: "
                "let setup= draw from torch's global generators, which begin each call at the same place, or set them "
                "to fixed values"
            )
        names = differing(first.outputs, again.outputs) + differing(first.after, again.after)
        if names:
            return names
    return []


def differing(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    """Return the names whose values are not the same in both."""
    return [name for name in dict.fromkeys([*first, *second]) if first.get(name) != second.get(name)]


@dataclass
class Run:
    """What one call found and left, as checksums by name."""

    timed: Timed
    before: dict[str, object]
    after: dict[str, object] = field(default_factory=dict)
    outputs: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, call: Call, saved: "Mapping[str, torch.Tensor]") -> "Run":
        """Call once, with what an earlier call has overwritten put back."""
        import torch

        seed()
        timed = call.prepare()
        run = cls(timed, {})
        with torch.no_grad():
            for name, tensor in run.tensors():
                if name in saved and saved[name].shape == tensor.shape:
                    tensor.copy_(saved[name])
        run.before = run.states()
        output = timed()
        run.outputs = states_of(flatten(output)) | gradients_of(call)
        run.after = run.states()
        return run

    def tensors(self) -> "list[tuple[str, torch.Tensor]]":
        """Return the tensors it is called with, by name."""
        return tensors_of(inputs_of(*given_to(self.timed)))

    def states(self) -> dict[str, object]:
        """Return the tensors it is called with as they are now."""
        return {name: state_of(tensor) for name, tensor in self.tensors()}


def given_to(timed: Timed) -> tuple[Sequence[object], Mapping[str, object]]:
    """Return the user's arguments of a call, as far as they can be told: not those of a backward run alone."""
    function = getattr(timed, "func", None)
    args: Sequence[Any] = getattr(timed, "args", ())
    if function is run_backward:
        return (), {}
    if getattr(function, "__func__", None) is BackwardPass.both:
        return args[0], args[1]
    return args, getattr(timed, "keywords", {})


def states_of(leaves: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return what is remembered of leaves: checksums of tensors, plain values themselves, nothing of other objects."""
    tensors = {name: state_of(tensor) for name, tensor in tensors_of(leaves)}
    plain = {name: repr(leaf) for name, leaf in leaves if isinstance(leaf, (bool, int, float, complex, str, bytes))}
    return {**tensors, **plain}


def state_of(tensor: "torch.Tensor") -> object:
    """Return what two tensors share that are the same bit by bit."""
    try:
        value = None if tensor.is_meta else checksum(tensor)
    except (KeyError, RuntimeError):  # a tensor of a kind that has no bits to read
        value = None
    return str(tensor.dtype), tuple(tensor.shape), value


def gradients_of(call: Call) -> dict[str, object]:
    """Return the gradients that a backward pass has left, by the names of what they belong to."""
    owner = getattr(call.prepare, "__self__", None)
    if not isinstance(owner, BackwardPass):
        return {}
    named = {id(leaf): name for name, leaf in inputs_of(owner.arguments.args, owner.arguments.kwargs)}
    unnamed = count()
    leaves = [(named.get(id(leaf)) or f"parameter {next(unnamed)}", leaf) for leaf in owner.leaves or []]
    found = [(f"{name}.grad", leaf.grad) for name, leaf in leaves if leaf.grad is not None]
    return states_of(found)


def seed() -> None:
    """Let torch's generators begin at the same place."""
    import torch

    torch.default_generator.manual_seed(SEED)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(SEED)


@contextmanager
def own_random_numbers() -> Iterator[None]:
    """Leave torch's generators as they were."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_available() else []):
        yield
