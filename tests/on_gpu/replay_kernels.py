"""Calls to be saved and replayed, by name: makers of their inputs, functions, and backward."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from pytest_gpubench.bench.arguments import kept_arguments
from pytest_gpubench.timing.base import Call
from pytest_gpubench.timing.calls import make_call

Make = Callable[[int], list[torch.Tensor]]


@triton.jit  # type: ignore[untyped-decorator]
def mix_kernel(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mixed = tl.load(x + at, mask=at < n) * 2 + tl.sin(tl.load(y + at, mask=at < n))
    tl.store(out + at, mixed, mask=at < n)


def mix(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    mix_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def halve_kernel(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 0.5 + 1.0, mask=at < n)


def halve(x: torch.Tensor) -> torch.Tensor:
    """Change the input."""
    halve_kernel[(triton.cdiv(x.numel(), 1024),)](x, x.numel(), BLOCK=1024)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def zero_kernel(out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))


@triton.jit  # type: ignore[untyped-decorator]
def sums_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at % 64, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


def sums(x: torch.Tensor) -> torch.Tensor:
    """Add in any order."""
    out = torch.empty(64, device=x.device)
    zero_kernel[(1,)](out, BLOCK=64)
    sums_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def led_kernel(table, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def led(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Double what the address in a table leads to."""
    out = torch.empty_like(x)
    led_kernel[(triton.cdiv(x.numel(), 1024),)](table, out, x.numel(), BLOCK=1024)
    return out


@triton.jit  # type: ignore[untyped-decorator]
def gather_kernel(x, rows, out, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    tl.store(out + row * WIDTH + column, tl.load(x + tl.load(rows + row) * WIDTH + column))


def gather(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    out = torch.empty(rows.shape[0], x.shape[1], device=x.device)
    gather_kernel[(rows.shape[0],)](x, rows, out, WIDTH=x.shape[1])
    return out


def on_two_streams(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    current, other = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    other.wait_stream(current)
    with torch.cuda.stream(other):
        one = mix(y, y)
    two = mix(x, x)
    current.wait_stream(other)
    return mix(one, two)


class Mixed(torch.autograd.Function):
    """With a gradient that is no true one."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y)
        return mix(x, y)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = ctx.saved_tensors
        return mix(gradient, x), mix(gradient, y)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def normal(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, grad: bool = False) -> Make:
    """Return what makes normal inputs of these shapes from a seed."""

    def make(seed: int) -> list[torch.Tensor]:
        chance = torch.Generator("cuda").manual_seed(seed)
        found = (torch.randn(*each, generator=chance, device="cuda") for each in shapes)
        return [each.to(dtype).requires_grad_(grad) for each in found]

    return make


def with_indices(*shapes: tuple[int, ...], number: int, below: int, grad: bool = False) -> Make:
    """Return what makes normal inputs, and so many indices below a number."""

    def make(seed: int) -> list[torch.Tensor]:
        chance = torch.Generator("cuda").manual_seed(seed)
        return [*normal(*shapes, grad=grad)(seed), torch.randint(0, below, (number,), generator=chance, device="cuda")]

    return make


def warm_call(make: Make, function: Callable[..., object], backward: Any = "forward", seed: int = 1) -> Call:
    """Return a call that was made three times."""
    call = make_call(function, kept_arguments([function], make(seed), None, None), backward)
    for _ in range(3):
        call.prepare()()
    return call


CALLS: dict[str, tuple[Make, Callable[..., object], Any]] = {
    "mix": (normal((1 << 20,), (1 << 20,)), mix, "forward"),
    "views": (normal((1 << 20,), (1 << 20,)), lambda x, y: mix(x[512 : 1 << 19], y[: (1 << 19) - 512]), "forward"),
    "halve": (normal((1 << 20,)), halve, "forward"),
    "sums": (normal((1 << 20,)), sums, "forward"),
    "gather": (with_indices((1000, 256), number=5000, below=1000), gather, "forward"),
    "two streams": (normal((1 << 20,), (1 << 20,)), on_two_streams, "forward"),
    "forward and backward": (normal((1 << 20,), (1 << 20,), grad=True), Mixed.apply, "both"),
    "compiled": (normal((4096, 1024), (1024,)), torch.compile(rms_norm), "forward"),
    "compiled, both": (normal((4096, 1024), (1024,), grad=True), torch.compile(rms_norm), "both"),
    "fill": (normal((1 << 20,)), lambda x: mix(x, torch.zeros_like(x)), "forward"),
    "eager, both": (normal((4096, 1024), (1024,), grad=True), rms_norm, "both"),
    "product": (normal((1024, 1024), (1024, 1024)), lambda x, y: (x.bfloat16() @ y.bfloat16()).float(), "forward"),
    "largest": (normal((64, 20000)), lambda x: torch.topk(x, 50).values, "forward"),
}
"""Calls that can be replayed, the last with kernels of torch, cuBLAS and CUB."""

BF16 = torch.bfloat16
HEADS = (4, 16, 1024, 64)
LIBRARY: dict[str, tuple[Make, Callable[..., object], Any]] = {
    "multiply": (normal((1 << 24,)), lambda x: x * 2, "forward"),
    "row sums": (normal((8192, 4096)), lambda x: x.sum(-1), "forward"),
    "sum": (normal((8192, 4096)), torch.sum, "forward"),
    "softmax": (normal((8192, 2048)), lambda x: torch.softmax(x, -1), "forward"),
    "layer norm": (normal((8192, 2048)), lambda x: F.layer_norm(x, x.shape[1:]), "forward"),
    "layer norm, both": (normal((4096, 2048), grad=True), lambda x: F.layer_norm(x, x.shape[1:]), "both"),
    "product 1024": (normal((1024, 1024), (1024, 1024), dtype=BF16), torch.matmul, "forward"),
    "product 4096": (normal((4096, 4096), (4096, 4096), dtype=BF16), torch.matmul, "forward"),
    "product float32": (normal((1024, 1024), (1024, 1024)), torch.matmul, "forward"),
    "product of few": (normal((64, 16384), (16384, 64), dtype=BF16), torch.matmul, "forward"),
    "products": (normal((16, 512, 512), (16, 512, 512), dtype=BF16), torch.bmm, "forward"),
    "linear": (normal((2048, 1024), (2048, 1024), (2048,), dtype=BF16), F.linear, "forward"),
    "linear, both": (normal((2048, 1024), (2048, 1024), dtype=BF16, grad=True), F.linear, "both"),
    "convolution": (normal((16, 64, 56, 56), (64, 64, 3, 3), dtype=BF16), F.conv2d, "forward"),
    "convolution float32": (normal((8, 32, 56, 56), (32, 32, 3, 3)), F.conv2d, "forward"),
    "convolution, both": (normal((16, 64, 28, 28), (64, 64, 3, 3), dtype=BF16, grad=True), F.conv2d, "both"),
    "attention": (normal(HEADS, HEADS, HEADS, dtype=BF16), F.scaled_dot_product_attention, "forward"),
    "attention, both": (normal(HEADS, HEADS, HEADS, dtype=BF16, grad=True), F.scaled_dot_product_attention, "both"),
    "sort": (normal((1 << 20,)), torch.sort, "forward"),
    "running sums": (normal((1024, 16384)), lambda x: torch.cumsum(x, -1), "forward"),
    "transpose": (normal((4096, 4096)), lambda x: x.t().contiguous(), "forward"),
    "gelu": (normal((8192, 4096), dtype=BF16), F.gelu, "forward"),
    "batch norm": (normal((32, 64, 56, 56)), lambda x: F.batch_norm(x, None, None, training=True), "forward"),
    "embedding": (with_indices((20000, 512), number=16384, below=20000), lambda w, i: F.embedding(i, w), "forward"),
    "cross entropy": (with_indices((4096, 8192), number=4096, below=8192), F.cross_entropy, "forward"),
    "cross entropy, both": (with_indices((4096, 4096), number=4096, below=4096, grad=True), F.cross_entropy, "both"),
    "dropout": (normal((4096, 4096)), lambda x: F.dropout(x, 0.1), "forward"),
    "nonzero": (normal((1 << 20,)), torch.nonzero, "forward"),
    "fft": (normal((1024, 4096)), torch.fft.rfft, "forward"),
}
"""Calls of torch; three of the last cannot be replayed."""


@functools.cache
def weight(size: int) -> torch.Tensor:
    return torch.randn(size, device="cuda")


def with_table(seed: int) -> list[torch.Tensor]:
    """Return numbers, and a table of their address."""
    (x,) = normal((1 << 20,))(seed)
    return [x, torch.tensor([x.data_ptr()], device=x.device)]


OTHERS: dict[str, tuple[Make, Callable[..., object], str]] = {
    "a wait": (normal((1 << 20,)), lambda x: mix(x, x) if float(x[0]) < 1e9 else x, "it waits for the GPU"),
    "cached weights": (
        normal((1 << 20,)),
        lambda x: mix(x, weight(x.numel())),
        "computes something else: .* MiB that are no argument of it",
    ),
    "a table of addresses": (with_table, led, r"args\[1\] holds addresses of memory"),
    "a variable": (normal((1024, 1024)), torch.fft.rfft, "a variable of a kernel's module, was written, or holds"),
}
"""Calls that cannot, each with the reason."""
