"""Limits given by the mark on real kernels, kept and broken by one planted defect each, which is told in words."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pytest_gpubench import GpuBench, InvalidResult, LimitBroken
from pytest_gpubench.results.model import Outcome
from tests.on_gpu.doubling import double
from tests.on_gpu.kernels import softmax
from tests.results.measured import present

LARGE = 2**26
Measured = Callable[[GpuBench], object]
kept: list[torch.Tensor] = []


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    kept.clear()


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def with_an_item(x: torch.Tensor) -> torch.Tensor:
    return double(x) if x[0, 0].item() < 1e9 else x


def with_a_tensor_of_numbers(x: torch.Tensor) -> torch.Tensor:
    return double(x + torch.tensor([1.0], device=x.device))


def with_a_leak(x: torch.Tensor) -> torch.Tensor:
    kept.append(torch.empty(1024, device=x.device))
    return double(x)


def scatter(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return torch.zeros(16, device=values.device).index_add_(0, places, values)


def gather(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return values[places]


def square() -> torch.Tensor:
    return torch.randn(1024, 1024, device="cuda")


def large() -> torch.Tensor:
    return torch.randn(LARGE, device="cuda")


def matrix() -> torch.Tensor:
    return torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)


def scattered() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2**20, device="cuda"), torch.randint(16, (2**20,), device="cuda")


def compared(candidate: Callable[..., object]) -> Measured:
    """Return a comparison of a candidate, whose defect it is that breaks a limit."""
    return lambda gpu_bench: gpu_bench.compare(candidate, twice, args=(square(),))


def measured(function: Callable[..., object], make: Callable[[], Any], **more: Any) -> Measured:
    def measure(gpu_bench: GpuBench) -> object:
        args = make()
        return gpu_bench.measure(function, args=args if isinstance(args, tuple) else (args,), **more)

    return measure


def case(limits: dict[str, Any], *row: object) -> Any:
    return pytest.param(*row, marks=pytest.mark.perf(**limits), id=" ".join(limits) or "no limit")


RESOURCES = {"max_registers": 64, "max_local_bytes": 0, "max_shared": "1KiB", "min_blocks_per_sm": 4, "max_tail": 0.99}


@pytest.mark.parametrize(
    "measure",
    [
        case({"max_kernels": 1}, compared(double)),
        case({"kernels": ("*double*",)}, compared(double)),
        case({"forbid": ("memcpy", "memset", "sync")}, compared(double)),
        case({"forbid": "alloc"}, measured(double, lambda: (square(), square()))),
        case({"max_memory": "4MiB"}, compared(double)),
        case({"deterministic": True}, measured(gather, scattered)),
        case(RESOURCES, compared(double)),
        case({"min_gbps": 50}, measured(double, large)),
        case({"min_tflops": 10}, measured(lambda x: x @ x, matrix)),
        case({"min_peak_fraction": 0.8}, measured(double, large)),
    ],
)
def test_without_a_defect_it_passes(gpu_bench: GpuBench, measure: Measured) -> None:
    measure(gpu_bench)
    test = present(gpu_bench._current())
    assert {verdict.outcome for item in test.measurements for verdict in item.verdicts} == {Outcome.PASS}


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        case({"max_kernels": 1}, compared(lambda x: double(x).add_(0)), "launches 2 kernels, wanted at most 1"),
        case({"kernels": "*double*"}, compared(lambda x: x + x), "no kernel named *double*, only 1 x "),
        case(
            {"forbid": "memcpy"},
            compared(lambda x: double(x.t().contiguous()).t()),
            "copies memory 1 time, wanted none: 1 x elementwise_kernel<direct_",
        ),
        case({"forbid": "memcpy"}, compared(lambda x: double(x.clone())), "1 x Memcpy DtoD"),
        case({"forbid": "memcpy"}, compared(with_an_item), "1 x Memcpy DtoH"),
        case({"forbid": "sync"}, measured(with_a_tensor_of_numbers, square), "double(x + torch.tensor("),
        case({"forbid": "memset"}, compared(lambda x: double(x, torch.zeros_like(x))), "fills memory 1 time"),
        case({"forbid": "sync"}, compared(with_an_item), "x[0, 0].item()"),
        case({"forbid": "alloc"}, measured(double, square), "1 allocation of torch's, 4 MiB together"),
        case({"max_memory": "4MiB"}, compared(lambda x: double(x.add(0))), "takes 8 MiB of GPU memory"),
        case({"max_memory": "1GiB"}, compared(with_a_leak), "keeps 4 KiB of GPU memory"),
        case({"deterministic": True}, measured(scatter, scattered), "out differs from call to call"),
        case({"max_registers": {"*double*": 1}}, compared(double), "a thread, wanted at most 1"),
        case({"max_local_bytes": 0}, lambda gpu_bench: gpu_bench.measure(softmax(1)), "softmax_kernel takes "),
        case(
            {"max_tail": 0.5},
            measured(double, lambda: torch.randn(64, device="cuda")),
            "of the GPU idle in its only wave (1 of ",
        ),
        case({"forbid_kernels": "*double*"}, measured(double, square), "wanted no kernel named *double*"),
        case({"min_peak_fraction": 0.8}, measured(lambda x: x.mul(1).mul(2), large), "%"),
    ],
)
def test_a_planted_defect_fails_its_test(gpu_bench: GpuBench, measure: Measured, words: str) -> None:
    with pytest.raises(LimitBroken) as raised:
        measure(gpu_bench)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        case(
            {"max_registers": 255},
            measured(with_an_item, square),
            "it cannot be captured as a CUDA graph: it waits for the GPU",
        ),
        case(
            {"max_registers": {"*duoble*": 255}},
            measured(double, square),
            "it launches no kernel named *duoble*, only 1 x ",
        ),
        case({}, measured(double, large, bytes=800 * LARGE), "faster than memory allows"),
    ],
)
def test_what_cannot_be_judged_is_invalid(gpu_bench: GpuBench, measure: Measured, words: str) -> None:
    with pytest.raises(InvalidResult) as raised:
        measure(gpu_bench)
    assert words in str(raised.value)
