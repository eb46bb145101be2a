"""Whether there are GPUs, and what they are, found out without torch and without a CUDA context."""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gpubench.gpu import visible

if TYPE_CHECKING:
    from pytest_gpubench.results.model import DeviceFacts

DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version")


def has_gpu_driver() -> bool:
    """Tell whether an NVIDIA driver is there and CUDA_VISIBLE_DEVICES does not hide every GPU."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None and not visible.parse_list(listed):
        return False
    return any(Path(name).exists() for name in DRIVER_FILES)


def visible_facts() -> "list[DeviceFacts]":
    """Return what NVML says of the GPUs that CUDA_VISIBLE_DEVICES lets through; nothing where NVML is not usable."""
    from pytest_gpubench.gpu.nvml import Nvml
    from pytest_gpubench.results.model import DeviceFacts

    gpus = visible.find_visible()
    try:
        driver = Nvml.open(gpus[0].uuid).driver() if gpus else None
    except RuntimeError:
        driver = None
    host = socket.gethostname()
    return [DeviceFacts(type="cuda", name=gpu.name, host=host, uuid=gpu.uuid, driver=driver) for gpu in gpus]
