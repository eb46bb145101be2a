"""Real kernels with each limit that explains, kept and broken by one planted defect; `test_limits` runs these.

A test is named by its limit; one that is to fail ends with the defect.
"""

import pytest
import torch

from pytest_gpubench import GpuBench
from tests.on_gpu.doubling import double
from tests.on_gpu.resource_kernels import softmax

MOST_TAX = 0.1
ELEMENTS = 2**20
LARGE = 2**26
kept: list[torch.Tensor] = []


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def with_an_extra_kernel(x: torch.Tensor) -> torch.Tensor:
    return double(x).add_(0)


def with_an_item(x: torch.Tensor) -> torch.Tensor:
    return double(x) if x[0, 0].item() < 1e9 else x


def with_a_contiguous(x: torch.Tensor) -> torch.Tensor:
    return double(x.t().contiguous()).t()


def with_a_fill(x: torch.Tensor) -> torch.Tensor:
    return double(x, torch.zeros_like(x))


def with_a_temporary(x: torch.Tensor) -> torch.Tensor:
    return double(x.add(0))


def with_a_leak(x: torch.Tensor) -> torch.Tensor:
    kept.append(torch.empty(1024, device=x.device))
    return double(x)


def scatter(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return torch.zeros(16, device=values.device).index_add_(0, places, values)


def gather(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return values[places]


@pytest.fixture
def x(gpu_bench: GpuBench) -> torch.Tensor:
    return torch.randn(1024, 1024, device=gpu_bench.device)


@pytest.fixture
def large(gpu_bench: GpuBench) -> torch.Tensor:
    return torch.randn(LARGE, device=gpu_bench.device)


@pytest.fixture
def matrix(gpu_bench: GpuBench) -> torch.Tensor:
    return torch.randn(4096, 4096, device=gpu_bench.device, dtype=torch.bfloat16)


@pytest.fixture
def scattered(gpu_bench: GpuBench) -> tuple[torch.Tensor, torch.Tensor]:
    device = gpu_bench.device
    return torch.randn(ELEMENTS, device=device), torch.randint(16, (ELEMENTS,), device=device)


# exact limits, by compare: the defect is the candidate's


@pytest.mark.perf(max_kernels=1)
def test_max_kernels(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(double, twice, args=(x,))


@pytest.mark.perf(max_kernels=1)
def test_max_kernels_with_an_extra_kernel(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(with_an_extra_kernel, twice, args=(x,))


@pytest.mark.perf(kernels=("*double*",))
def test_kernels(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(double, twice, args=(x,))


@pytest.mark.perf(kernels=("*double*",))
def test_kernels_with_another(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(lambda x: x + x, twice, args=(x,))


@pytest.mark.perf(forbid=("memcpy", "memset", "sync"))
def test_forbid(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(double, twice, args=(x,))


@pytest.mark.perf(forbid=("memcpy",))
def test_forbid_memcpy_with_a_contiguous(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(with_a_contiguous, twice, args=(x,))


@pytest.mark.perf(forbid=("memset",))
def test_forbid_memset_with_a_fill(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(with_a_fill, twice, args=(x,))


@pytest.mark.perf(forbid=("sync",))
def test_forbid_sync_with_an_item(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(with_an_item, twice, args=(x,))


@pytest.mark.perf(forbid=("alloc",))
def test_forbid_alloc(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.measure(double, args=(x, torch.empty_like(x)))


@pytest.mark.perf(forbid=("alloc",))
def test_forbid_alloc_with_one(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.measure(double, args=(x,))


@pytest.mark.perf(max_memory="4MiB")
def test_max_memory(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(double, twice, args=(x,))


@pytest.mark.perf(max_memory="4MiB")
def test_max_memory_with_a_temporary(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(with_a_temporary, twice, args=(x,))


@pytest.mark.perf(max_memory="1GiB")
def test_max_memory_with_a_leak(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(with_a_leak, twice, args=(x,))


@pytest.mark.perf(deterministic=True)
def test_deterministic(gpu_bench: GpuBench, scattered: tuple[torch.Tensor, torch.Tensor]) -> None:
    gpu_bench.measure(gather, args=scattered)


@pytest.mark.perf(deterministic=True)
def test_deterministic_with_atomics(gpu_bench: GpuBench, scattered: tuple[torch.Tensor, torch.Tensor]) -> None:
    gpu_bench.measure(scatter, args=scattered)


# what a kernel takes


@pytest.mark.perf(max_registers=64, max_local_bytes=0, max_shared="1KiB", min_blocks_per_sm=4, max_tail=0.99)
def test_max_registers(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(double, twice, args=(x,))


@pytest.mark.perf(max_registers={"*double*": 1})
def test_max_registers_of_one(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.compare(double, twice, args=(x,))


@pytest.mark.perf(max_local_bytes=0)
def test_max_local_bytes_with_a_spill(gpu_bench: GpuBench) -> None:
    gpu_bench.measure(softmax(1))


@pytest.mark.perf(max_tail=0.5)
def test_max_tail_with_one_block(gpu_bench: GpuBench) -> None:
    gpu_bench.measure(double, args=(torch.randn(64, device=gpu_bench.device),))


@pytest.mark.perf(max_registers=255)
def test_max_registers_with_an_item(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.measure(with_an_item, args=(x,))


@pytest.mark.perf(max_registers={"*duoble*": 255})
def test_max_registers_misspelled(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.measure(double, args=(x,))


@pytest.mark.perf(forbid_kernels=("*double*",))
def test_forbid_kernels_with_one(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    gpu_bench.measure(double, args=(x,))


# speed of light


@pytest.mark.perf(min_gbps=1000)
def test_min_gbps(gpu_bench: GpuBench, large: torch.Tensor) -> None:
    gpu_bench.measure(double, args=(large,))


@pytest.mark.perf(min_gbps=1000)
def test_min_gbps_with_five_kernels(gpu_bench: GpuBench, large: torch.Tensor) -> None:
    gpu_bench.measure(lambda x: x.mul(1).mul(1).mul(1).mul(1).mul(2), args=(large,))


@pytest.mark.perf(min_tflops=300)
def test_min_tflops(gpu_bench: GpuBench, matrix: torch.Tensor) -> None:
    gpu_bench.measure(torch.matmul, args=(matrix, matrix))


@pytest.mark.perf(min_tflops=300)
def test_min_tflops_in_fp32(gpu_bench: GpuBench, matrix: torch.Tensor) -> None:
    whole = matrix.float()
    gpu_bench.measure(torch.matmul, args=(whole, whole))


@pytest.mark.perf(min_peak_fraction=0.8)
def test_min_peak_fraction(gpu_bench: GpuBench, large: torch.Tensor) -> None:
    gpu_bench.measure(double, args=(large,))


@pytest.mark.perf(min_peak_fraction=0.8)
def test_min_peak_fraction_with_two_kernels(gpu_bench: GpuBench, large: torch.Tensor) -> None:
    gpu_bench.measure(lambda x: x.mul(1).mul(2), args=(large,))


@pytest.mark.perf(min_gbps=1000)
def test_min_gbps_beyond_physics(gpu_bench: GpuBench, large: torch.Tensor) -> None:
    gpu_bench.measure(double, args=(large,), bytes=100 * 8 * LARGE)


# what launching costs


def test_timers(gpu_bench: GpuBench, x: torch.Tensor) -> None:
    calls = {"many": lambda x: x.mul(1).mul(1).mul(2), "double": double}
    found = gpu_bench.compare(calls, twice, args=(x,), timers=("profiler", "graph"))
    many, one = found.candidates["many"].overhead, found.candidates["double"].overhead
    assert many is not None
    assert one is not None
    assert (many.host_us or 0) > 5
    assert (many.graph_speedup or 0) > 1
    assert many.gap_us > one.gap_us
