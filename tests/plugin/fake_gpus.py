"""Pytest's `-p fake_gpus`: a host with GPUs that are not there, for runs in processes of their own.

A file `gpus.json` beside this one says which there are, and which processes NVML lists on each; `shares.json`, if it is
there, what each process takes of them in percent. Every process sees
them through a fake NVML; measurements are scripted, but each test has a device that says it is a GPU.
"""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.gpu.recording_nvml import Recording, known
else:  # beside this file, in a host's folder
    from recording_nvml import Recording, known

HERE = Path(__file__).parent
STARTED = "FAKE_STARTED" in os.environ
"""Whether CUDA was started, after which a list of devices is no longer read."""


def host() -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads((HERE / "gpus.json").read_text())
    return found


def samples() -> list[SimpleNamespace]:
    path = HERE / "shares.json"
    shares = json.loads(path.read_text()) if path.exists() else {}
    return [SimpleNamespace(pid=int(pid), smUtil=percent) for pid, percent in shares.items()]


class HostNvml(Recording):
    def __init__(self, **others: Any) -> None:
        super().__init__("locks", **others)
        self.answers |= {
            "HandleByIndex": lambda index: known(dict(enumerate(host())), index),
            "HandleByUUID": lambda uuid: known({each: each for each in host()}, uuid),
            "UUID": str,
            "Name": lambda uuid: "Fake GPU of another kind" if uuid.endswith("unlike") else "Fake GPU",
            "SystemGetDriverVersion": "0",
            "ProcessUtilization": lambda uuid, since_us: samples(),
            "ComputeRunningProcesses": lambda uuid: [
                SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in host()[uuid]
            ],
        }


def find_device(wanted: str, option: str = "") -> Any:
    import torch

    from pytest_gpubench import DeviceFacts
    from pytest_gpubench.gpu.device import Device, cpu_device
    from pytest_gpubench.gpu.visible import find_visible

    global STARTED
    STARTED = STARTED or wanted != "cpu"
    gpus = find_visible()
    if wanted == "cpu" or not gpus:
        return cpu_device()
    uuid = os.environ.get("FAKE_UUID", gpus[0].uuid) or None
    facts = DeviceFacts(type="cuda", name="Fake GPU", host="here", uuid=uuid)
    return Device(torch.device("cpu"), facts)


def install() -> None:
    import pytest

    sys.modules["pynvml"] = HostNvml()  # type: ignore[assignment]
    patch = pytest.MonkeyPatch()
    patch.setattr("pytest_gpubench.gpu.visible.DRIVER_FILES", ("/", "/", "/"))
    patch.setattr("pytest_gpubench.gpu.context.cuda_was_started", lambda modules=None: STARTED)
    patch.setattr("pytest_gpubench.gpu.device.find_device", find_device)
    patch.setattr("pytest_gpubench.running_test.find_device", find_device)
    patch.setattr("pytest_gpubench.plugin.sticky_error.context_error", lambda: os.environ.get("FAKE_CONTEXT_ERROR"))


install()
