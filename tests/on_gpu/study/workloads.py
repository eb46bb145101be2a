"""The calls that the studies measure, each of which allocates its output."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from tests.on_gpu.doubling import double
from tests.on_gpu.margins_planted import values

Workload = Callable[[], object]
Kind = tuple[Callable[..., object], tuple[torch.Tensor, ...], dict[str, Any]]
"""A function, its arguments and keywords of compare."""
Make = Callable[[torch.device], Kind]
CUDA = torch.device("cuda")
FP32, BF16 = torch.float32, torch.bfloat16


def of(function: Callable[..., object], *shapes: tuple[int, ...], dtype: torch.dtype = FP32, **more: Any) -> Make:
    """Return what makes a call with tensors of these shapes; on a CPU their sides are a sixteenth."""

    def make(device: torch.device) -> Kind:
        scale = 1 if device.type == "cuda" else 16
        sizes = [tuple(max(each // scale, 1) for each in shape) for shape in shapes]
        tensors = [values(device, *shape, dtype=dtype, seed=seed) for seed, shape in enumerate(sizes)]
        return function, tuple(each.requires_grad_("backward" in more) for each in tensors), dict(more)

    return make


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rms_norm_chain(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rms_norm(x) * weight


def rms_norm_fused(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def gelu_chain(x: torch.Tensor) -> torch.Tensor:
    """Write GELU out: nine kernels, each of which finds the last one's dirty lines in the cache."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def row_statistics(x: torch.Tensor) -> object:
    """Reduce one tensor four times: the reductions leave next to nothing in the cache for each other."""
    return x.sum(-1), x.amax(-1), x.norm(dim=-1), x.argmin(-1)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def row_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(-1)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return double(x) if x.is_cuda else x + x


ITSELF: dict[str, Make] = {
    "add 2 x 1 MiB": of(torch.add, (2**18,), (2**18,)),
    "multiply 1024x1024 by a column": of(torch.mul, (1024, 1024), (1024, 1)),
    "matmul 1024^3 bf16": of(torch.matmul, (1024, 1024), (1024, 1024), dtype=BF16),
    "double 4 MiB, Triton": of(doubled, (2**20,)),
    "add 2 x 64 MiB": of(torch.add, (2**24,), (2**24,)),
    "rms_norm 4096x4096": of(rms_norm_fused, (4096, 4096), (4096,)),
    "softmax 4096x4096": of(softmax, (4096, 4096)),
    "row sum 8192x8192": of(row_sum, (8192, 8192)),
    "layer_norm backward 4096x4096": of(lambda x: F.layer_norm(x, x.shape[1:]), (4096, 4096), backward="backward"),
    "convolution 32x64x56x56 bf16": of(
        lambda x, w: F.conv2d(x, w, padding=1), (32, 64, 56, 56), (64, 64, 3, 3), dtype=BF16
    ),
    "gelu written out 4096x2048": of(gelu_chain, (4096, 2048)),
    "matmul 4096^3 bf16": of(torch.matmul, (4096, 4096), (4096, 4096), dtype=BF16),
}
"""Calls of 2 to 230 us on an H200."""
SQUARE = (8192, 8192)


def workload(make: Make) -> Workload:
    """Return a call on the GPU, whose tensors are made once."""
    function, args, _ = make(CUDA)
    return partial(function, *args)


def layer_norm_backward() -> Workload:
    _, (x, weight, bias, upstream), _ = of(print, (16384, 4096), (4096,), (4096,), (16384, 4096), backward=True)(CUDA)
    out = F.layer_norm(x, weight.shape, weight, bias)
    return lambda: torch.autograd.grad(out, (x, weight, bias), upstream.detach(), retain_graph=True)


def compiled_chain() -> Workload:
    def chain(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.silu(rms_norm_chain(x, weight))

    return workload(of(torch.compile(chain), SQUARE, SQUARE[:1]))


WORKLOADS: dict[str, Callable[[], Workload]] = {
    **{
        name: partial(workload, make)
        for name, make in {
            "add 3 x 1 MiB": ITSELF["add 2 x 1 MiB"],
            "add 3 x 64 MiB": ITSELF["add 2 x 64 MiB"],
            "softmax 4096x4096 fp32": ITSELF["softmax 4096x4096"],
            "row sum 8192x8192 fp32": ITSELF["row sum 8192x8192"],
            "matmul 4096^3 bf16": ITSELF["matmul 4096^3 bf16"],
            "row statistics eager 8192x8192 fp32": of(row_statistics, SQUARE),
            "gelu eager 8192x4096 fp32": of(gelu_chain, (8192, 4096)),
            "x * column 8192x8192 fp32": of(torch.mul, SQUARE, (8192, 1)),
            "x * row 8192x8192 fp32": of(torch.mul, SQUARE, (1, 8192)),
            "rms_norm eager 8192x8192 fp32": of(rms_norm_chain, SQUARE, SQUARE[:1]),
            "rms_norm fused 8192x8192 fp32": of(rms_norm_fused, SQUARE, SQUARE[:1]),
            "matmul 8192^3 bf16": of(torch.matmul, SQUARE, SQUARE, dtype=BF16),
        }.items()
    },
    "layer_norm backward 16384x4096 fp32": layer_norm_backward,
    "compiled rms_norm + silu 8192x8192 fp32": compiled_chain,
}


def planted() -> dict[str, dict[str, Workload]]:
    """Return calls from 2 us to 2 ms: each the same, with 2 % more rows, and with 10 % more."""
    x, y = values(CUDA, 5632, 4096), values(CUDA, 90112, 4096)
    a, b = values(CUDA, 4506, 4096, dtype=BF16), values(CUDA, 4096, 4096, dtype=BF16)
    small, large = values(CUDA, 2**18 * 11 // 10 + 1), values(CUDA, 2**24 * 11 // 10 + 1)
    small_out, large_out = torch.empty_like(small), torch.empty_like(large)

    def more(rows: int, call: Callable[[int], object]) -> dict[str, Workload]:
        numbers = {"the same": rows, "2 % more rows": round(1.02 * rows), "10 % more rows": round(1.1 * rows)}
        return {arms: partial(call, number) for arms, number in numbers.items()}

    return {
        "add 2 x 1 MiB": more(2**18, lambda n: torch.add(small[:n], small[:n], out=small_out[:n])),
        "add 2 x 64 MiB": more(2**24, lambda n: torch.add(large[:n], large[:n], out=large_out[:n])),
        "softmax 5120x4096 fp32": more(5120, lambda n: softmax(x[:n])),
        "matmul 4096^3 bf16": more(4096, lambda n: torch.mm(a[:n], b)),
        "rms_norm eager 16384x4096 fp32": more(16384, lambda n: rms_norm(y[:n])),
        "rms_norm eager 81920x4096 fp32": more(81920, lambda n: rms_norm(y[:n])),
    }
