"""Claims: real processes that spread over GPUs, crash, and share what there is."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_gpubench.errors import DeviceUnavailable
from pytest_gpubench.gpu import allocation
from pytest_gpubench.gpu.allocation import Claim, claim_gpu, claimants, cuda_was_initialised
from pytest_gpubench.gpu.lock import Holder, LockFile
from pytest_gpubench.gpu.visible import VisibleGpu

GPUS = [VisibleGpu("GPU-a", 0, "H200"), VisibleGpu("MIG-b", None, "H200 MIG", True), VisibleGpu("GPU-c", 2, "H200")]

WORKER = """
import sys
from pathlib import Path
from pytest_gpubench.gpu.allocation import claim_gpu
from pytest_gpubench.gpu.visible import VisibleGpu
folder, *uuids = sys.argv[1:]
claim = claim_gpu([VisibleGpu(uuid, None, "H200") for uuid in uuids], Path(folder))
print(claim.environment()["CUDA_VISIBLE_DEVICES"], flush=True)
sys.stdin.readline()
"""


class Workers:
    """Processes that have claimed a GPU each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, number: int) -> list[str]:
        """Start workers at once, and return what each has claimed."""
        command = [sys.executable, "-c", WORKER, str(self.folder), *(gpu.uuid for gpu in GPUS)]
        new = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(number)
        ]
        self.processes += new
        return [process.stdout.readline().strip() for process in new if process.stdout]

    def kill(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGKILL)
        self.processes[number].communicate()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    for process in started.processes:
        process.kill()
        process.communicate()


def uuids(claim: Claim) -> list[str]:
    return [gpu.uuid for gpu in claim.gpus]


def test_workers_spread_over_the_gpus(workers: Workers) -> None:
    assert sorted(workers.start(3)) == ["GPU-a", "GPU-c", "MIG-b"]


def test_more_workers_than_gpus_share_evenly(workers: Workers) -> None:
    assert sorted(Counter(workers.start(8)).values()) == [2, 3, 3]


def test_a_replacement_takes_the_place_of_a_worker_that_crashed(workers: Workers) -> None:
    claimed = workers.start(3)
    workers.kill(1)
    assert workers.start(1) == [claimed[1]]
    assert claimants(claimed[0], workers.folder) == {workers.processes[0].pid}
    assert claimants(claimed[1], workers.folder) == {workers.processes[3].pid}


def test_claimants_are_those_that_live(workers: Workers) -> None:
    claimed = workers.start(1)[0]
    second = claim_gpu([VisibleGpu(claimed, None, "")], workers.folder)
    assert claimants(claimed, workers.folder) == {workers.processes[0].pid, os.getpid()}
    workers.kill(0)
    assert claimants(claimed, workers.folder) == {os.getpid()}  # found although the first seat is free
    second.release()
    assert claimants(claimed, workers.folder) == frozenset()
    assert claimants("GPU-unknown", workers.folder) == frozenset()


def test_pids_of_other_containers_are_nobody_here(tmp_path: Path) -> None:
    here = Holder.of_this_process()
    for place, namespace in enumerate([here.namespace, "pid:[1]"]):
        note = Holder(1 + place, None, namespace, here.host, "x", "x", "", 0.0)
        assert LockFile(tmp_path, f"GPU-a.seat{place}").try_acquire(note)
    assert claimants("GPU-a", tmp_path) == {1}


def test_claims_of_one_process_are_many(tmp_path: Path) -> None:
    claims = [claim_gpu(GPUS, tmp_path) for _ in range(4)]
    assert [uuids(claim) for claim in claims] == [["GPU-a"], ["MIG-b"], ["GPU-c"], ["GPU-a"]]
    claims[1].release()
    assert uuids(claim_gpu(GPUS, tmp_path)) == ["MIG-b"]


def test_without_a_gpu_there_is_none_to_take(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnavailable, match="a GPU was asked for, but none is visible: see CUDA_VISIBLE_DEVICES"):
        claim_gpu([], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_environment_pins_the_claimed_first(tmp_path: Path) -> None:
    claim = claim_gpu(GPUS[1:], tmp_path)
    assert claim.environment() == {"CUDA_VISIBLE_DEVICES": "MIG-b"}
    assert claim.environment(GPUS) == {"CUDA_VISIBLE_DEVICES": "MIG-b,GPU-a,GPU-c"}


def test_the_folder_is_everybodys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    claim = claim_gpu(GPUS)
    assert claimants("GPU-a") == {os.getpid()}
    assert [path.name for path in (tmp_path / "pytest-gpubench-locks").iterdir()] == ["GPU-a.seat0"]
    claim.release()


@pytest.mark.parametrize(
    ("modules", "driver", "expected"),
    [
        ({}, False, False),
        ({}, True, True),  # by something else than torch
        ({"torch": SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))}, False, True),
        ({"torch": SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))}, False, False),
        ({"torch": SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False))}, True, True),
        ({"torch": SimpleNamespace()}, False, False),
        ({"torch": None}, False, False),
    ],
)
def test_whether_cuda_was_started(
    monkeypatch: pytest.MonkeyPatch, modules: dict[str, object], driver: bool, expected: bool
) -> None:
    monkeypatch.setattr(allocation, "driver_was_initialised", lambda: driver)
    assert cuda_was_initialised(modules) == expected


@pytest.mark.parametrize(("error", "expected"), [(3, False), (0, True), (100, True), (OSError(), False)])
def test_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch, error: int | OSError, expected: bool) -> None:
    modes: list[int] = []

    def load(name: str, mode: int) -> SimpleNamespace:
        modes.append(mode)
        if isinstance(error, OSError):
            raise error
        return SimpleNamespace(cuDeviceGetCount=lambda _: error)

    monkeypatch.setattr("ctypes.CDLL", load)
    assert allocation.driver_was_initialised() == expected
    assert modes == [os.RTLD_NOLOAD | os.RTLD_LAZY]


def test_without_a_driver_cuda_was_not_started() -> None:
    code = "from pytest_gpubench.gpu.allocation import cuda_was_initialised as c; import sys; print(c(), *sys.modules)"
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert words[0] == "False"
    assert not {"torch", "pynvml", "pytest", "msgspec"} & set(words)
