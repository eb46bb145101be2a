"""Reads and writes beyond a tensor, planted: each is right as long as what lies there is zero, or nobody's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from tests.on_gpu import margins_kernels as kernels

Make = Callable[[torch.device], tuple[Callable[..., object], Callable[..., object], tuple[torch.Tensor, ...]]]
BLOCK = 1024


@dataclass(frozen=True)
class Planted:
    """A defect, and what has to be said of it."""

    name: str
    make: Make
    """Returns the candidate, the reference and their arguments."""
    verb: str
    """`reads` or `writes`; empty where nothing may be said."""
    tensors: tuple[str, ...] = ()
    """The names of which one has to be in the sentence."""
    overwrites: tuple[str, ...] = ()
    """The arguments that are overwritten on purpose."""
    may_fault: bool = False
    """True if an illegal address may end the process: these come last."""


def values(device: torch.device, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(*shape, device=device, generator=generator) > 0.4
    if not dtype.is_floating_point:
        return torch.randint(-3, 4, shape, device=device, generator=generator).to(dtype)
    return torch.randn(*shape, device=device, generator=generator).to(dtype)


def blocks(count: int, block: int = BLOCK) -> tuple[int]:
    return (triton.cdiv(count, block),)


# reads


def sums(count: int, dtype: torch.dtype, read_all: bool = True, block: int = BLOCK) -> Make:
    """The sum of each block, whose tail is not masked."""
    is_float = dtype.is_floating_point
    kind, out_dtype = (tl.float32, torch.float32) if is_float else (tl.int32, torch.int32)

    def make(device: torch.device) -> Any:
        number = triton.cdiv(count, block)

        def candidate(x: torch.Tensor) -> torch.Tensor:
            out = torch.empty(number, dtype=out_dtype, device=device)
            seen = x.view(torch.int8) if dtype == torch.bool else x
            kernels.block_sums[(number,)](seen, out, number * block if read_all else count, BLOCK=block, KIND=kind)
            return out

        def reference(x: torch.Tensor) -> torch.Tensor:
            padded = torch.nn.functional.pad(x.to(out_dtype), (0, number * block - count))
            return padded.view(number, block).sum(1, dtype=out_dtype)

        return candidate, reference, (values(device, count, dtype=dtype),)

    return make


def dots(rows: int, columns: int, dtype: torch.dtype, unmasked: str) -> Make:
    """Dot products, of which one factor is read beyond and the other one is masked."""
    most = triton.cdiv(columns, BLOCK) * BLOCK
    x_count, w_count = (most, columns) if unmasked == "x" else (columns, most)

    def candidate(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out = torch.empty(rows, dtype=torch.float32, device=x.device)
        kernels.row_dots[(rows,)](x, w, out, columns, x_count, w_count, BLOCK=BLOCK)
        return out

    def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.float() @ w.float()

    def make(device: torch.device) -> Any:
        return candidate, reference, (values(device, rows, columns, dtype=dtype), values(device, columns, dtype=dtype))

    return make


def shifted(count: int, dtype: torch.dtype, shift: int = 0, step: int = 1, extra: int = 0) -> Make:
    """A weighted copy whose weights are zero where the index lies outside of the tensor."""
    number = triton.cdiv(count, step) + extra

    def make(device: torch.device) -> Any:
        source = torch.arange(number, device=device) * step + shift
        inside = (source >= 0) & (source < count)
        w = values(device, number, dtype=dtype, seed=1).where(inside, 0).to(dtype)

        def candidate(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            out = torch.empty(number, dtype=dtype, device=device)
            kernels.weighted[blocks(number)](x, w, out, number, step, shift, BLOCK=BLOCK)
            return out

        def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return x[source.clamp(0, count - 1)] * w

        return candidate, reference, (values(device, count, dtype=dtype), w)

    return make


def gathered(count: int, dtype: torch.dtype, read: str) -> Make:
    """Weighted sums over rows of a table, whose first row is zero; `read` says what is read beyond."""
    entries, columns = 500, 256

    def candidate(table: torch.Tensor, rows: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out = torch.empty(columns, device=table.device)
        most = triton.cdiv(count, BLOCK) * BLOCK if read == "indices" else count
        kernels.gather_sums[(columns,)](table, rows, w, out, most, count, columns, BLOCK=BLOCK)
        return out

    def reference(table: torch.Tensor, rows: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        # out of range are only rows whose weight is zero
        return w @ table[rows.long().clamp(0, entries - 1)]

    def make(device: torch.device) -> Any:
        table, w = values(device, entries, columns), values(device, count, seed=1)
        table[0] = 0
        rows = torch.randint(entries, (count,), device=device, generator=torch.Generator(device).manual_seed(2))
        if read != "indices":
            rows[-1], w[-1] = entries if read == "one row behind" else -1, 0
        return candidate, reference, (table, rows.to(dtype), w)

    return make


def maxima(rows: int, columns: int) -> Make:
    """Maxima of rows, whose over-read no output shows."""

    def candidate(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(rows, device=x.device)
        kernels.row_maxima[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out

    return lambda device: (candidate, lambda x: x.amax(-1), (values(device, rows, columns),))


# writes


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x + x


def in_place(count: int, dtype: torch.dtype, before: int = 0, beyond: int | None = None) -> Make:
    """Doubles its input in place, and writes zeros before it or behind it: up to the end of a block, for None."""
    rounded = triton.cdiv(count, BLOCK) * BLOCK
    written = count if before else rounded if beyond is None else count + beyond

    def candidate(x: torch.Tensor) -> torch.Tensor:
        if before:
            kernels.scale[(1,)](x, x, 0, before, -before, BLOCK=BLOCK)
        kernels.scale[blocks(written)](x, x, count, written, 0, BLOCK=BLOCK)
        return x.clone()

    return lambda device: (candidate, doubled, (values(device, count, dtype=dtype),))


def marked(count: int, marks: int, mark_at: int, dtype: torch.dtype) -> Make:
    """Writes one number beside a second argument, which it leaves alone."""

    def candidate(x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernels.scale_and_mark[blocks(count)](x, out, marks, count, mark_at, BLOCK=BLOCK)
        return out

    def reference(x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        return x + x

    return lambda device: (candidate, reference, (values(device, count), values(device, marks, dtype=dtype)))


def output(count: int, dtype: torch.dtype, beyond: int, before: int = 0) -> Make:
    """Writes behind the output that it allocates, or before it."""

    def candidate(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        if before:
            kernels.scale[(1,)](x, out, 0, before, -before, BLOCK=BLOCK)
        kernels.scale[blocks(count + beyond)](x, out, count, count + beyond, 0, BLOCK=BLOCK)
        return out

    return lambda device: (candidate, doubled, (values(device, count, dtype=dtype),))


FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
INT64, INT32, INT8, BOOL = torch.int64, torch.int32, torch.int8, torch.bool
X, W = ("args[0]",), ("args[1]",)


def reads(name: str, make: Make, tensors: tuple[str, ...] = X, may_fault: bool = False) -> Planted:
    return Planted(name, make, "reads", tensors, may_fault=may_fault)


def writes(name: str, make: Make, tensors: tuple[str, ...] = X, overwrites: tuple[str, ...] = ()) -> Planted:
    return Planted(name, make, "writes", tensors, overwrites)


PLANTED: Sequence[Planted] = (
    reads("no mask, fp32, 1000", sums(1000, FP32)),
    reads("no mask, bf16, 100003", sums(100_003, BF16)),
    reads("no mask, int64, 5001", sums(5001, INT64)),
    reads("no mask, int8, 100001", sums(100_001, INT8)),
    reads("no mask, bool, 70000", sums(70_000, BOOL)),
    reads("x without a mask, one row, fp32", dots(1, 1000, FP32, "x")),
    reads("w without a mask, fp32", dots(64, 1000, FP32, "w"), W),
    reads("right neighbour of the last, fp32", shifted(4096, FP32, shift=1)),
    reads("left neighbour of the first, fp32", shifted(4096, FP32, shift=-1)),
    reads("64 before the first, fp16", shifted(100_000, FP16, shift=-64)),
    reads("a row too many, fp32 of 64x100", shifted(6400, FP32, extra=100)),
    reads("every second of an odd number, fp32", shifted(10_001, FP32, shift=1, step=2)),
    reads("a wrong stride, fp32", shifted(65_536, FP32, step=17, extra=5)),
    writes("in place without a mask, fp32, 1000", in_place(1000, FP32), X, X),
    writes("in place without a mask, bf16, 100003", in_place(100_003, BF16), X, X),
    writes("in place without a mask, int8, 70000", in_place(70_000, INT8), X, X),
    writes("one element too many in place, fp32", in_place(4096, FP32, beyond=1), X, X),
    writes("before the start in place, fp32", in_place(4096, FP32, before=1), X, X),
    writes("one behind a second argument, fp32", marked(4096, 300, 300, FP32), W),
    writes("one before a second argument, int64", marked(4096, 4096, -1, INT64), W),
    writes("a block behind a second argument, int32", marked(4096, 1000, 1023, INT32), W),
    writes("behind the output, fp32, 3000", output(3000, FP32, 1024), ("out",)),
    writes("behind the output, bf16, 100003", output(100_003, BF16, 2048), ("out",)),
    reads("a row of a table behind it, int64", gathered(1000, INT64, "one row behind"), X),
    reads("a row of a table before it, int32", gathered(333, INT32, "one row before"), X),
    Planted("before the output, fp32, 4096", output(4096, FP32, 0, before=16), "writes", ("out",), may_fault=True),
    reads("indices without a mask, int64", gathered(1000, INT64, "indices"), (*W, *X), may_fault=True),
)
HARMLESS: Sequence[Planted] = (
    Planted("maxima of rows of 1000", maxima(64, 1000), ""),
    Planted("sums with their mask, fp32", sums(1000, FP32, read_all=False), ""),
    Planted("sums with their mask, bool", sums(70_000, BOOL, read_all=False), ""),
    Planted("in place with its mask, fp32", in_place(1000, FP32, beyond=0), "", overwrites=X),
    Planted("a second argument, its last element", marked(4096, 300, 299, FP32), "", overwrites=W),
    Planted("an output, fp32", output(3000, FP32, 0), ""),
)
