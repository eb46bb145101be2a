"""`doctor`: its readings, its measurements and its advice; it changes nothing."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import pytest_gpubench.gpu.device
from pytest_gpubench import DeviceFacts, Measurement, ProfilerBusy
from pytest_gpubench.cli import doctor, main, noise
from pytest_gpubench.counters import COUNTERS
from pytest_gpubench.gpu.device import Device
from pytest_gpubench.gpu.nvml import Nvml
from pytest_gpubench.results.model import Counts, SavedRun, TestRecord
from pytest_gpubench.timing import peaks, profiler
from pytest_gpubench.timing.base import Rep
from tests.gpu.recording_nvml import Recording
from tests.results.measured import BARE_GPU as GPU
from tests.results.measured import timing_of


def fake_nvml(throttled: int = 0, **answers: Any) -> Nvml:
    return Nvml(Recording(answers={"CurrentClocksThrottleReasons": throttled, **answers}), None)


def facts(name: str = "NVIDIA H200", **more: Any) -> DeviceFacts:
    known: dict[str, Any] = {"compute_capability": "9.0", "mig": False} | more
    return DeviceFacts(type="cuda", name=name, host="here", **known)


def gpu(nvml: Nvml | None = None, **more: Any) -> Device:
    return Device(torch.device("cpu"), facts(**more), nvml)


# the command


def test_without_torch_it_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["doctor"]) == 2
    said = r"pytest-gpubench doctor: it needs torch, which cannot be imported \(.*\): run it where your tests run\n"
    assert re.fullmatch(said, "".join(capsys.readouterr()))


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")
def test_without_a_gpu_it_fails_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert ("name: " in out, "GPU: none, " in out) == (True, True)
    assert main(["doctor", "--counters"]) == 1
    assert capsys.readouterr().out.startswith("counters (ncu): NOT taken: there is no GPU: ")


USABLE = "usable, 2 reps complete, the shortest kernel takes 1.50 us"
COPIES = "copy bandwidth, cold: 4200 GB/s, 88 % of 4800 GB/s (H200 datasheet, SXM)"


@pytest.mark.parametrize(
    ("words", "is_busy", "status", "last"),
    [
        ((), False, 0, [f"profiler (CUPTI): {USABLE}", COPIES]),
        (("--quick",), False, 0, [f"profiler (CUPTI): {USABLE}"]),
        ((), True, 1, ["profiler (CUPTI): NOT usable: another profiler is on"]),
    ],
)
def test_what_is_said_of_a_gpu(
    words: tuple[str, ...],
    is_busy: bool,
    status: int,
    last: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A GPU is found, on which nothing is measured in truth."""

    def take(cache: str) -> list[Rep]:
        assert cache == "cold"
        if is_busy:
            raise ProfilerBusy("another profiler is on")
        return [Rep(1.536), Rep(1.504)]

    monkeypatch.setattr(pytest_gpubench.gpu.device, "find_device", lambda wanted: gpu(fake_nvml()))
    monkeypatch.setattr(profiler, "ProfilerTimer", lambda device, cache: cache)
    monkeypatch.setattr(profiler, "take_reps_of_noop", take)
    monkeypatch.setattr(peaks, "copy_bandwidth", lambda device: 4.2e6)
    assert main(["doctor", *words]) == status
    lines = capsys.readouterr().out.splitlines()
    assert "name: NVIDIA H200" in lines
    assert lines[-len(last) :] == last


# what is read


@pytest.mark.parametrize(
    ("answers", "lines"),
    [
        ({}, []),
        ({"EccMode": [0, 1]}, ["ECC: off"]),
        ({"EccMode": [1, 1]}, ["ECC: on"]),
        ({"EccMode": [1, 1], "TotalEccErrors": 1}, ["ECC: on, 1 uncorrected error since the driver was loaded"]),
        ({"EccMode": [1, 1], "TotalEccErrors": 2}, ["ECC: on, 2 uncorrected errors since the driver was loaded"]),
        ({"PersistenceMode": 1}, ["persistence mode: on"]),
        (
            {"PersistenceMode": 0},
            ["persistence mode: off: every run begins with a cold GPU and a second of start (nvidia-smi -pm 1)"],
        ),
        ({"throttled": 0x04 | 0x40}, ["throttled now: software power cap, hardware thermal slowdown"]),
        ({"ComputeRunningProcesses": [], "UtilizationRates": SimpleNamespace(gpu=0)}, []),
    ],
)
def test_what_a_gpu_does_not_tell_is_left_out(answers: dict[str, Any], lines: list[str]) -> None:
    assert doctor.state_lines(gpu(fake_nvml(**answers))) == [*lines, "others on the GPU: nobody seen"]


def test_a_process_of_others_is_named() -> None:
    started = subprocess.run(["sh", "-c", "sleep 60 >&- & echo $!"], stdout=subprocess.PIPE, text=True, check=True)
    orphan = int(started.stdout)
    processes = [SimpleNamespace(pid=pid, usedGpuMemory=2**30) for pid in (orphan, os.getpid(), os.getppid())]
    try:
        words = doctor.others_words(fake_nvml(ComputeRunningProcesses=processes))
    finally:
        os.kill(orphan, signal.SIGKILL)
    assert words.startswith(f"1 other process: pid {orphan} (sleep 60")


def test_without_nvml_nothing_is_known() -> None:
    assert doctor.state_lines(gpu()) == ["other processes, ECC, persistence: not known without NVML"]


# the datasheets


SPLIT = "200 GB/s (an instance of MIG has a part of the GPU's)"
SLOW = "3590 GB/s, 75 % of 4800 GB/s (H200 datasheet, SXM); less than expected: is another process on it, or the "


@pytest.mark.parametrize(
    ("known", "bytes_per_us", "line"),
    [
        ({}, 3.6e6, ", cold: 3600 GB/s, 75 % of 4800 GB/s (H200 datasheet, SXM)"),
        ({}, 3.59e6, f", cold: {SLOW}memory clock low?"),
        (
            {"name": "NVIDIA B200"},
            8e6,
            ", cold: 8000 GB/s, 100 % of 8000 GB/s (HGX B200 datasheet; up to 8 TB/s, 7.7 in later issues)",
        ),
        ({"name": "NVIDIA T1000"}, 1.3e5, ", cold: 130 GB/s (no datasheet is known here)"),
        ({"name": "NVIDIA A100-SXM4-80GB MIG 1g.10gb"}, 2e5, f", cold: {SPLIT}"),
        ({"mig": True}, 2e5, f", cold: {SPLIT}"),
        ({}, None, ": not measured, there is no room for a copy"),
    ],
)
def test_bandwidth_against_the_datasheet(known: dict[str, Any], bytes_per_us: float | None, line: str) -> None:
    assert doctor.bandwidth_line(facts(**known), bytes_per_us) == f"copy bandwidth{line}"


MIB = 2**20


def run_of(**calls: Counts) -> SavedRun:
    items = [Measurement(timing=timing_of((1.0,), label, counts=counts)) for label, counts in calls.items()]
    return SavedRun(records=(TestRecord(nodeid="t", device=GPU, measurements=tuple(items)),), datetime="")


def counted(instructions: Sequence[float], read: float = 64 * MIB) -> Counts:
    captures: dict[str, tuple[float, ...]] = {each.name: (5.0,) * 3 for each in COUNTERS}
    captures |= {"instructions": tuple(instructions), "dram_read_bytes": (read,) * 3}
    return Counts(captures=captures, cache_bytes=50 * MIB)


def tell(monkeypatch: pytest.MonkeyPatch, *runs: SavedRun) -> int:
    """Tell what these processes count."""
    left = list(runs)
    options: list[tuple[object, ...]] = []

    def take(tests: Path, *others: object) -> SavedRun:
        options.append(others)
        return left.pop(0)

    monkeypatch.setattr(noise, "_take_run", take)
    monkeypatch.setattr(doctor, "_why_never", str)
    status = main(["doctor", "--counters"])
    assert all("--gpu-bench-counters=all" in each for each in options)
    return status


def test_the_spread_is_that_of_all_captures_of_both_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run_of(add=counted([1000] * 3), sort=counted([1000, 1000, 1001]))
    second = run_of(add=counted([1000] * 3), sort=counted([1000, 1000, 990], read=40 * MIB))
    assert tell(monkeypatch, first, second) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["instructions"][1:8] == ["1", "of", "2", "calls", "1.1", "%", "sort"]
    assert lines["dram_read_bytes"][1:6] == ["1", "of", "1", "calls", "0"]  # sort fits into the cache
    assert lines["atomics"][1:6] == ["2", "of", "2", "calls", "0"]


def test_a_call_without_counters_is_named_and_what_is_not_permitted_is_told_after_the_first_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [run_of(add=counted([1] * 3), sort=Counts(wrong="it launches other kernels"))] * 2
    assert tell(monkeypatch, *both) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "sort: it launches other kernels"
    assert tell(monkeypatch, run_of(add=Counts(untaken="no rights"))) == 1
    assert capsys.readouterr().out == "counters (ncu): NOT taken: no rights\n"
