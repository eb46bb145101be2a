"""How far apart elements are, without rounding or overflow."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__tracebackhide__ = True


def as_numbers(chunk: "torch.Tensor") -> "torch.Tensor":
    """Return a chunk in float64 or complex128.

    Every float, and every integer of 32 bits or fewer, is exact there, and so is whether two differ; float32 would
    round away differences that are judged. It costs no more time: a chunk is bound by memory on data-centre GPUs.
    """
    import torch

    dtype = torch.complex128 if chunk.dtype.is_complex else torch.float64
    return chunk.to(dtype, memory_format=torch.contiguous_format)


def magnitudes(chunk: "torch.Tensor") -> "torch.Tensor":
    """Return absolute values, finite: the largest float64 for infinity, 0 for NaN."""
    return as_numbers(chunk).abs().nan_to_num(nan=0.0)


def distances(found: "torch.Tensor", expected: "torch.Tensor", equal_nan: bool) -> "torch.Tensor":
    """Return absolute differences in float64: 0 where and only where two elements are equal, nan where one is NaN."""
    import torch

    if found.dtype in (torch.int64, torch.uint64):
        return distances_of_int64(found, expected)
    one, other = as_numbers(found), as_numbers(expected)
    equal = one == other
    if equal_nan:
        equal |= one.isnan() & other.isnan()
    return (one - other).abs().masked_fill(equal, 0.0)


def distances_of_int64(found: "torch.Tensor", expected: "torch.Tensor") -> "torch.Tensor":
    """Return absolute differences that float64 cannot hold before they are taken.

    The larger less the smaller wraps around to a negative number where it exceeds 63 bits; read without its sign it is
    right. uint64 is shifted onto int64, which keeps differences.
    """
    import torch

    if found.dtype == torch.uint64:
        found, expected = (one.view(torch.int64) ^ torch.iinfo(torch.int64).min for one in (found, expected))
    wrapped = torch.maximum(found, expected) - torch.minimum(found, expected)
    diff = wrapped.to(torch.float64)
    return torch.where(wrapped < 0, diff + 2.0**64, diff)
