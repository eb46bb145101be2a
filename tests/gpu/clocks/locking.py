"""Processes that lock clocks, and the records that they leave, by a fake that records what would be changed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

import pytest_gpubench
from pytest_gpubench.gpu.clocks.record import ClockRecord, Owner, boot_id, read_record, record_path, write_record
from pytest_gpubench.gpu.holder import Holder
from tests.gpu import recording_nvml
from tests.gpu.recording_nvml import changes

GPU = "GPU-fake-1"
SET, SET_MEMORY = "SetGpuLockedClocks", "SetMemoryLockedClocks"
RESET, RESET_MEMORY = "ResetGpuLockedClocks", "ResetMemoryLockedClocks"
BOTH_SET, BOTH_RESET = [SET, SET_MEMORY], [RESET, RESET_MEMORY]
DEAD: dict[str, Any] = {"pid": os.getpid(), "started": 1}
"""What an owner is to be taken for one that has ended: its number is used again."""
CHILD = """
import os, signal, sys
from pathlib import Path
import pynvml
assert pynvml.IS_FAKE
from pytest_gpubench.gpu.clocks import ClockLock
from pytest_gpubench.settings.parsers import clock_wish
folder, wish, how = sys.argv[1:]
if how == "handler":
    signal.signal(signal.SIGTERM, lambda *_: (print("mine", flush=True), sys.exit(7)))
if how == "ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
def say(sentence): print(sentence, flush=True)
lock = ClockLock("GPU-fake-1", clock_wish(wish), Path(folder), say)
if how == "exit":
    lock.acquire()
    sys.exit(3)
with lock:
    if how == "error":
        raise RuntimeError("of the test")
    if how == "fork":
        child = os.fork()
        if not child:
            sys.exit(0)
        os.waitpid(child, 0)
    print("held", flush=True)
    sys.stdin.readline()
print("released", flush=True)
"""
Process = subprocess.Popen[str]


def start(folder: Path, wish: str = "1410", how: str = "wait", **fakes: Any) -> Process:
    """Start a process that locks the clocks, with the fake for its pynvml."""
    (folder / "fakes").mkdir(exist_ok=True)
    (folder / "fakes" / "pynvml.py").write_text(Path(recording_nvml.__file__).read_text())
    root = Path(pytest_gpubench.__file__).parents[1]
    paths = {"PYTHONPATH": os.pathsep.join([str(folder / "fakes"), str(root)])}
    variables = {**os.environ, **paths, "FAKE_NVML": json.dumps({"folder": str(folder), **fakes})}
    command = [sys.executable, "-c", CHILD, str(folder), wish, how]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def wait_until_held(process: Process) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"


def finish(process: Process) -> tuple[int, str, str]:
    output, errors = process.communicate("\n", timeout=60)
    return process.returncode, output, errors


def whats(folder: Path) -> list[str]:
    return [change.what for change in changes(folder)]


def record_of(folder: Path) -> ClockRecord | None:
    return read_record(record_path(folder, GPU))


def owner(**values: Any) -> Owner:
    """An owner that lives, unless it is told otherwise."""
    boot = values.pop("boot", boot_id())
    return Owner(boot, values.pop("number", 0), msgspec.structs.replace(Holder.of_this_process(), **values))


def leave(folder: Path, *owners: Owner, gpu: str = GPU) -> None:
    """Leave the record of a process that locked the clocks."""
    folder.mkdir(exist_ok=True)
    write_record(record_path(folder, gpu), ClockRecord(gpu=gpu, graphics=1410, memory=3201, owners=owners))
