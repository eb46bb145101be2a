"""GPU kernels of checks: they read each element once, where torch would move two to seven times as many bytes."""

import triton
import triton.language as tl

BLOCK = 4096
"""Elements that one program reads."""


@triton.jit(do_not_specialize=["count", "seed"])
def gpu_bench_checksum(words, sums, count, seed, BLOCK: tl.constexpr):
    """Add up the words of a block, each times an odd number for its place."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    weights = (places + seed) * -7046029254386353131  # the odd constants of splitmix64, which spread every bit
    weights = (weights ^ (weights >> 32)) * -4658895280553007687
    weights = (weights ^ (weights >> 29)) | 1
    bits = tl.load(words + places, mask=places < count, other=0).to(tl.int64)
    tl.store(sums + tl.program_id(0), tl.sum(bits * weights, 0))


@triton.jit(do_not_specialize=["count"])
def gpu_bench_largest(found, expected, largest, count, least_rtol, most_rtol, BLOCK: tl.constexpr):
    """Note a block's largest difference, and the largest less what the least and the most rtol allow.

    Where an element of either is not finite, the first two are infinite, and the third leaves it out.
    """
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    one = tl.load(found + places, mask=places < count, other=0).to(tl.float32)
    other = tl.load(expected + places, mask=places < count, other=0).to(tl.float32)
    diff = tl.abs(one - other)
    is_finite = diff < float("inf")
    noted = largest + 3 * tl.program_id(0)
    tl.store(noted, tl.max(tl.where(is_finite, diff, float("inf")), 0))
    tl.store(noted + 1, tl.max(tl.where(is_finite, diff - least_rtol * tl.abs(other), float("inf")), 0))
    tl.store(noted + 2, tl.max(tl.where(is_finite, diff - most_rtol * tl.abs(other), -float("inf")), 0))
