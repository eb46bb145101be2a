"""An NVML that records what is changed and changes nothing: in a process, or as `pynvml` of a process of its own.

Copied to `pynvml.py` in a folder on PYTHONPATH it takes the variable FAKE_NVML: JSON of the arguments of `Recording`.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

IS_FAKE = True
SET, SET_MEMORY = BOTH_SET = ["SetGpuLockedClocks", "SetMemoryLockedClocks"]
RESET, RESET_MEMORY = BOTH_RESET = ["ResetGpuLockedClocks", "ResetMemoryLockedClocks"]
SUPPORTED = {3201: (345, 1395, 1410, 1425, 1980), 1593: (345, 1410)}


class NVMLError(Exception):
    pass


class NVMLError_NoPermission(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


ERRORS = {"NoPermission": NVMLError_NoPermission, "NotSupported": NVMLError_NotSupported, "Lost": NVMLError_GpuIsLost}


class Change(NamedTuple):
    """One call that would change a GPU, and whether a record of it was on disk at that moment."""

    what: str
    gpu: str
    clocks: tuple[int, ...]
    recorded: bool
    pid: int


class Recording:
    """Answers as an H200 does.

    folder: where records and `changes` are kept. broken: by query or change, the error that it raises. kill: by
    change, the signal that this process gets before it is done. answers: by query, another answer, or a function that
    returns it. A query without an answer is not supported.
    """

    NVMLError = NVMLError
    NVMLError_NoPermission = NVMLError_NoPermission
    NVMLError_NotSupported = NVMLError_NotSupported
    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2
    NVML_TEMPERATURE_GPU = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(
        self,
        folder: Path | str = "",
        broken: dict[str, str] | None = None,
        kill: dict[str, int] | None = None,
        answers: dict[str, Any] | None = None,
        gpus: Sequence[str] = ("GPU-fake-1", "GPU-fake-2"),
    ) -> None:
        self.folder = Path(folder)
        self.broken = broken or {}
        self.kill = kill or {}
        self.answers = answers or {}
        self.gpus = gpus
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        query = name.removeprefix("nvmlDevice").removeprefix("nvml")

        def call(*arguments: Any) -> Any:
            self.asked.append(query)
            if query.startswith(("Set", "Reset")):
                return self.change(query, *arguments)
            self.fail(query)
            return self.answer(query.removeprefix("Get"), arguments)

        return call

    def fail(self, query: str) -> None:
        if query in self.broken:
            raise ERRORS[self.broken[query]](f"{query}: {self.broken[query]}")

    def change(self, what: str, gpu: str, *clocks: int) -> None:
        if what in self.kill:
            os.kill(os.getpid(), self.kill[what])
        self.fail(what)
        change = Change(what, gpu, clocks, (self.folder / f"{gpu}.clocks.json").exists(), os.getpid())
        with open(self.folder / "changes", "a") as file:
            print(json.dumps(change), file=file)

    def answer(self, query: str, arguments: tuple[Any, ...]) -> Any:
        if query in self.answers:
            given = self.answers[query]
            return given(*arguments) if callable(given) else given
        if query == "HandleByUUID":
            return known({uuid: uuid for uuid in self.gpus}, *arguments)
        found = {
            "Init": None,
            "MigMode": [0, 0],
            "SupportedMemoryClocks": list(SUPPORTED),
            "SupportedGraphicsClocks": list(SUPPORTED.get(arguments[-1], ())) if arguments else [],
            "DefaultApplicationsClock": 1980,
            "MaxClockInfo": {1: 1980, 2: 3201}.get(arguments[-1]) if arguments else None,
            "ClockInfo": {1: 345, 2: 3199}.get(arguments[-1]) if arguments else None,
            "Temperature": 31,
            "PowerUsage": 77_123,
            "CurrentClocksThrottleReasons": 0x5,
        }
        if query not in found:
            raise NVMLError_NotSupported(query)
        return found[query]


def nvml_of(instances: Mapping[str, Sequence[str]]) -> Recording:
    """Return an NVML of GPUs by UUID, each with its MIG instances, none where it is not split."""
    handles = list(instances)
    answers = {
        "HandleByIndex": lambda index: known(dict(enumerate(handles)), index),
        "UUID": lambda handle: handle,
        "Name": "NVIDIA H200",
        "MigMode": lambda handle: [int(bool(instances.get(handle))), 0],
        "SystemGetDriverVersion": "580.1",
        "MaxMigDeviceCount": 7,
        "MigDeviceHandleByIndex": lambda handle, index: known(
            {3 * number: uuid for number, uuid in enumerate(instances[handle])}, index
        ),
    }
    return Recording(answers=answers, gpus=handles)


def known(handles: dict[Any, str], asked: Any) -> str:
    """Return a handle; raise NVML's error where there is no such GPU."""
    if asked not in handles:
        raise NVMLError("Not Found")
    return handles[asked]


def changes(folder: Path) -> list[Change]:
    """Return what was changed so far, by whichever process."""
    path = folder / "changes"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Change(what, gpu, tuple(clocks), recorded, pid) for what, gpu, clocks, recorded, pid in lines]


_of_this_process: Recording | None = None


def __getattr__(name: str) -> Any:
    """Be the module `pynvml`, as the variable says."""
    global _of_this_process
    if name.startswith("__") or "FAKE_NVML" not in os.environ:
        raise AttributeError(name)
    if _of_this_process is None:
        _of_this_process = Recording(**json.loads(os.environ["FAKE_NVML"]))
    return getattr(_of_this_process, name)
