"""What cannot be measured gets a sentence and no number, and the next measurement is right."""

import shutil
import sys
import threading
import time
from contextlib import suppress

import pytest
import torch

from pytest_gpubench import DeviceUnavailable, GpuBench, IncompleteRecords, KernelsDiffer


def check_next(gpu_bench: GpuBench) -> None:
    x = torch.randn(2**20, device=gpu_bench.device)
    assert gpu_bench.measure(x.neg, reps=20, label="the next one").launches == 1


def test_out_of_memory_in_the_function(gpu_bench: GpuBench) -> None:
    def too_large() -> torch.Tensor:
        return torch.empty(2**45, dtype=torch.uint8, device="cuda")

    with pytest.raises(torch.OutOfMemoryError) as caught:
        gpu_bench(too_large)
    assert any("warm-up call 1" in note for note in caught.value.__notes__)  # type: ignore[attr-defined]
    check_next(gpu_bench)


def fill_memory() -> list[torch.Tensor]:
    """Take all memory of the GPU, in ever smaller blocks down to 2 MiB."""
    blocks, size = [], 2**36
    while size >= 2**21:
        try:
            blocks.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return blocks


def test_out_of_memory_in_the_flush(gpu_bench: GpuBench) -> None:
    from pytest_gpubench.timing.l2flush import flush_buffer

    x = torch.randn(1000, device=gpu_bench.device)
    flush_buffer.cache_clear()
    blocks = fill_memory()
    try:
        with pytest.raises(DeviceUnavailable, match=r"no room on .* asked for .* MiB, found .* free"):
            gpu_bench(x.neg)
    finally:
        blocks.clear()
        torch.cuda.empty_cache()
    check_next(gpu_bench)


def test_a_thread_that_goes_on_launching_makes_no_number_wrong(gpu_bench: GpuBench) -> None:
    x, y = torch.randn(1000, device=gpu_bench.device), torch.randn(1000, device=gpu_bench.device)
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            for _ in range(20):
                y.neg()
            time.sleep(1e-4)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        with suppress(IncompleteRecords, KernelsDiffer):
            timing = gpu_bench.measure(x.exp, reps=50)
            assert (timing.launches, ["exp" in kernel.name for kernel in timing.kernels]) == (1, [True])
    finally:
        stop.set()
        thread.join()
    check_next(gpu_bench)


INTERRUPTED = """
import os, signal, torch

def test_done(gpu_bench):
    gpu_bench(torch.ones(1000, device=gpu_bench.device).neg)

def test_interrupted(gpu_bench):
    x = torch.ones(1000, device=gpu_bench.device)
    calls = []

    def interrupted():
        calls.append(1)
        if len(calls) == 40:
            os.kill(os.getpid(), signal.SIGINT)
        return x.neg()

    gpu_bench(interrupted)
"""


def test_an_interrupt_in_a_session_keeps_the_table(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(INTERRUPTED)
    result = pytester.runpytest_subprocess("-p", "no:benchmark")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*test_done*neg*", "gpu_bench: 1 measurement in 1 test on *"])
    assert "Error" not in result.stderr.str()


def test_a_tool_that_takes_the_records_is_named(pytester: pytest.Pytester) -> None:
    """Under ncu the profiler gets nothing: a sentence, no number."""
    ncu = shutil.which("ncu")
    if ncu is None:
        pytest.skip("ncu is not on the PATH")
    options = ["--metrics=gpu__time_duration.sum", "--target-processes=all"]
    result = pytester.run(ncu, *options, sys.executable, "-m", "pytest_gpubench", "doctor", timeout=120)
    result.stdout.fnmatch_lines(["*profiler (CUPTI): NOT usable: *"])
