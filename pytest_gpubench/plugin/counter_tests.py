"""Tests that `pytest-gpubench doctor --counters` runs in fresh processes: a dozen calls of several kinds."""

from collections.abc import Callable, Mapping

import pytest
import torch

from pytest_gpubench.fixture import GpuBench

SIZE = 8192
CALLS: Mapping[str, Callable[[torch.Tensor], object]] = {
    "add": lambda x: torch.add(x, x),
    "small add": lambda x: torch.add(x[:16], x[:16]),
    "softmax": lambda x: torch.softmax(x, -1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "row sum": lambda x: x.sum(-1),
    "column sum": lambda x: x.sum(0),
    "cumsum": lambda x: x.cumsum(-1),
    "transpose": lambda x: x.t().contiguous(),
    "cast": lambda x: x.bfloat16(),
    "matmul": lambda x: x[:2048].bfloat16() @ x[:2048].bfloat16().T,
    "attention": lambda x: attention(x[:1024].bfloat16().view(4, 16, 2048, 64)),
    "top 32": lambda x: torch.topk(x[:2048], 32),
}


def attention(heads: torch.Tensor) -> torch.Tensor:
    """Return the attention of heads to themselves."""
    return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)


@pytest.mark.parametrize("name", CALLS)
def test_counted(gpu_bench: GpuBench, name: str) -> None:
    """Measure a call, of which counters are taken."""
    numbers = torch.rand(SIZE, SIZE, device=gpu_bench.device)
    gpu_bench.measure(CALLS[name], (numbers,), label=name)
