"""Claims: real processes that spread over GPUs, crash, and share what there is."""

import os
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


def test_workers_share_evenly_and_a_replacement_takes_the_place_of_one_that_crashed(
    tmp_path: Path, start: Start
) -> None:
    """Claimants of a GPU are those that live."""
    processes = [start(WORKER, tmp_path, *(gpu.uuid for gpu in GPUS)) for _ in range(5)]
    claimed = [hear(each).strip() for each in processes]
    assert sorted(Counter(claimed).values()) == [1, 2, 2]
    (alone,) = (number for number, uuid in enumerate(claimed) if claimed.count(uuid) == 1)
    uuid, old = claimed[alone], processes[alone]
    second = claim_gpu([VisibleGpu(uuid, None, "")], tmp_path)
    assert claimants(uuid, tmp_path) == {old.pid, os.getpid()}
    old.kill()
    old.wait()
    assert claimants(uuid, tmp_path) == {os.getpid()}  # found although the first seat is free
    new = start(WORKER, tmp_path, *(gpu.uuid for gpu in GPUS))
    assert hear(new).strip() == uuid
    second.file.release()
    assert claimants(uuid, tmp_path) == {new.pid}
    assert claimants("GPU-unknown", tmp_path) == frozenset()


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
