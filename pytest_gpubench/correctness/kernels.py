"""The GPU kernel of a checksum: it reads each word once, where torch would move seven times as many bytes."""

import triton
import triton.language as tl

BLOCK = 4096
"""Words that one program adds up."""


@triton.jit(do_not_specialize=["count", "seed"])
def gpu_bench_checksum(words, sums, count, seed, BLOCK: tl.constexpr):
    """Add up the words of a block, each times an odd number for its place."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    weights = (places + seed) * -7046029254386353131  # the odd constants of splitmix64, which spread every bit
    weights = (weights ^ (weights >> 32)) * -4658895280553007687
    weights = (weights ^ (weights >> 29)) | 1
    bits = tl.load(words + places, mask=places < count, other=0).to(tl.int64)
    tl.store(sums + tl.program_id(0), tl.sum(bits * weights, 0))
