"""Checks on a GPU in one pass over the memory, by kernels of our own."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


def differing(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[bool]:
    """Tell for each pair of tensors of words whether they differ; all on one GPU, and read at once."""
    if not pairs:
        return []
    found = torch.zeros(len(pairs), dtype=torch.int32, device=pairs[0][0].device)
    block = _kernels().BLOCK
    with _quietly(found.device):
        for place, (words, others) in enumerate(pairs):
            launch = _kernels().gpu_bench_differs[(-(-words.numel() // block),)]
            launch(words, others, found[place:], words.numel(), BLOCK=block, num_warps=8)
    return [bool(each) for each in found.tolist()]


@cache
def _kernels() -> Any:
    """Return our kernels; None where Triton is missing or interprets them."""
    try:
        from pytest_gpubench.correctness import kernels
    except ImportError:
        return None
    return kernels if hasattr(kernels.gpu_bench_checksum, "do_not_specialize") else None


@contextmanager
def _quietly(device: torch.device) -> Iterator[None]:
    """Launch on a device, without the warning of Triton 3.9, with each compilation, of a default of its own."""
    with torch.cuda.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _launch(
    kernel: Any, inputs: list[torch.Tensor], shape: list[int], dtype: torch.dtype, number: float
) -> torch.Tensor:
    """Return what the programs of a kernel note, one row each."""
    count, block = inputs[0].numel(), _kernels().BLOCK
    programs = -(-count // block)
    noted = torch.empty([programs, *shape], dtype=dtype, device=inputs[0].device)
    with _quietly(noted.device):
        kernel[(programs,)](*inputs, noted, count, number, BLOCK=block, num_warps=8)
    return noted
