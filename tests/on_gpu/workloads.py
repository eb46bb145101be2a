"""The functions that the studies measure: each makes its tensors once and returns what is called."""

from collections.abc import Callable

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


def rms_norm_steps() -> list[Workload]:
    """Return the six kernels of `rms_norm_chain`, each on inputs that are there already."""
    x, weight = normal(8192, 8192), normal(8192)
    squares = x.pow(2)
    means = squares.mean(-1, keepdim=True)
    shifted = means + 1e-6
    scales = torch.rsqrt(shifted)
    scaled = x * scales
    return [
        lambda: x.pow(2),
        lambda: squares.mean(-1, keepdim=True),
        lambda: means + 1e-6,
        lambda: torch.rsqrt(shifted),
        lambda: x * scales,
        lambda: scaled * weight,
    ]


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
    "rms_norm eager 8192x8192 fp32": rms_norm_chain,
    "layer_norm backward 16384x4096 fp32": layer_norm_backward,
    "compiled rms_norm + silu 8192x8192 fp32": compiled_chain,
    "matmul 8192^3 bf16": lambda: matmul(8192),
}
