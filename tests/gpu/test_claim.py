"""Claims: real processes that spread over GPUs, crash, and share what there is."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from pytest_gpubench import DeviceUnavailable
from pytest_gpubench.gpu.holder import Holder
from pytest_gpubench.gpu.lock import claim_gpu, claimants
from pytest_gpubench.gpu.lock_file import LockFile
from pytest_gpubench.gpu.visible import VisibleGpu
from tests.gpu.holding import Start, hear

GPUS = [VisibleGpu("GPU-a", 0, "H200"), VisibleGpu("MIG-b", None, "H200 MIG", True), VisibleGpu("GPU-c", 2, "H200")]

WORKER = """
claim = claim_gpu([VisibleGpu(uuid, None, "H200") for uuid in sys.argv[2:]], folder)
print(claim.gpu.uuid, flush=True)
sys.stdin.readline()
"""


class Workers:
    def __init__(self, folder: Path, start: Start) -> None:
        self.folder, self._start = folder, start
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, number: int) -> list[str]:
        """Start workers at once, and return what each has claimed."""
        new = [self._start(WORKER, self.folder, *(gpu.uuid for gpu in GPUS)) for _ in range(number)]
        self.processes += new
        return [hear(process).strip() for process in new]

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()


@pytest.fixture
def workers(tmp_path: Path, start: Start) -> Workers:
    return Workers(tmp_path, start)


def test_workers_share_evenly_and_a_replacement_takes_the_place_of_one_that_crashed(workers: Workers) -> None:
    claimed = workers.start(5)
    assert sorted(Counter(claimed).values()) == [1, 2, 2]
    (alone,) = (number for number, uuid in enumerate(claimed) if claimed.count(uuid) == 1)
    workers.kill(alone)
    assert workers.start(1) == [claimed[alone]]
    assert claimants(claimed[alone], workers.folder) == {workers.processes[5].pid}


def test_claimants_are_those_that_live(workers: Workers) -> None:
    claimed = workers.start(1)[0]
    second = claim_gpu([VisibleGpu(claimed, None, "")], workers.folder)
    assert claimants(claimed, workers.folder) == {workers.processes[0].pid, os.getpid()}
    workers.kill(0)
    assert claimants(claimed, workers.folder) == {os.getpid()}  # found although the first seat is free
    second.file.release()
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
    assert [claim.gpu.uuid for claim in claims] == ["GPU-a", "MIG-b", "GPU-c", "GPU-a"]
    claims[1].file.release()
    assert claim_gpu(GPUS, tmp_path).gpu.uuid == "MIG-b"


def test_without_a_gpu_there_is_none_to_take(tmp_path: Path) -> None:
    with pytest.raises(DeviceUnavailable, match="a GPU was asked for, but none is visible: see CUDA_VISIBLE_DEVICES"):
        claim_gpu([], tmp_path)
    assert list(tmp_path.iterdir()) == []
