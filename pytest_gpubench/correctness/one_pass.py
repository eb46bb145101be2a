"""Checks on a GPU in one pass over the memory, by kernels of our own."""

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

COMPARED_ELEMENTS = 2**26
"""Words are compared so many at a time, which takes a byte for each."""


def can_check(*tensors: torch.Tensor) -> bool:
    """Tell whether tensors are plain dense ones on a GPU, and Triton compiles for it."""
    return all(map(_is_plain, tensors)) and _kernels() is not None


def _is_plain(tensor: torch.Tensor) -> bool:
    dense = type(tensor) is torch.Tensor and tensor.is_cuda and tensor.is_contiguous()
    return dense and tensor.numel() > 0 and not tensor.is_neg()


def bytes_differ(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[bool]:
    """Tell for each pair of tensors of bytes, both as long, whether they differ; those of a device are read at once."""
    places: dict[torch.device, list[int]] = defaultdict(list)
    for place, (one, _) in enumerate(pairs):
        places[one.device].append(place)
    differ = [False] * len(pairs)
    for device, here in places.items():
        parts = [(place, part) for place in here for part in zip(*_words_of(*pairs[place]), strict=True)]
        found = torch.empty(len(parts), dtype=torch.bool, device=device)
        for (_, (words, others)), answer in zip(parts, found, strict=True):
            torch.any(words.ne(others), out=answer)
        for (place, _), differs in zip(parts, found.tolist(), strict=True):
            differ[place] |= differs
    return differ


def _words_of(*memory: torch.Tensor) -> list[Sequence[torch.Tensor]]:
    """Return bytes, in parts, as words of eight bytes where all are aligned to that."""
    is_aligned = not any(each.numel() % 8 or each.storage_offset() % 8 or each.data_ptr() % 8 for each in memory)
    words = [each.view(torch.int64) if is_aligned else each for each in memory]
    is_one = words[0].numel() <= COMPARED_ELEMENTS
    return [[each] if is_one else torch.split(each, COMPARED_ELEMENTS) for each in words]


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
    is_current = device.index == torch.cuda.current_device()  # the context takes ten times as long
    with nullcontext() if is_current else torch.cuda.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def noted_by(name: str, inputs: list[torch.Tensor], columns: int, dtype: torch.dtype, *numbers: float) -> torch.Tensor:
    """Return what the programs of a kernel of `kernels` note, one row each."""
    count, block = inputs[0].numel(), _kernels().BLOCK
    programs = -(-count // block)
    noted = torch.empty([programs, columns], dtype=dtype, device=inputs[0].device)
    with _quietly(noted.device):
        getattr(_kernels(), name)[(programs,)](*inputs, noted, count, *numbers, BLOCK=block, num_warps=8)
    return noted
