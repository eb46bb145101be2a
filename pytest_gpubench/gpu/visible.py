"""The GPUs and MIG instances that a process may use, found without torch and without a CUDA context."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
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
    listed = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    host = read_host()
    if listed is None:
        return [gpu for each in host for gpu in each.usable]
    names = parse_list(listed)
    if listed.startswith("MIG-"):
        instances = [gpu for each in host for gpu in each.usable if gpu.mig]
        return [instances[place] for place in _places(names, [gpu.uuid for gpu in instances])]
    return [gpu for place in _places(names, [each.gpu.uuid for each in host]) for gpu in host[place].usable]


def parse_list(listed: str) -> list[int] | list[str]:
    """Return the indices, or the beginnings of UUIDs, in CUDA_VISIBLE_DEVICES as CUDA reads it.

    The first entry decides which of the two they are. The list ends before the first entry that is neither, such as -1
    or NoDevFiles. An entry given twice empties it.
    """
    for prefix in ("GPU-", "MIG-"):
        if listed.startswith(prefix):
            return _once([name if name.startswith(prefix) else None for name in listed.split(",")])
    numbers = [re.match(r"[+-]?[0-9]+", entry.strip()) for entry in listed.split(",")]
    return _once([int(each[0]) if each and int(each[0]) >= 0 else None for each in numbers])


def read_host() -> list[HostGpu]:
    """Return all GPUs of this host in the order of the PCI bus; nothing where NVML is not usable."""
    found = []
    try:
        for index in range(MAX_GPUS):
            nvml = Nvml.open(index)
            gpu = VisibleGpu(nvml.uuid() or f"GPU-number-{index}", index, nvml.name())
            found.append(HostGpu(gpu, tuple(_instances(nvml)) if nvml.mig() else (gpu,)))
    except RuntimeError:
        pass
    return found


def same_gpu(uuid: str, other: str) -> bool:
    """Tell whether two UUIDs are the same except for their prefix, which torch leaves out."""
    bare = [each.removeprefix("GPU-").removeprefix("MIG-") for each in (uuid, other)]
    return bool(bare[0]) and bare[0] == bare[1]


def _instances(nvml: Nvml) -> Iterator[VisibleGpu]:
    for index in range(nvml.ask("MaxMigDeviceCount") or 0):
        handle = nvml.ask("MigDeviceHandleByIndex", index)
        if handle is not None and (uuid := (instance := Nvml(nvml.library, handle)).uuid()):
            yield VisibleGpu(uuid, None, instance.name(), True)


def _once(entries: "list[int | None] | list[str | None]") -> list:  # type: ignore[type-arg] # of either
    """Return the entries before the first None, or nothing if one of them occurs twice."""
    kept = list(entries[: entries.index(None)] if None in entries else entries)
    return kept if len(set(kept)) == len(kept) else []


def _places(names: "list[int] | list[str]", uuids: Sequence[str]) -> list[int]:
    """Return the places of what is named, up to the first name of none, or of several."""
    found: list[int | None] = []
    for name in names:
        named = [
            at for at, uuid in enumerate(uuids) if (at == name if isinstance(name, int) else uuid.startswith(name))
        ]
        found.append(named[0] if len(named) == 1 else None)
    return _once(found)
