"""The functions that the studies measure: each makes its tensors once and returns what is called."""

from collections.abc import Callable
from functools import partial

import torch

Workload = Callable[[], object]


def normal(*shape: int, dtype: torch.dtype = torch.float32, requires_grad: bool = False) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(0)
    return torch.randn(*shape, device="cuda", dtype=dtype, generator=generator).requires_grad_(requires_grad)


def add(megabytes: int) -> Workload:
    count = megabytes * 2**18
    first, second = normal(count), normal(count)
    out = torch.empty_like(first)
    return lambda: torch.add(first, second, out=out)


def softmax() -> Workload:
    x = normal(4096, 4096)
    return lambda: torch.softmax(x, -1)


def row_sum() -> Workload:
    x = normal(8192, 8192)
    return lambda: x.sum(-1)


def matmul(size: int) -> Workload:
    a, b = normal(size, size, dtype=torch.bfloat16), normal(size, size, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def rms_norm_chain() -> Workload:
    x, weight = normal(8192, 8192), normal(8192)
    return lambda: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def gelu_chain() -> Workload:
    """Return GELU written out: nine kernels, each of which finds the last one's dirty lines in the cache."""
    x = normal(8192, 4096)
    return lambda: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def row_statistics() -> Workload:
    """Return four reductions of one tensor, which leave next to nothing in the cache for each other."""
    x = normal(8192, 8192)
    return lambda: (x.sum(-1), x.amax(-1), x.norm(dim=-1), x.argmin(-1))


def rms_norm_fused() -> Workload:
    x, weight = normal(8192, 8192), normal(8192)
    return lambda: torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)


def multiply(*shape: int) -> Workload:
    """Return a multiplication by a column or a row, whose kernel has so many short blocks that tracing slows it."""
    x, factor = normal(8192, 8192), normal(*shape)
    out = torch.empty_like(x)
    return lambda: torch.mul(x, factor, out=out)


def layer_norm_backward() -> Workload:
    x, weight, bias = normal(16384, 4096, requires_grad=True), normal(4096, requires_grad=True), normal(4096)
    bias.requires_grad_()
    out = torch.nn.functional.layer_norm(x, (4096,), weight, bias)
    upstream = normal(16384, 4096)
    return lambda: torch.autograd.grad(out, (x, weight, bias), upstream, retain_graph=True)


def compiled_chain() -> Workload:
    x, weight = normal(8192, 8192), normal(8192)

    def chain(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight)

    compiled = torch.compile(chain)
    return lambda: compiled(x, weight)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "add 3 x 1 MiB": lambda: add(1),
    "add 3 x 64 MiB": lambda: add(64),
    "softmax 4096x4096 fp32": softmax,
    "row sum 8192x8192 fp32": row_sum,
    "matmul 4096^3 bf16": lambda: matmul(4096),
    "row statistics eager 8192x8192 fp32": row_statistics,
    "gelu eager 8192x4096 fp32": gelu_chain,
    "x * column 8192x8192 fp32": lambda: multiply(8192, 1),
    "x * row 8192x8192 fp32": lambda: multiply(1, 8192),
    "rms_norm eager 8192x8192 fp32": rms_norm_chain,
    "rms_norm fused 8192x8192 fp32": rms_norm_fused,
    "layer_norm backward 16384x4096 fp32": layer_norm_backward,
    "compiled rms_norm + silu 8192x8192 fp32": compiled_chain,
    "matmul 8192^3 bf16": lambda: matmul(8192),
}


def planted() -> dict[str, dict[str, Workload]]:
    """Return calls from 2 us to 2 ms: each the same, with 2 % more rows, and with 10 % more."""
    x, y = normal(5632, 4096), normal(90112, 4096)
    a, b = normal(4506, 4096, dtype=torch.bfloat16), normal(4096, 4096, dtype=torch.bfloat16)
    small, large = normal(2**18 * 11 // 10 + 1), normal(2**24 * 11 // 10 + 1)
    small_out, large_out = torch.empty_like(small), torch.empty_like(large)

    def more(rows: int, call: Callable[[int], object]) -> dict[str, Workload]:
        numbers = {"the same": rows, "2 % more rows": round(1.02 * rows), "10 % more rows": round(1.1 * rows)}
        return {arms: partial(call, number) for arms, number in numbers.items()}

    return {
        "add 2 x 1 MiB": more(2**18, lambda n: torch.add(small[:n], small[:n], out=small_out[:n])),
        "add 2 x 64 MiB": more(2**24, lambda n: torch.add(large[:n], large[:n], out=large_out[:n])),
        "softmax 5120x4096 fp32": more(5120, lambda n: torch.softmax(x[:n], -1)),
        "matmul 4096^3 bf16": more(4096, lambda n: torch.mm(a[:n], b)),
        "rms_norm eager 16384x4096 fp32": more(16384, lambda n: rms_norm(y[:n])),
        "rms_norm eager 81920x4096 fp32": more(81920, lambda n: rms_norm(y[:n])),
    }


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
