"""Work of other processes on a GPU, before and while something is measured."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.units import count, first_few, format_bytes, format_share, printable

IDLE_SHARE = 0.05
"""The highest utilisation of an idle GPU: 0 where nobody uses it, a few percent with a display."""
SETTLE_S = 1.5
"""A utilisation counts after it has lasted this long: NVML's is a mean over up to 1 s, which includes our own work."""
LOOK_S = 0.25
NAMED = 3
SAMPLED_S = 0.5
"""A process's share of the GPU is known after so long: an H100's NVML samples it five times a second."""

Busy = Literal["warn", "accept", "wait", "fail"]


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU, and its id in NVML's namespace."""

    pid: int
    memory_bytes: int | None = None
    """None where NVML does not know it."""
    command: str | None = None
    """None where there is no such process in this container."""

    def __str__(self) -> str:
        known = [self.command] if self.command else []
        if self.memory_bytes is not None:
            known.append(format_bytes(self.memory_bytes))
        return f"pid {self.pid}" + (f" ({', '.join(known)})" if known else "")


GpuReading = tuple[tuple[GpuProcess, ...] | None, float | None]
"""The processes on a GPU, and its utilisation over the last second as a fraction; None where not known."""


@dataclass(frozen=True)
class ForeignWork:
    """Work on the GPU that is not ours; `processes` is empty where only the utilisation shows it."""

    processes: tuple[GpuProcess, ...]
    sentence: str


def read_gpu(nvml: Nvml) -> GpuReading:
    """Ask NVML which processes compute on a GPU, and how busy it is."""
    listed, rates = nvml.ask("ComputeRunningProcesses"), nvml.ask("UtilizationRates")
    processes = []
    for each in listed or ():
        known = each.usedGpuMemory is not None and each.usedGpuMemory < 2**63  # "not available" is 2**64 - 1
        processes.append(GpuProcess(each.pid, each.usedGpuMemory if known else None, command_of(each.pid)))
    return None if listed is None else tuple(processes), None if rates is None else rates.gpu / 100


def find_foreign(reading: GpuReading, ours: Collection[int], uses_gpu: bool) -> ForeignWork | None:
    """Return the work on a GPU that is not ours, in a reading taken while we leave it idle; None where there is none.

    uses_gpu: whether one of our processes has a CUDA context on it. If NVML then lists none of them, its process ids
    are those of another container, and only the utilisation counts.
    """
    processes, utilisation = reading
    listed = processes or ()
    ids_are_ours = not uses_gpu or any(process.pid in ours for process in listed)
    others = [each for each in listed if each.pid not in ours]
    known = [each for each in others if ids_are_ours and each.command is not None]
    if known:
        busy = "" if utilisation is None else f", which is {_busy(utilisation)}"
        verb = "computes" if len(known) == 1 else "compute"
        return ForeignWork(tuple(known), f"{_list(known)} {verb} on the GPU{busy}")
    if utilisation is None or utilisation <= IDLE_SHARE:
        return None
    whose = "NVML names no process of others"
    if others:
        verb = "is" if len(others) == 1 else "are"
        whose = f"NVML lists {count(len(others), 'process')} that {verb} not to be found in this container"
    told = f"the GPU is {_busy(utilisation)} while this run leaves it idle; whose work it is cannot be told"
    return ForeignWork((), f"{told}: {whose}")


def apply_busy_policy(
    policy: Busy,
    look: Callable[[], ForeignWork | None],
    timeout_s: float,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> ForeignWork | None:
    """Look for foreign work and do what --gpu-bench-busy asks for; return the work that remains.

    `fail` raises DeviceUnavailable, and `wait` says once what is waited for and raises after `timeout_s`. A utilisation
    without a process counts only after it has lasted.
    """
    began_s = clock()
    found = look()
    while found is not None and not found.processes and clock() - began_s < SETTLE_S:
        pause(LOOK_S)
        found = look()
    if found is None or policy in ("warn", "accept"):
        return found
    if policy == "fail":
        raise DeviceUnavailable(f"{found.sentence}: end it, or let the test wait with --gpu-bench-busy=wait")
    say(f"waiting until the GPU is free: {found.sentence}")
    began_s = clock()
    while found is not None:
        if clock() - began_s >= timeout_s:
            raise DeviceUnavailable(f"waited {timeout_s:g} s for the GPU to be free, but {found.sentence}")
        pause(LOOK_S)
        found = look()
    return None


def computing(
    before: ForeignWork | None, after: ForeignWork | None, nvml: Callable[[], Nvml], since_s: float
) -> str | None:
    """Return in one sentence which foreign processes came, or computed, since a time of the host's clock; None if none.

    before, after: the foreign work then and now. nvml: opens the GPU, of which it is asked where there are any, which
    takes 2 to 6 ms.
    """
    there, now = ({each.pid: each for each in work.processes} if work else {} for work in (before, after))
    if came := [each for pid, each in now.items() if pid not in there]:
        return f"{_list(came)} began to compute on the GPU while it was measured on"
    sampled = nvml().ask("ProcessUtilization", round(1e6 * (since_s - SAMPLED_S))) if there else ()
    computed = {each.pid for each in sampled or () if each.smUtil / 100 > IDLE_SHARE}
    busy = [each for pid, each in there.items() if pid in computed]
    return f"{_list(busy)} computed on the GPU while it was measured on" if busy else None


def _busy(utilisation: float) -> str:
    return f"{format_share(utilisation)} busy"


def _list(processes: Collection[GpuProcess]) -> str:
    return f"{count(len(processes), 'other process')}: {first_few(list(map(str, processes)), NAMED)}"


def command_of(pid: int) -> str | None:
    """Return the command line of a process; None where there is no such process in this container, or it is ending."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return printable(command.replace(b"\0", b" ").decode(errors="replace").strip())[:60] or None
