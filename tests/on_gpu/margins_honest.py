"""Fifty calls of libraries, of shapes that fill no tile: none reads or writes beyond a tensor so that it shows."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from tests.on_gpu.margins_planted import values

Honest = Callable[[torch.device], tuple[Callable[..., object], tuple[object, ...]]]
"""Returns a function and its arguments."""
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


def of(function: Callable[..., object], *shapes: tuple[int, ...], dtype: torch.dtype = FP32) -> Honest:
    """Call a function with tensors of these shapes."""
    return lambda device: (function, tuple(values(device, *each, dtype=dtype, seed=i) for i, each in enumerate(shapes)))


def indexed(
    function: Callable[..., object],
    shape: tuple[int, ...],
    count: int | tuple[int, ...],
    high: int,
    *more: tuple[int, ...],
) -> Honest:
    """Call a function with a tensor, indices below `high`, and further tensors."""

    def make(device: torch.device) -> Any:
        generator = torch.Generator(device).manual_seed(5)
        size = (count,) if isinstance(count, int) else count
        at = torch.randint(high, size, device=device, generator=generator)
        return function, (values(device, *shape), at, *(values(device, *each, seed=3) for each in more))

    return make


def attention(
    backend: str, batch: int, heads: int, length: int, size: int, dtype: torch.dtype = BF16, causal: bool = False
) -> Honest:
    """Attention by one backend of torch."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, backend)):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return of(run, *[(batch, heads, length, size)] * 3, dtype=dtype)


def convolution(function: Callable[..., object], x: tuple[int, ...], w: tuple[int, ...], **chosen: Any) -> Honest:
    dtype = chosen.pop("dtype", FP32)
    return of(functools.partial(function, **chosen), x, w, dtype=dtype)


def compiled(function: Callable[..., object], *shapes: tuple[int, ...]) -> Honest:
    """Call what torch.compile makes of a function."""
    return lambda device: (torch.compile(function), of(function, *shapes)(device)[1])


def scatter_add(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return torch.zeros(501, x.shape[1], device=x.device).index_add_(0, at, x)


def scattered(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).scatter_(1, at.argsort(1), x)


def normalised(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.silu(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w)


def summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y + 1).sum(-1)


HONEST: Mapping[str, Honest] = {
    # matrix products
    **{
        f"matmul {m}x{k}x{n} {str(dtype).removeprefix('torch.')}": of(torch.matmul, (m, k), (k, n), dtype=dtype)
        for m, k, n, dtype in (
            (1023, 777, 515, FP32),
            (1023, 777, 515, BF16),
            (1, 4097, 333, BF16),
            (4095, 64, 4095, BF16),
        )
    },
    "linear bf16 333x1001": of(F.linear, (333, 1001), (517, 1001), (517,), dtype=BF16),
    "bmm bf16 33x127x63": of(torch.bmm, (33, 127, 63), (33, 63, 255), dtype=BF16),
    "addmm 501x333": of(torch.addmm, (333,), (501, 257), (257, 333)),
    "dot 100003": of(torch.dot, (100_003,), (100_003,)),
    "einsum bhqd,bhkd": of(lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b), (2, 3, 65, 33), (2, 3, 67, 33)),
    "matmul of a slice": of(lambda a, b: a[1:-1, 3:100] @ b, (333, 129), (97, 65)),
    # convolutions
    "conv1d depthwise": convolution(F.conv1d, (3, 33, 1003), (33, 1, 4), padding=3, groups=33),
    "conv2d stride 2 bf16": convolution(F.conv2d, (5, 31, 63, 61), (33, 31, 3, 3), stride=2, dtype=BF16),
    "conv2d 7x7 fp16": convolution(F.conv2d, (2, 3, 223, 221), (64, 3, 7, 7), stride=2, padding=3, dtype=FP16),
    "conv2d depthwise": convolution(F.conv2d, (3, 31, 57, 55), (31, 1, 3, 3), padding=1, groups=31),
    "conv_transpose2d": convolution(F.conv_transpose2d, (2, 17, 15, 13), (17, 9, 3, 3), stride=2),
    # transforms
    **{f"rfft {n}": of(torch.fft.rfft, (33, n)) for n in (1000, 1021)},
    "fft2 65x63": of(torch.fft.fft2, (3, 65, 63)),
    # orders
    **{f"sort {n}": of(lambda x: torch.sort(x, -1).values, (7, n)) for n in (33, 100_003)},
    "sort int8 10001": of(lambda x: torch.sort(x).values, (10_001,), dtype=torch.int8),
    "topk bf16 8 of 257": of(lambda x: x.topk(8).values, (333, 257), dtype=BF16),
    "unique int64": of(lambda x: torch.unique(x), (10_001,), dtype=torch.int64),
    # scans and reductions
    "cumsum int32 33x1001": of(lambda x: x.cumsum(-1), (33, 1001), dtype=torch.int32),
    "sum 1000003": of(torch.sum, (1_000_003,)),
    "sum of a bool": of(torch.sum, (70_001,), dtype=torch.bool),
    "argmax 100003": of(torch.argmax, (100_003,)),
    "histc 100003": of(lambda x: torch.histc(x, 100, -4, 4), (100_003,)),
    # attention
    **{
        f"attention {backend.split('_')[0].lower()} {length}x{size}": attention(backend, 2, 3, length, size)
        for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH", "CUDNN_ATTENTION")
        for length, size in ((333, 64), (1001, 128))
    },
    "attention flash causal 257x40": attention("FLASH_ATTENTION", 1, 5, 257, 40, FP16, causal=True),
    # indices
    "gather 33x1001": indexed(lambda x, at: x.gather(1, at), (33, 1001), (33, 333), 1001),
    "scatter 33x333": indexed(scattered, (33, 333), (33, 333), 10_000),
    "embedding_bag 1000": indexed(lambda x, at: F.embedding_bag(at.view(-1, 10), x, mode="sum"), (501, 65), 1000, 501),
    "index_add 1001": indexed(scatter_add, (1001, 33), 1001, 501),
    "masked_select": of(lambda x: x[x > 0], (33_333,)),
    "searchsorted": of(lambda x, y: torch.searchsorted(x.sort().values, y), (1001,), (33_333,)),
    "nll_loss": indexed(lambda x, at: F.cross_entropy(x, at, reduction="none"), (333, 1001), 333, 1001),
    # images
    "interpolate bilinear": of(lambda x: F.interpolate(x, size=(77, 91), mode="bilinear"), (3, 5, 33, 35)),
    "max_pool2d": of(lambda x: F.max_pool2d(x, 3, 2, 1), (3, 17, 65, 63)),
    "grid_sample": of(lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), (2, 3, 33, 35), (2, 17, 19, 2)),
    "pad reflect": of(lambda x: F.pad(x, (3, 5, 2, 1), mode="reflect"), (2, 5, 33, 31)),
    # norms
    "layer_norm bf16 65x4099": of(lambda x: F.layer_norm(x, (4099,)), (65, 4099), dtype=BF16),
    "rms_norm 333x777": of(lambda x, w: F.rms_norm(x, (777,), w), (333, 777), (777,)),
    "batch_norm": of(lambda x: F.batch_norm(x, None, None, training=True), (33, 17, 13, 11)),
    "log_softmax 5x128257": of(lambda x: x.log_softmax(-1), (5, 128_257)),
    # views
    "cat of three": of(lambda *x: torch.cat(x, 1), (333, 17), (333, 65), (333, 1)),
    "transpose and copy": of(lambda x: x.t().contiguous(), (1001, 777)),
    "gelu bf16 100003": of(F.gelu, (100_003,), dtype=BF16),
    # compiled
    "compiled rms_norm and silu": compiled(normalised, (333, 1001), (1001,)),
    "compiled sums": compiled(summed, (501, 777), (501, 777)),
}
