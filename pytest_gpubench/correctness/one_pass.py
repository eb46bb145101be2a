"""Checks on a GPU in one pass over the memory, by kernels of our own."""

import warnings
from functools import cache
from typing import Any

import torch

__tracebackhide__ = True


def can_check(*tensors: torch.Tensor) -> bool:
    """Tell whether tensors are plain dense ones on a GPU, and Triton compiles for it."""
    return all(map(_is_plain, tensors)) and _kernels() is not None


def _is_plain(tensor: torch.Tensor) -> bool:
    dense = type(tensor) is torch.Tensor and tensor.is_cuda and tensor.is_contiguous()
    return dense and tensor.numel() > 0 and not tensor.is_neg()


def checksum_of(words: torch.Tensor, seed: int) -> int:
    """Return the sum of words of 32 bits, each times an odd number for its place, which a seed draws."""
    sums = _launch(_kernels().gpu_bench_checksum, [words], [1], torch.int64, seed)
    return int(sums.sum())


def largest_of(found: torch.Tensor, expected: torch.Tensor, rtol: float) -> tuple[float, float]:
    """Return the largest difference in float32, and the largest less what rtol allows; infinite for NaN."""
    largest = _launch(_kernels().gpu_bench_largest, [found, expected], [2], torch.float32, rtol)
    diff, excess = largest.amax(0).tolist()
    return diff, excess


@cache
def _kernels() -> Any:
    """Return our kernels; None where Triton is missing or interprets them."""
    try:
        from pytest_gpubench.correctness import kernels
    except ImportError:
        return None
    return kernels if hasattr(kernels.gpu_bench_checksum, "do_not_specialize") else None


def _launch(
    kernel: Any, inputs: list[torch.Tensor], shape: list[int], dtype: torch.dtype, number: float
) -> torch.Tensor:
    """Return what the programs of a kernel note, one row each."""
    count, block = inputs[0].numel(), _kernels().BLOCK
    programs = -(-count // block)
    noted = torch.empty([programs, *shape], dtype=dtype, device=inputs[0].device)
    with torch.cuda.device(noted.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton 3.9 warns, with each compilation, of a default of its own
        kernel[(programs,)](*inputs, noted, count, number, BLOCK=block, num_warps=8)
    return noted
