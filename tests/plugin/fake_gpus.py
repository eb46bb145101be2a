"""Pytest's `-p fake_gpus`: a host with GPUs that are not there, for runs in processes of their own.

A file `gpus.json` beside this one says which there are, and which processes NVML lists on each. Every process sees
them through a fake NVML; measurements are scripted, but each test has a device that says it is a GPU.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parent
STARTED = False
"""Whether CUDA was started, after which a list of devices is no longer read."""


def host() -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads((HERE / "gpus.json").read_text())
    return found


class FakeNvml:
    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index >= len(host()):
            raise self.NVMLError("Not Found")
        return list(host())[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in host():
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "Fake GPU of another kind" if handle.endswith("unlike") else "Fake GPU"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "0"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in host()[handle]]


def find_device(wanted: str, option: str = "") -> Any:
    import torch

    from pytest_gpubench.gpu import visible
    from pytest_gpubench.gpu.device import Device, cpu_device
    from pytest_gpubench.results.model import DeviceFacts

    global STARTED
    STARTED = wanted != "cpu"
    gpus = visible.find_visible()
    if wanted == "cpu" or not gpus:
        return cpu_device()
    facts = DeviceFacts(type="cuda", name="Fake GPU", host="here", uuid=gpus[0].uuid)
    return Device(torch.device("cpu"), facts)


def install() -> None:
    from pytest_gpubench import running_test
    from pytest_gpubench.gpu import context, device, visible
    from pytest_gpubench.plugin import sticky_error

    sys.modules["pynvml"] = FakeNvml()  # type: ignore[assignment]
    visible.DRIVER_FILES = ("/", "/", "/")
    context.cuda_was_started = lambda modules=None: STARTED
    device.find_device = running_test.find_device = find_device  # type: ignore[attr-defined] # its import
    sticky_error.context_error = lambda: os.environ.get("FAKE_CONTEXT_ERROR")  # type: ignore[attr-defined] # its import


install()
