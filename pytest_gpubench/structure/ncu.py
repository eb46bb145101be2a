"""NVIDIA's Nsight Compute, `ncu`: where it is, how it is asked for counters, what it wrote, and why it cannot."""

import csv
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.errors import GpuBenchError
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.settings.cache import Cache
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.l2flush import make_flush
from pytest_gpubench.timing.sentinels import sentinels_of
from pytest_gpubench.units import printable

PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda-*/bin/ncu")
"""The places of ncu if it is not on the PATH, in the order in which they are looked at, the newest first."""
MARK_KERNEL = "gpu_bench_noop"
"""The kernel of ours that begins a capture."""
WARM_CALLS = 3
"""Calls before the first capture: torch.compile with CUDA graphs needs three."""
CAPTURES = 3
"""Captures of a call: untimed ones, each after a flush and a kernel that marks its beginning."""
SUM = ".sum"
NO_NCU = "ncu is neither on the PATH nor in /usr/local/cuda or /opt/nvidia: install NVIDIA Nsight Compute"
NO_PERMISSION = (
    "the driver lets only administrators read the GPU's counters (ERR_NVGPUCTRPERM): run as root, in a container with "
    "--cap-add=SYS_ADMIN, or have NVreg_RestrictProfilingToAdminUsers=0 set for the driver"
)
OTHER_TOOL = (
    "another tool holds the GPU's counters, as another ncu, or DCGM where it monitors the GPU: wait for it, or stop it "
    "(`dcgmi profile --pause`, later `--resume`)"
)
OTHERS_LOCK = (
    "ncu cannot open nsight-compute-lock in the temp folder, as another user's lies there: set TMPDIR to a folder of "
    "your own"
)
REFUSALS = {
    "ERR_NVGPUCTRPERM": NO_PERMISSION,
    "Profiling failed because a driver resource was unavailable": OTHER_TOOL,
    "InterprocessLockFailed": OTHERS_LOCK,
}
"""The reason why no call can be counted, by what ncu writes then."""
ERROR = re.compile(r"==ERROR== *(.+)")


class NotCounted(GpuBenchError):
    """Raised where there are no counters; its text says why, and what to do."""


class NeverCounted(NotCounted):
    """Raised where there are none of any call on this machine."""


@dataclass(frozen=True)
class CountedKernel:
    """One kernel that ncu has seen, with those of its metrics that are sums, as text."""

    name: str
    metrics: Mapping[str, str]


Capture = Sequence[CountedKernel]
"""The kernels of one call."""


def find_ncu() -> str:
    """Return the path of ncu; raise NeverCounted where there is none."""
    if found := shutil.which("ncu"):
        return found
    for pattern in PLACES:
        for path in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True):
            return str(path)
    raise NeverCounted(NO_NCU)


def take_captures(call: Call, device: Device, cache: Cache, note: Callable[[], object]) -> None:
    """Make a call a few times while ncu listens, once it is warm; note: called before each."""
    import torch

    mark, flush = sentinels_of(device).noop, make_flush(device, cache)  # the first raises without Triton
    for _ in range(WARM_CALLS):
        call.prepare()()
    for _ in range(CAPTURES):
        timed = call.prepare()
        flush()
        device.synchronize()
        note()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call] # ncu counts what is launched meanwhile
        try:
            mark()
            timed()
            device.synchronize()
        finally:
            torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


# what it wrote


def read_captures(text: str) -> list[Capture]:
    """Return the captures of a log, in their order; raise NotCounted, or NeverCounted, where ncu has failed."""
    lines = text.splitlines()
    first = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    for told, why in REFUSALS.items():
        if told in text:
            raise NeverCounted(why)
    if first is None:
        errors = [match[1].strip() for match in map(ERROR.match, lines) if match]
        why = printable(errors[0]) if errors else "no kernel ran while it listened"
        raise NotCounted(f"ncu took no counters: {why}")
    captures: list[list[CountedKernel]] = []
    for row in csv.DictReader(line for line in lines[first:] if line.startswith('"')):
        metrics = {name: text for name, text in row.items() if name and name.endswith(SUM)}
        if row["Kernel Name"] == MARK_KERNEL:
            captures.append([])
        elif captures:  # the units, which are the first row, are of none
            captures[-1].append(CountedKernel(row["Kernel Name"], metrics))
    return list(captures)
