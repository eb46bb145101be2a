"""The measured peaks on the real thing: plausible, cheap, repeatable, out of reach, and without a trace."""

import time

import pytest
import torch

from pytest_gpubench.correctness.flops import counted
from pytest_gpubench.gpu.device import find_device
from pytest_gpubench.results.model import Peaks
from pytest_gpubench.results.roofline import memory_gbps
from pytest_gpubench.timing import peaks
from pytest_gpubench.timing.calls import make_call
from pytest_gpubench.timing.peaks import measured_peaks
from pytest_gpubench.timing.profiler import ProfilerTimer, take_reps_of_noop
from tests.on_gpu.test_timers import median_us
from tests.results.measured import present


def found_peaks(*dtypes: str) -> Peaks:
    return present(measured_peaks(find_device("cuda"), dtypes))


def test_peaks_are_below_the_datasheet_and_not_far() -> None:
    found = found_peaks("bfloat16")
    if found.datasheet_gbps is None:
        pytest.skip("no datasheet is known for this GPU")
    for rate in (present(found.copy_gbps), present(found.read_gbps)):
        assert 0.75 * found.datasheet_gbps < rate < found.datasheet_gbps
    assert 0.5 * found.datasheet_tflops["bfloat16"] < found.matmul_tflops["bfloat16"]


def test_measured_again_they_are_the_same_in_some_seconds() -> None:
    device, found = find_device("cuda"), found_peaks("bfloat16")
    take_reps_of_noop(ProfilerTimer(device, "cold"))  # what the profiler's start costs is none of theirs
    began_s = time.perf_counter()
    points, _ = peaks.measured_memory.__wrapped__(device)
    memory_s = time.perf_counter() - began_s
    rate = peaks.measure_matmul(device, "bfloat16")
    matmul_s = time.perf_counter() - began_s - memory_s
    print(f"memory {memory_s:.2f} s, bfloat16 {matmul_s:.2f} s")
    gbps = {point.read_share: point.gbps for point in points}
    assert gbps[0.5] == pytest.approx(found.copy_gbps, rel=0.03)
    assert gbps[1.0] == pytest.approx(found.read_gbps, rel=0.03)
    assert rate.tflops == pytest.approx(found.matmul_tflops["bfloat16"], rel=0.05)
    assert memory_s < 5
    assert matmul_s < 10


def test_a_large_copy_is_near_the_peak_and_not_above() -> None:
    source = torch.ones(2**28, device="cuda")
    target = torch.empty_like(source)
    moved_bytes = 2 * 4 * 2**28
    peak = memory_gbps(found_peaks(), moved_bytes, 0.5)
    assert peak is not None
    call = make_call(lambda: target.copy_(source))
    call.prepare()()
    copied_us = median_us(ProfilerTimer(find_device("cuda"), "cold"), call, 20)
    assert 0.95 <= moved_bytes / copied_us / 1e3 / peak <= 1.0


def test_float8_where_there_is_any() -> None:
    found = found_peaks("bfloat16", "float8_e4m3fn")
    if torch.cuda.get_device_capability() < (8, 9):
        assert "float8_e4m3fn" not in found.matmul_tflops
        assert any(remark.startswith("float8_e4m3fn matmuls: not measured") for remark in found.remarks)
    else:
        assert found.matmul_tflops["float8_e4m3fn"] > 1.3 * found.matmul_tflops["bfloat16"]


@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"])
def test_attention_is_counted_by_every_backend(backend: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16)
    try:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
            found = counted(torch.nn.functional.scaled_dot_product_attention, (q, q, q))
    except RuntimeError as error:
        pytest.skip(f"{backend} is not there: {error}")
    assert found.flops == 2 * 2 * 2 * 4 * 128 * 128 * 64
    assert found.dtype in ("bfloat16", "float32")
