"""What torch.compile makes of a chain of elementwise functions and a sum, against the same chain run eagerly.

The limits hold on an H200.
"""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given, settings

from example_suite.sizes import BUDGET_S, FEW_EXAMPLES, FULL_SIZE, MAX_BYTES
from pytest_gpubench import GpuBench
from pytest_gpubench.strategies import shapes, tensor

# what torch warns of while it compiles is not this suite's subject
pytestmark = pytest.mark.filterwarnings("ignore")

Chain = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def chain(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (torch.tanh(x * scale) + torch.sigmoid(x)).square().sum(-1)


@pytest.fixture
def compiled_chain(needs_gpu: None) -> Chain:
    torch.compiler.reset()  # or a size that an earlier test compiled for makes this one compile for any size
    return torch.compile(chain)


def inputs(rows: int, columns: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, columns, device=device), torch.rand(columns, device=device)


@pytest.mark.parametrize(("rows", "columns"), [(16, 1024), (7, 781), (1, 1025)])
def test_matches_eager(device: torch.device, compiled_chain: Chain, rows: int, columns: int) -> None:
    x, scale = inputs(rows, columns, device)
    torch.testing.assert_close(compiled_chain(x, scale), chain(x, scale), rtol=1e-4, atol=1e-4)


def test_survives_zeros_and_large_values(device: torch.device, compiled_chain: Chain) -> None:
    x, scale = inputs(16, 1024, device)
    for factor in (0.0, 1e30):
        torch.testing.assert_close(compiled_chain(factor * x, scale), chain(factor * x, scale), rtol=1e-4, atol=1e-4)


@pytest.mark.perf(max_rel_std=0.05)
def test_compiled_chain_is_faster(gpu_bench: GpuBench, compiled_chain: Chain) -> None:
    x, scale = inputs(4096, 4096, gpu_bench.device)
    eager = gpu_bench.measure(chain, (x, scale), label="chain, eager")
    compiled = gpu_bench.measure(compiled_chain, (x, scale), label="chain, compiled")
    assert compiled.launches < eager.launches
    assert compiled.median_us < eager.median_us


# eager goes through memory twelve times, compiled once
@pytest.mark.perf(min_speedup=3)
def test_compiled_chain_beats_eager(gpu_bench: GpuBench, compiled_chain: Chain) -> None:
    x, scale = inputs(4096, 4096, gpu_bench.device)
    gpu_bench.compare({"compiled": compiled_chain}, chain, args=(x, scale), rtol=1e-4, atol=1e-4)


@cache
def chain_for_any_size() -> Chain:
    return torch.compile(chain, dynamic=True)


# a program to each row: two rows of 6,400 take 5 times what eager takes, 256 rows of 5,119 1.8 times
@pytest.mark.skipif(not FULL_SIZE, reason="needs a GPU: what torch.compile makes for one cannot be run here")
@pytest.mark.perf(min_speedup=0.4, given_budget=BUDGET_S)
@given(shape=shapes(min_side=(256, 64), max_side=(None, 8192), max_bytes=MAX_BYTES))
@settings(deadline=None, max_examples=FEW_EXAMPLES)
def test_compiled_chain_is_slow_at_no_shape(gpu_bench: GpuBench, shape: tuple[int, int]) -> None:
    x, scale = tensor(shape), tensor(shape[-1], seed=1)
    gpu_bench.compare({"compiled": chain_for_any_size()}, chain, args=(x, scale), rtol=1e-4, atol=1e-4)
