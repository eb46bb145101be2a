"""This GPU's measured peaks: the fastest rates of memory and of arithmetic. Pure.

The traffic of a call is the least it can be: the bytes of the distinct memory of its inputs and outputs, each once.
That is too little where a call reads what it overwrites (in place), reads its inputs more than once, or passes data
through memory between kernels; it is too much where parts of the inputs do not matter (a gather, a mask, a slice of
what was passed). With `bytes=` the caller knows better.

A cold call may still leave what it wrote in the L2 cache and so be faster than memory, the more so the less it moves:
an addition of 3 x 64 MiB on an H200 (60 MiB of L2) shows 4620 GB/s, more than a copy of gigabytes. Peaks are therefore
measured at several sizes, and a call is compared with the fastest at its own size or above.
"""

from pytest_gpubench.results.model import Peaks

READS_MEMORY = ("cold", "dirty")
"""The states of the cache in which every input comes from memory."""


def memory_gbps(peaks: Peaks, moved_bytes: int, read_share: float | None = None) -> float | None:
    """Return the fastest rate seen at this size or above, in 10^9 bytes a second; None where none was measured.

    read_share: of the bytes, those that are read; between two shares that were measured the time of a byte is
    interpolated. None where it is not known: the fastest of all is meant then, be it a reader or a copy.
    """
    by_share = []
    for share in sorted({peak.read_share for peak in peaks.memory}):
        points = [peak for peak in peaks.memory if peak.read_share == share]
        least = max((peak.moved_bytes for peak in points if peak.moved_bytes <= moved_bytes), default=0)
        by_share.append((share, max(peak.gbps for peak in points if peak.moved_bytes >= least)))
    if not by_share:
        return None
    if read_share is None:
        return max(rate for _, rate in by_share)
    below = [each for each in by_share if each[0] <= read_share]
    above = [each for each in by_share if each[0] >= read_share]
    if not below or not above:  # beyond what was measured
        return (below or above)[-1 if below else 0][1]
    (left, left_rate), (right, right_rate) = below[-1], above[0]
    weight = (read_share - left) / (right - left) if right > left else 0.0
    return 1 / ((1 - weight) / left_rate + weight / right_rate)


def matmul_tflops(peaks: Peaks, dtype: str | None) -> float | None:
    """Return the measured rate of a dtype, for float32 that of TF32 where torch rounds it; None where there is none."""
    names = ("float32", "tfloat32") if dtype == "float32" else (dtype or "",)
    return next((peaks.matmul_tflops[name] for name in names if name in peaks.matmul_tflops), None)
