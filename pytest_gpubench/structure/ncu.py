"""NVIDIA's Nsight Compute, `ncu`: where it is, how it is asked for counters, what it wrote, and why it cannot."""

import csv
import math
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.counters import counter_named, raw_metrics
from pytest_gpubench.errors import GpuBenchError
from pytest_gpubench.results.model import Counts, Kernel
from pytest_gpubench.timing.measurement import demangled
from pytest_gpubench.timing.windows import describe_difference
from pytest_gpubench.units import printable

PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda-*/bin/ncu")
"""Where it lies if it is not on the PATH, in the order in which it is looked for, the newest first."""
MARK_KERNEL = "gpu_bench_noop"
"""The kernel of ours that begins a capture."""
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
"""Why no call can be counted, by what ncu writes then."""
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


def ncu_command(ncu: str, names: Iterable[str], log: Path) -> list[str]:
    """Return the beginning of a command that takes counters, and writes them to a log; a program follows.

    It takes those of kernels between cudaProfilerStart and cudaProfilerStop, and leaves clocks and caches as they are.
    """
    return [
        *(ncu, "--profile-from-start", "off"),
        *("--cache-control", "none", "--clock-control", "none"),
        *("--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "mangled"),
        *("--log-file", str(log), "--force-overwrite", "--metrics", ",".join(raw_metrics(names))),
    ]


# what it wrote


def read_captures(text: str) -> list[Capture]:
    """Return the captures of a log, in their order; raise NotCounted, or NeverCounted, where ncu has failed."""
    lines = text.splitlines()
    first = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    for told, why in REFUSALS.items():
        if told in text:
            raise NeverCounted(why)
    if first is None:
        raise NotCounted(f"ncu took no counters: {_why_failed(text)}")
    captures: list[list[CountedKernel]] = []
    for launch in _launches(lines[first:]):
        if launch.name == MARK_KERNEL:
            captures.append([])
        elif captures:
            captures[-1].append(launch)
    return list(captures)


def _launches(lines: Sequence[str]) -> Iterator[CountedKernel]:
    """Yield the kernels of a table, whose second row has the units."""
    rows = csv.DictReader(line for line in lines if line.startswith('"'))
    for row in rows:
        if row["ID"]:
            yield CountedKernel(
                row["Kernel Name"], {name: text for name, text in row.items() if name and name.endswith(SUM)}
            )


def _why_failed(text: str) -> str:
    errors = [match[1].strip() for match in map(ERROR.match, text.splitlines()) if match]
    return printable(errors[0]) if errors else "no kernel ran while it listened"


# what a call counts


def counts_of(captures: Sequence[Capture], names: Iterable[str], kernels: Iterable[Kernel]) -> Counts:
    """Return the counters of a call from its captures.

    Those that ncu does not know on this GPU are left out. kernels: those that were timed, which have to be the same;
    none where the timer sees none.
    """
    if not captures:
        return Counts(untaken="it was not called in the process that ncu watched")
    if wrong := _other_kernels(captures, kernels):
        return Counts(wrong=wrong)
    taken: dict[str, tuple[float, ...]] = {}
    for name in names:
        if not all(_has(launch, name) for capture in captures for launch in capture):
            continue
        taken[name] = tuple(sum(_value_of(launch, name) for launch in capture) for capture in captures)
        if not all(map(math.isfinite, taken[name])):
            return Counts(wrong=f"ncu gives no number for {name} of one of its kernels")
    return Counts(captures=taken)


def _other_kernels(captures: Sequence[Capture], kernels: Iterable[Kernel]) -> str:
    """Return in words in what the kernels of captures are not those that were timed; empty where they are."""
    seen = [Counter(demangled(launch.name) for launch in capture) for capture in captures]
    timed = Counter({each.name: each.launches for each in kernels if each.kind == "kernel"}) or seen[0]
    for each in seen:
        if each != timed:
            differences = describe_difference(timed, each, ("when timed", "under ncu"))
            return f"under ncu it launches other kernels: {differences}"
    return "" if seen[0] else "ncu saw no kernel of it"


def _has(launch: CountedKernel, name: str) -> bool:
    """Tell whether ncu knows a counter on this GPU."""
    return all(any(raw in launch.metrics for raw in known) for known in counter_named(name).raw)


def _value_of(launch: CountedKernel, name: str) -> float:
    """Return a counter of a kernel; nan where ncu gives no number."""
    known = (next(raw for raw in each if raw in launch.metrics) for each in counter_named(name).raw)
    try:
        return sum(float(launch.metrics[raw].replace(",", "")) for raw in known)
    except ValueError:
        return math.nan
