"""Workers on real GPUs: pinned, by turns, and what is left when one breaks; each test says how many GPUs it needs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpubench.gpu.visible import find_visible
from tests.on_gpu.hosts import RealHost, seeing
from tests.plugin.hosts import overlaps, turns_by_gpu

SUITE = """
import os
import pytest, torch

@pytest.mark.parametrize("number", range({tests}))
def test_it(gpu_bench, number):
    x = torch.randn(2**22, device=gpu_bench.device)
    gpu_bench.measure(x.neg, reps=20)
    gpu_bench.extra_info.update(pid=os.getpid(), seen=os.environ.get("CUDA_VISIBLE_DEVICES"))
    gpu_bench.extra_info["devices"] = torch.cuda.device_count()
"""

CULPRITS = """
import signal

def test_raised(gpu_bench): out_of_bounds(gpu_bench).item()
def test_left_running(gpu_bench): out_of_bounds(gpu_bench)
def test_out_of_memory(gpu_bench): torch.empty(2**45, dtype=torch.uint8, device=gpu_bench.device)
def test_killed(gpu_bench): os.kill(os.getpid(), signal.SIGKILL)

def out_of_bounds(gpu_bench):
    x = torch.zeros(8, device=gpu_bench.device)
    return x[torch.tensor([2**40], device=x.device)].sum()

@pytest.mark.parametrize("number", range(4))
def test_after(gpu_bench, number):
    gpu_bench.measure(torch.randn(2**22, device=gpu_bench.device).neg, reps=20)
"""


def need_gpus(number: int) -> None:
    found = len(find_visible())
    if found < number:
        pytest.skip(f"needs {number} GPUs, found {found}: nothing here is proved by this run")


def strangers(output: str) -> set[int]:
    """Return the processes that a run took for foreign, but for this one, which may have a CUDA context itself."""
    return {int(pid) for line in output.splitlines() if " comput" in line for pid in re.findall(r"pid (\d+)", line)} - {
        os.getpid()
    }


@pytest.fixture
def host(tmp_path: Path) -> RealHost:
    return RealHost(tmp_path)


@pytest.fixture(scope="module")
def uuids() -> list[str]:
    return [gpu.uuid for gpu in find_visible()]


def test_four_workers_hold_four_gpus(host: RealHost, uuids: list[str]) -> None:
    need_gpus(4)
    host.write(SUITE.format(tests=24))
    status, output = host.run("-n", "auto", **seeing(uuids[:4]))
    assert status == 0, output
    assert strangers(output) == set()
    assert "created: 4/4 workers" in output
    records = host.records()
    assert len(records) == 24
    seen = {str(record.extra_info["pid"]): record.extra_info["seen"] for record in records}
    assert sorted(seen.values()) == sorted(uuids[:4])
    assert {record.extra_info["devices"] for record in records} == {1}
    for record in records:
        assert record.turn is not None
        assert record.turn.gpus == (record.extra_info["seen"],)
        assert record.device.uuid == record.extra_info["seen"]
    assert overlaps(records) == []


def test_runs_and_workers_share_one_gpu(host: RealHost, uuids: list[str]) -> None:
    """Two runs at once, one of them with more workers than there are GPUs; none takes another for a stranger."""
    need_gpus(1)
    host.write(SUITE.format(tests=8))
    runs = [host.start(*mode, **seeing(uuids[:1])) for mode in ([], ["-n3"])]
    for run in runs:
        output, _ = run.communicate(timeout=400)
        assert run.returncode == 0, output
        assert strangers(output) == set()
    assert len(host.records()) == 16
    assert set(turns_by_gpu(host.records())) == set(uuids[:1])
    assert overlaps(host.records()) == []


def test_what_breaks_or_ends_a_worker_costs_one_test(host: RealHost) -> None:
    need_gpus(1)
    host.write(SUITE.format(tests=4) + CULPRITS)
    status, output = host.run("-n4")
    assert status == 1
    assert "4 failed, 8 passed in" in output, output
    assert "8 measurements in 8 tests" in output
    assert output.count("this worker was ended") == 2
    assert len(re.findall("crashed while running 'test_it.py::test_killed'", output)) == 1
    assert "out of memory" in output
    assert output.count("crashed while running") == 1


def test_without_xdist_the_rest_is_not_run(host: RealHost) -> None:
    """Two runs at once, by turns: a broken context is that of its process alone."""
    need_gpus(1)
    host.write(SUITE.format(tests=4) + CULPRITS)
    others = {"raised": "left_running", "left_running": "raised"}
    runs = {name: host.start("-k", f"not ({other} or memory or killed)") for name, other in others.items()}
    for name, run in runs.items():
        output, _ = run.communicate(timeout=400)
        assert run.returncode == 1
        assert "1 failed, 4 passed, 4 skipped, 3 deselected in" in output, output
        assert f"not run: test_it.py::test_{name} broke the CUDA context of this process" in output


TWO_GPUS = """
@pytest.mark.perf(gpus=2)
@pytest.mark.parametrize("again", range(4))
def test_copy(gpu_bench, again):
    x = torch.randn(2**22, device="cuda:0")
    y = torch.empty_like(x, device="cuda:1")
    y.copy_(x)
    torch.cuda.synchronize(1)
    gpu_bench.extra_info.update(pid=os.getpid(), seen=os.environ.get("CUDA_VISIBLE_DEVICES"))
    gpu_bench.measure(x.neg, reps=20)
"""


@pytest.mark.parametrize("mode", [[], ["-n2"]])
def test_two_gpus_for_one_test(host: RealHost, uuids: list[str], mode: list[str]) -> None:
    need_gpus(2)
    host.write(SUITE.format(tests=8) + TWO_GPUS)
    status, output = host.run(*mode, **seeing(uuids[:2]))
    assert status == 0, output
    copies = [record for record in host.records() if "copy" in record.nodeid]
    assert len(copies) == 4
    assert all(record.turn is not None and len(record.turn.gpus) == 2 for record in copies)
    assert overlaps(host.records()) == []


def test_a_stranger_is_seen(host: RealHost, uuids: list[str]) -> None:
    """A process that computes and takes no turns; where NVML cannot name it, its load must be seen."""
    need_gpus(1)
    host.write(SUITE.format(tests=1))
    code = (
        "import torch\nx = torch.randn(8192, 8192, device='cuda')\nprint('ready', flush=True)\n"
        "while True:\n    x @ x\n    torch.cuda.synchronize()"
    )
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": uuids[0]}
    stranger = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline().strip() == b"ready"
        status, output = host.run("--gpu-bench-busy=fail", **seeing(uuids[:1]))
    finally:
        stranger.kill()
        stranger.communicate()
    assert status == 1, output
    assert "on the GPU" in output or "the GPU is" in output
    assert "end it, or let the test wait with --gpu-bench-busy=wait" in output
