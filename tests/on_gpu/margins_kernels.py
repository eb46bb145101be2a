"""Kernels that read or write beyond their tensors where they are told to, and not otherwise."""

import triton
import triton.language as tl


@triton.jit
def block_sums(x_ptr, out_ptr, count, BLOCK: tl.constexpr, KIND: tl.constexpr):
    """Write the sum of each block of `count` elements, which are converted to KIND."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(x.to(KIND), 0))


@triton.jit
def row_dots(x_ptr, w_ptr, out_ptr, columns, x_count, w_count, BLOCK: tl.constexpr):
    """Write the dot product of each row of `x` with `w`; x_count and w_count elements of a row are read at most."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < x_count, other=0.0)
        w = tl.load(w_ptr + at, mask=at < w_count, other=0.0)
        total += x.to(tl.float32) * w.to(tl.float32)
    tl.store(out_ptr + row, tl.sum(total, 0))


@triton.jit
def weighted(x_ptr, w_ptr, out_ptr, count, step, shift, BLOCK: tl.constexpr):
    """Write x[step * i + shift] * w[i] for each i below count."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(x_ptr + at.to(tl.int64) * step + shift, mask=inside, other=0.0)
    w = tl.load(w_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, x * w, mask=inside)


@triton.jit
def gather_sums(table_ptr, rows_ptr, w_ptr, out_ptr, count, w_count, columns, BLOCK: tl.constexpr):
    """Write, for each column of a table, the weighted sum over rows named by an index; `count` of them are read."""
    column = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        row = tl.load(rows_ptr + at, mask=at < count, other=0)
        w = tl.load(w_ptr + at, mask=at < w_count, other=0.0)
        total += tl.load(table_ptr + row * columns + column, mask=at < count, other=0.0) * w
    tl.store(out_ptr + column, tl.sum(total, 0))


@triton.jit
def scale(x_ptr, out_ptr, count, written, shift, BLOCK: tl.constexpr):
    """Write 2 * x[i] to out[i + shift]; `written` elements of the output are, of `count` that are read."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0)
    tl.store(out_ptr + at + shift, x + x, mask=at < written)


@triton.jit
def scale_and_mark(x_ptr, out_ptr, marks_ptr, count, mark_at, BLOCK: tl.constexpr):
    """Write 2 * x to the output, and 7 at one place counted from the start of `marks`."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < count, other=0), mask=at < count)
    if tl.program_id(0) == 0:
        tl.store(marks_ptr + mark_at, 7)


@triton.jit
def row_maxima(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Write the maximum of each row: what is loaded behind a row is not used."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at)
    tl.store(out_ptr + row, tl.max(tl.where(at < columns, x, float("-inf")), 0))
