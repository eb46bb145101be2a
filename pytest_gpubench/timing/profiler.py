"""GPU time from torch.profiler (CUPTI): one session for many reps, each between two sentinel kernels.

What was measured about measuring, on an H200 with torch 2.11: a session costs about 3 ms to start and stop and a rep
0.2 ms, against 2 to 5 ms for a session per rep; the timestamps tick every 32 ns; the first session of a process takes
4 to 6 s, which `startup` moves to the background.
"""

import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache as memoise
from typing import Any

from pytest_gpubench.errors import DeviceUnavailable, GpuBenchError, NothingRecorded, ProfilerBusy
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.timing.base import Call, Record, Rep, Session, Timer
from pytest_gpubench.timing.l2flush import make_flush
from pytest_gpubench.timing.windows import split_reps
from pytest_gpubench.units import count

__tracebackhide__ = True

CLOCK_WINDOW_NS = 5_000
"""Windows shorter than this are too few ticks of the nanosecond timer to read a clock from."""

SYNC_RECORDS = frozenset({"Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event"})
TOOL_VARIABLES = ("NSYS_PROFILING_SESSION_ID", "NV_NSIGHT_INJECTION_PORT_BASE", "CUDA_INJECTION64_PATH")


class ProfilerTimer(Timer):
    """Sum the device's own records of a call."""

    name = "profiler"
    sees_kernels = True

    def __init__(self, device: Device, cache: str) -> None:
        check_triton()
        self.device = device
        self.flush = make_flush(device, cache)
        self.sentinels = sentinels_of(device)

    def session(self) -> "ProfilerSession":
        """Return a new profiler session; it starts when it is entered."""
        return ProfilerSession(self)


class ProfilerSession(Session):
    """Record reps in one torch.profiler session."""

    def __init__(self, timer: ProfilerTimer) -> None:
        self.timer = timer
        self.taken: list[Call] = []
        self.records: list[Record] = []
        self.clocks: list[float | None] = []

    def __enter__(self) -> "ProfilerSession":
        wait_for_startup()
        self.profile = open_profile()
        self.timer.device.synchronize()
        start_profile(self.profile)
        return self

    def take(self, call: Call, idle_s: float) -> None:
        """Take one rep; the device is idle when its first sentinel starts, and again when its last one does."""
        timer, synchronize, slot = self.timer, self.timer.device.synchronize, 2 * len(self.taken)
        timed = call.prepare()
        if idle_s:
            synchronize()
            rest(idle_s)
        timer.flush()
        timer.sentinels.begin(slot)
        synchronize()
        timed()
        synchronize()
        timer.sentinels.end(slot + 1)
        self.taken.append(call)

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        if error is not None:  # of the call, an interrupt: it counts, not what stopping may say after it
            with suppress(Exception):
                stop_profile(self.profile)
            return
        try:
            self.timer.device.synchronize()
        finally:
            stop_profile(self.profile)
        self.records = read_records(self.profile)
        self.clocks = self.timer.sentinels.read_clocks(len(self.taken))
        del self.profile

    def reps(self) -> Sequence[Rep]:
        """Return a rep for each call taken; raise MeasurementError unless the records prove complete."""
        if not self.records:
            raise NothingRecorded(
                f"the profiler recorded nothing, not even gpu_bench's own kernels: {who_holds_cupti()}"
            )
        windows = split_reps(self.records, self.taken)
        return [
            Rep(sum(record.duration_ns for record in window) / 1e3, tuple(window), clock)
            for window, clock in zip(windows, self.clocks, strict=True)
        ]


class Sentinels:
    """Launch the kernels that mark where a rep begins and ends, and read the clocks they noted."""

    def __init__(self, device: Device) -> None:
        import torch

        from pytest_gpubench.timing import kernels

        self.buffer = torch.zeros(2 * Timer.max_reps, 2, dtype=torch.int64, device=device.torch_device)
        grid = (device.facts.multiprocessors or 1,)
        self._begin: Any = kernels.gpu_bench_begin[grid]
        self._end: Any = kernels.gpu_bench_end[grid]
        self._noop: Any = kernels.gpu_bench_noop[(1,)]

    def begin(self, slot: int) -> None:
        """Mark the beginning of a rep."""
        self._begin(self.buffer, slot, num_warps=1)

    def end(self, slot: int) -> None:
        """Mark the end of a rep."""
        self._end(self.buffer, slot, num_warps=1)

    def noop(self) -> None:
        """Launch a kernel that does next to nothing."""
        self._noop(self.buffer, num_warps=1)

    def read_clocks(self, reps: int) -> list[float | None]:
        """Return each rep's mean clock in MHz between its sentinels, None where it was too short to tell."""
        noted = self.buffer[: 2 * reps].view(reps, 2, 2).tolist()
        self.buffer[: 2 * reps].zero_()
        return [mean_clock_mhz(begin, end) for begin, end in noted]


def mean_clock_mhz(begin: Sequence[int], end: Sequence[int]) -> float | None:
    """Return cycles per microsecond between two readings (cycles, nanoseconds) of one multiprocessor."""
    cycles, elapsed_ns = end[0] - begin[0], end[1] - begin[1]
    if elapsed_ns < CLOCK_WINDOW_NS or cycles <= 0 or not begin[1]:
        return None
    return 1e3 * cycles / elapsed_ns


@memoise
def sentinels_of(device: Device) -> Sentinels:
    """Return the device's sentinels, compiled."""
    sentinels = Sentinels(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton 3.9 warns, with each compilation, of a default of its own
        sentinels.begin(0)
        sentinels.end(1)
        sentinels.noop()
    device.synchronize()
    return sentinels


def check_triton() -> None:
    """Raise DeviceUnavailable where our own kernels cannot be compiled."""
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y"):
        raise DeviceUnavailable(
            "TRITON_INTERPRET=1 is set: Triton would run on the CPU and nothing could be measured on the GPU; unset it"
        )
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise DeviceUnavailable(
            f"the profiler timer marks reps with Triton kernels, but Triton cannot be imported ({error}): "
            "install triton, or use --gpu-bench-timer=wall"
        ) from None


def rest(idle_s: float) -> None:
    """Wait; short waits spin, because a sleep is some 60 us late."""
    until = time.perf_counter() + idle_s
    if idle_s > 3e-4:
        time.sleep(idle_s - 1e-4)
    while time.perf_counter() < until:
        pass


def open_profile() -> Any:
    """Return a profiler for CUDA activity; raise ProfilerBusy if one is on already: a nested one breaks both.

    torch.profiler.profile would be the same with a warning, once a process, that a second session forgets the events
    of the first: it is meant to.
    """
    import torch

    if torch._C._autograd._profiler_enabled():
        raise ProfilerBusy(
            "a torch profiler is already on: gpu_bench needs one of its own, and a nested session breaks both; "
            "leave the profiler's `with` block before measuring"
        )
    return torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True)


def start_profile(profile: Any) -> None:
    """Start it; raise ProfilerBusy where another thread's profiler is in the way."""
    try:
        profile.__enter__()
    except RuntimeError as error:
        raise ProfilerBusy(
            f"the profiler does not start ({error}): another profiler is on in this process, or was on and failed"
        ) from None


def stop_profile(profile: Any) -> None:
    """Stop it."""
    profile.__exit__(None, None, None)


def read_records(profile: Any) -> list[Record]:
    """Return the kernels, copies and memsets of a stopped session, in the order they started."""
    from torch._C._autograd import DeviceType

    records = []
    host_calls = set(SYNC_RECORDS)  # more than half of the events: knowing them by name halves the reading
    for event in profile.kineto_results.events():
        name = event.name()
        if name in host_calls:
            continue
        if event.device_type() != DeviceType.CUDA:
            host_calls.add(name)
        elif not event.is_user_annotation():
            start_ns = event.start_ns()
            records.append(Record(name, kind_of(name), start_ns, start_ns + event.duration_ns()))
    return sorted(records, key=lambda record: record.start_ns)


def kind_of(name: str) -> Any:
    """Tell kernels from copies and memsets by name: torch before 2.12 does not pass the activity's type on."""
    if name.startswith("Memcpy"):
        return "memcpy"
    return "memset" if name.startswith("Memset") else "kernel"


def who_holds_cupti() -> str:
    """Return what is known about another tool that takes the GPU's records away."""
    found = [name for name in TOOL_VARIABLES if os.environ.get(name)]
    if found:
        return f"a tool of NVIDIA's is attached ({', '.join(found)} is set); run without it"
    return "another tool holds CUPTI (nsys, ncu, compute-sanitizer, DCGM, Proton?); run without it"


def self_test(timer: ProfilerTimer, reps: int = 20) -> str:
    """Take reps of a kernel of our own; return what came back, or raise MeasurementError."""
    noop = Call("self test", lambda: lambda: timer.sentinels.noop(), timer.sentinels.noop)
    with timer.session() as session:
        for _ in range(reps):
            session.take(noop, 0)
    shortest_us = min(rep.elapsed_us for rep in session.reps())
    return f"usable, {count(reps, 'rep')} complete, the shortest kernel takes {shortest_us:.2f} us"


_startup: threading.Thread | None = None


def begin_startup(device: Device) -> None:
    """Start the profiler in the background; profilers and graph captures of others wait until it is up.

    Our own kernels are compiled and our buffers made before it begins: what may warn, or allocate, belongs to the
    thread that runs the tests.
    """
    global _startup
    if _startup is None:
        try:
            timer = ProfilerTimer(device, "cold")
        except GpuBenchError:
            return  # the first measurement says what is wrong
        _startup = threading.Thread(target=_start_up, args=(timer,), name="gpu_bench startup", daemon=True)
        _startup.start()


def wait_for_startup() -> None:
    """Wait until the background start is over."""
    if _startup is not None and _startup is not threading.current_thread():
        _startup.join()


def _start_up(timer: ProfilerTimer) -> None:
    # what goes wrong here goes wrong again in the first measurement, which can say so
    with others_waiting(), suppress(Exception), timer.session() as session:
        session.take(Call("startup", lambda: timer.sentinels.noop, timer.sentinels.noop), 0)


@contextmanager
def others_waiting() -> Iterator[None]:
    """Make profilers started, and graphs captured, by other threads wait until this context is left.

    A profiler started while another one starts breaks both ("Can't disable Kineto profiler when it's not running",
    then empty results, seen with torch 2.11); an allocation by this thread would invalidate another's capture.
    """
    import torch

    over, owner = threading.Event(), threading.current_thread()
    choke_points = [(torch.autograd.profiler.profile, "_prepare_trace"), (torch.cuda.CUDAGraph, "capture_begin")]
    originals = [(place, name, getattr(place, name)) for place, name in choke_points if hasattr(place, name)]

    def waiting(original: Any) -> Any:
        def wait_first(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not owner:
                over.wait()
            return original(*args, **kwargs)

        return wait_first

    for place, name, original in originals:
        setattr(place, name, waiting(original))
    try:
        yield
    finally:
        for place, name, original in originals:
            setattr(place, name, original)
        over.set()
