"""The GPUs and MIG instances that a process may use, found without torch and without a CUDA context."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpubench.gpu.nvml import Nvml

DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")
MAX_GPUS = 64


@dataclass(frozen=True)
class VisibleGpu:
    """A GPU, or a MIG instance of one, that may be used; `index` is NVML's, None for an instance."""

    uuid: str
    index: int | None
    name: str
    mig: bool = False


@dataclass(frozen=True)
class HostGpu:
    """A GPU of the host and what can be used of it: itself, or the MIG instances that it is split into."""

    gpu: VisibleGpu
    usable: tuple[VisibleGpu, ...]


def has_gpu_driver() -> bool:
    """Tell whether there is an NVIDIA driver, and CUDA_VISIBLE_DEVICES does not hide every GPU."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None and not parse_list(listed):
        return False
    return any(Path(name).exists() for name in DRIVER_FILES)


def find_visible(environment: Mapping[str, str] | None = None) -> list[VisibleGpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES lists, in its order; nothing where NVML is not usable.

    A run may use every MIG instance that is returned; CUDA shows one process only the first of its list.
    """
    environment = os.environ if environment is None else environment
    return select(environment.get("CUDA_VISIBLE_DEVICES"), read_host())


def parse_list(listed: str) -> list[int] | list[str]:
    """Return the indices, or the beginnings of UUIDs, in CUDA_VISIBLE_DEVICES as CUDA reads it.

    The first entry decides which of the two they are. The list ends before the first entry that is neither, such as -1
    or NoDevFiles. An entry given twice empties it.
    """
    for prefix in ("GPU-", "MIG-"):
        if listed.startswith(prefix):
            return _once([name if name.startswith(prefix) else None for name in listed.split(",")])
    return _once([_leading_number(entry) for entry in listed.split(",")])


def select(listed: str | None, host: Sequence[HostGpu]) -> list[VisibleGpu]:
    """Return the GPUs of a host, given in NVML's order, that CUDA_VISIBLE_DEVICES lists; all of them for None."""
    if listed is None:
        return [gpu for each in host for gpu in each.usable]
    names = parse_list(listed)
    if listed.startswith("MIG-"):
        instances = [gpu for each in host for gpu in each.usable if gpu.mig]
        return [instances[place] for place in _places(names, [gpu.uuid for gpu in instances])]
    return [gpu for place in _places(names, [each.gpu.uuid for each in host]) for gpu in host[place].usable]


def read_host() -> list[HostGpu]:
    """Return all GPUs of this host in the order of the PCI bus; nothing where NVML is not usable."""
    found = []
    try:
        for index in range(MAX_GPUS):
            nvml = Nvml.open(index)
            gpu = VisibleGpu(nvml.uuid() or f"GPU-number-{index}", index, nvml.name())
            found.append(HostGpu(gpu, _instances(nvml) if nvml.mig() else (gpu,)))
    except RuntimeError:
        pass
    return found


def same_gpu(uuid: str, other: str) -> bool:
    """Tell whether two UUIDs are the same except for their prefix, which torch leaves out."""
    bare = [each.removeprefix("GPU-").removeprefix("MIG-") for each in (uuid, other)]
    return bool(bare[0]) and bare[0] == bare[1]


def _instances(nvml: Nvml) -> tuple[VisibleGpu, ...]:
    handles = [nvml.ask("MigDeviceHandleByIndex", index) for index in range(nvml.ask("MaxMigDeviceCount") or 0)]
    opened = [Nvml(nvml.library, handle) for handle in handles if handle is not None]
    return tuple(VisibleGpu(uuid, None, each.name(), True) for each in opened if (uuid := each.uuid()))


def _leading_number(entry: str) -> int | None:
    match = re.match(r"[+-]?[0-9]+", entry.strip())
    number = int(match.group()) if match else -1
    return number if number >= 0 else None


def _once(entries: "list[int | None] | list[str | None]") -> list:  # type: ignore[type-arg] # of either
    """Return the entries before the first None, or nothing if one of them occurs twice."""
    kept = list(entries[: entries.index(None)] if None in entries else entries)
    return kept if len(set(kept)) == len(kept) else []


def _places(names: "list[int] | list[str]", uuids: Sequence[str]) -> list[int]:
    return _once([_place(name, uuids) for name in names])


def _place(name: int | str, uuids: Sequence[str]) -> int | None:
    if isinstance(name, int):
        return name if name < len(uuids) else None
    matching = [place for place, uuid in enumerate(uuids) if uuid.startswith(name)]
    return matching[0] if len(matching) == 1 else None
