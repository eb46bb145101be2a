"""Work of others on a GPU, and what to do about it before and while something is measured."""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.units import format_bytes, format_share, printable

IDLE_SHARE = 0.05
"""NVML's utilisation, up to which a GPU counts as idle: it is 0 on one that nobody uses, and a display takes a few."""
SETTLE_S = 1.5
"""For how long a utilisation must stay before it is believed: NVML's is a mean over up to 1 s, our own work in it."""
POLL_S = 0.25
NAMED = 3

Busy = Literal["warn", "wait", "fail"]


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU, by its id in NVML's namespace; `memory_bytes` None where it is not told."""

    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True)
class GpuReading:
    """What NVML says of who uses a GPU; None where it cannot say. `utilisation` is a share of the last second."""

    processes: tuple[GpuProcess, ...] | None
    utilisation: float | None


@dataclass(frozen=True)
class ForeignWork:
    """Work on the GPU that is not ours; `processes` is empty where it is known by the GPU's utilisation alone."""

    processes: tuple[GpuProcess, ...]
    utilisation: float | None
    sentence: str


def read_gpu(nvml: Nvml) -> GpuReading:
    """Ask NVML who computes on a GPU and how busy it is."""
    processes = nvml.ask("ComputeRunningProcesses")
    rates = nvml.ask("UtilizationRates")
    return GpuReading(
        None if processes is None else tuple(_process(each.pid, each.usedGpuMemory) for each in processes),
        None if rates is None else rates.gpu / 100,
    )


def find_foreign(
    reading: GpuReading,
    ours: Collection[int],
    uses_gpu: bool,
    commands: "Callable[[int], str | None] | None" = None,
) -> ForeignWork | None:
    """Return the work on a GPU that is not ours, read while we leave it idle; None where there is none.

    `uses_gpu` says whether one of our processes has a CUDA context on it: if NVML then lists none of them, its process
    ids are those of another container, and only the utilisation counts. `commands` tells the command line of a process
    id, or None where there is no such process here.
    """
    commands = commands or command_of
    listed = reading.processes or ()
    ids_are_ours = not uses_gpu or any(process.pid in ours for process in listed)
    others = tuple(each for each in listed if each.pid not in ours)
    known = tuple(each for each in others if ids_are_ours and commands(each.pid) is not None)
    if known:
        return ForeignWork(known, reading.utilisation, _name_processes(known, reading.utilisation, commands))
    if reading.utilisation is None or reading.utilisation <= IDLE_SHARE:
        return None
    return ForeignWork((), reading.utilisation, _name_utilisation(reading.utilisation, len(others)))


def enforce(
    policy: Busy,
    look: Callable[[], ForeignWork | None],
    timeout_s: float,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> ForeignWork | None:
    """Look for foreign work and do what --gpu-bench-busy says; return what remains of it, for a warning.

    `warn` returns what was found, `fail` raises DeviceUnavailable with it, and `wait` says once what is waited for and
    raises when it is there for longer than `timeout_s`. A utilisation alone is believed only once it has stayed.
    """
    found = _look_until_settled(look, clock, pause)
    if found is None or policy == "warn":
        return found
    if policy == "fail":
        raise DeviceUnavailable(f"{found.sentence}: end it, or let the test wait with --gpu-bench-busy=wait")
    say(f"waiting until the GPU is free: {found.sentence}")
    began_s = clock()
    while found is not None:
        if clock() - began_s >= timeout_s:
            raise DeviceUnavailable(f"waited {timeout_s:g} s for the GPU to be free, but {found.sentence}")
        pause(POLL_S)
        found = look()
    return None


def newcomers(before: ForeignWork | None, after: ForeignWork | None) -> str | None:
    """Return in one sentence which foreign processes came during a measurement; None where none did.

    Utilisation says nothing here, it is our own.
    """
    there = {each.pid for each in before.processes} if before else set()
    came = [each for each in (after.processes if after else ()) if each.pid not in there]
    if not came:
        return None
    return f"{_list(came, command_of)} began to compute on the GPU while it was measured on"


def family(roots: Iterable[int]) -> frozenset[int]:
    """Return the process ids of processes and of all that descends from them, as far as /proc shows it."""
    found = set(roots)
    parents = _parents()
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return frozenset(found)


def command_of(pid: int) -> str | None:
    """Return the command line of a process; None where there is no such process in this container."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return printable(command.replace(b"\0", b" ").decode(errors="replace").strip())[:60]


def _process(pid: int, memory_bytes: int | None) -> GpuProcess:
    told = memory_bytes is not None and 0 <= memory_bytes < 2**63  # NVML writes "not available" as 2**64 - 1
    return GpuProcess(pid, memory_bytes if told else None)


def _look_until_settled(
    look: Callable[[], ForeignWork | None], clock: Callable[[], float], pause: Callable[[float], None]
) -> ForeignWork | None:
    began_s = clock()
    found = look()
    while found is not None and not found.processes and clock() - began_s < SETTLE_S:
        pause(POLL_S)
        found = look()
    return found


def _name_processes(
    processes: Collection[GpuProcess], utilisation: float | None, commands: Callable[[int], str | None]
) -> str:
    busy = "" if utilisation is None else f", which is {_busy(utilisation)}"
    verb = "computes" if len(processes) == 1 else "compute"
    return f"{_list(processes, commands)} {verb} on the GPU{busy}"


def _name_utilisation(utilisation: float, unknown: int) -> str:
    whose = "NVML names no process of others"
    if unknown:
        verb = "is" if unknown == 1 else "are"
        whose = f"NVML lists {_count(unknown, 'process')} that {verb} not to be found in this container"
    return f"the GPU is {_busy(utilisation)} while this run leaves it idle; whose work it is cannot be told: {whose}"


def _busy(utilisation: float) -> str:
    return f"{format_share(utilisation)} busy"


def _list(processes: Collection[GpuProcess], commands: Callable[[int], str | None]) -> str:
    named = [_name(each, commands(each.pid)) for each in processes][:NAMED]
    rest = len(processes) - len(named)
    return f"{_count(len(processes), 'other process')}: {', '.join(named)}{f' and {rest} more' if rest else ''}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}es"


def _name(process: GpuProcess, command: str | None) -> str:
    known = [command] if command else []
    if process.memory_bytes is not None:
        known.append(format_bytes(process.memory_bytes))
    return f"pid {process.pid}" + (f" ({', '.join(known)})" if known else "")


def _parents() -> dict[int, int]:
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
    return parents
