"""Which GPUs there are, found out without torch and without a CUDA context."""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_gpubench.results.model import DeviceFacts

DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")


def has_gpu_driver() -> bool:
    """Tell whether an NVIDIA driver is there and CUDA_VISIBLE_DEVICES does not hide every GPU."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return False
    return any(Path(name).exists() for name in DRIVER_FILES)


def visible_gpus() -> "list[DeviceFacts]":
    """Return what NVML says of the GPUs that CUDA_VISIBLE_DEVICES lets through; nothing where NVML is not usable."""
    from pytest_gpubench.gpu.nvml import Nvml
    from pytest_gpubench.results.model import DeviceFacts

    found: list[DeviceFacts] = []
    try:
        for index in range(64):
            nvml = Nvml.open_index(index)
            facts = DeviceFacts(
                type="cuda", name=nvml.name(), host=socket.gethostname(), uuid=nvml.uuid(), driver=nvml.driver()
            )
            found.append(facts)
    except RuntimeError:
        pass
    return [facts for index, facts in enumerate(found) if is_visible(index, facts.uuid or "")]


def is_visible(index: int, uuid: str) -> bool:
    """Tell whether CUDA_VISIBLE_DEVICES, a list of indices and beginnings of UUIDs, lets a GPU through."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return True
    names = [name.strip() for name in listed.split(",")]
    return any(name == str(index) or (name.startswith("GPU-") and uuid.startswith(name)) for name in names)
