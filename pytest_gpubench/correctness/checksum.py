"""Checksums of tensors: numbers that depend on every bit and its place."""

import secrets
from functools import reduce

import torch

from pytest_gpubench.correctness.chunks import blocks_of, raw_bits
from pytest_gpubench.correctness.one_pass import can_check, noted_by

SEED = secrets.randbits(62)
"""The seed of the words' weights, which nobody can know beforehand."""
CHUNK_FACTOR = 0x61C8864680B583EB
"""An odd number by which the sum of each chunk is multiplied once more than that of the next."""


def checksum(tensor: torch.Tensor) -> int:
    """Return a number that depends on every bit of a tensor and its place, for this process alone.

    It is a sum of the words, each times an odd number of 64 bits drawn for its place, so that one word that changes
    always changes it. Words of 32 bits make that so of several too: the low bits of a float64 are all 0, and products
    with them have as many zeros at the end.
    """
    tensor = _as_words(tensor.int_repr() if tensor.is_quantized else tensor)
    if tensor.dtype == torch.int32 and can_check(tensor):
        return int(noted_by("gpu_bench_checksum", [tensor], 1, torch.int64, SEED).sum())
    generator = torch.Generator(tensor.device).manual_seed(SEED)
    sums, weights = [], torch.empty(0, dtype=torch.int64, device=tensor.device)
    for block in blocks_of(tensor, temporaries=16):
        bits = raw_bits(tensor[block]).reshape(-1)
        bits = bits.contiguous().view(torch.int32) if bits.element_size() == 8 else bits
        if weights.numel() < bits.numel():
            weights = weights.new_empty(bits.numel()).random_(generator=generator).bitwise_or_(1)
        sums.append((bits * weights[: bits.numel()]).sum())
    numbers = torch.stack(sums).tolist() if sums else []
    return reduce(lambda total, number: (CHUNK_FACTOR * total + number) % 2**64, numbers, 0)


def _as_words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's memory as words of four bytes where it can be read so: fewer elements to read."""
    plain = tensor.is_contiguous() and not (tensor.is_complex() or tensor.is_neg())
    if plain and tensor.numel() * tensor.element_size() % 4 == 0 and tensor.data_ptr() % 4 == 0:
        start = tensor.storage_offset() * tensor.element_size()
        return tensor.reshape(-1).view(torch.int32) if start % 4 == 0 else tensor
    return tensor
