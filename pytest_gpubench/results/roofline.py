"""The share of its GPU's peaks that a call reaches: rates, this GPU's measured peaks, and limits on both. Pure.

The traffic of a call is the least it can be: the bytes of the distinct memory of its inputs and outputs, each once.
That is too little where a call reads what it overwrites (in place), reads its inputs more than once, or passes data
through memory between kernels; it is too much where parts of the inputs do not matter (a gather, a mask, a slice of
what was passed). With `bytes=` the caller knows better.

A cold call may still leave what it wrote in the L2 cache and so be faster than memory, the more so the less it moves:
an addition of 3 x 64 MiB on an H200 (60 MiB of L2) shows 4620 GB/s, more than a copy of gigabytes. Peaks are therefore
measured at several sizes, and a call is compared with the fastest at its own size or above.
"""

from typing import Literal

import msgspec

from pytest_gpubench.results.model import Peaks, Timing
from pytest_gpubench.stats.summary import median_interval
from pytest_gpubench.units import format_decimal, format_share, format_time, grouped

OVER_DATASHEET = 1.02
"""No rate is above what the datasheet states by more than this, its clock considered."""
OVER_MEASURED_MEMORY = 1.1
OVER_MEASURED_MATMUL = 1.3
"""The highest rate over the measured peak where no datasheet is known: products of zeros, or of few different
numbers, take so little power that they run up to a fifth faster than those of random numbers."""
READS_MEMORY = ("cold", "dirty")
"""The states of the cache in which every input comes from memory."""


Bound = Literal["memory", "matmul"]


class Fraction(msgspec.Struct, frozen=True, kw_only=True):
    """Hold which part of the peak that bounds it a call reached."""

    value: float
    bound: Bound
    rate: float
    """GB/s or TFLOP/s, as `bound` says."""
    peak: float
    """In the unit of `rate`."""
    dtype: str | None = None

    @property
    def unit(self) -> str:
        """The unit of `rate` and `peak`."""
        return "GB/s" if self.bound == "memory" else "TFLOP/s"

    def __str__(self) -> str:
        return f"{format_share(self.value, 3)} of {self.of}"

    @property
    def of(self) -> str:
        """The peak in words."""
        what = "memory moves" if self.bound == "memory" else f"{self.dtype} matmuls reach"
        return f"the {grouped(self.peak)} {self.unit} that this GPU's {what}"


# measured peaks


def memory_gbps(peaks: Peaks, moved_bytes: int, read_share: float | None = None) -> float | None:
    """Return the fastest rate seen at this size or above, in 10^9 bytes a second; None where none was measured.

    read_share: of the bytes, those that are read; between two shares that were measured the time of a byte is
    interpolated. None where it is not known: the fastest of all is meant then, be it a reader or a copy.
    """
    by_share = sorted(_rates_by_share(peaks, moved_bytes).items())
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


def _rates_by_share(peaks: Peaks, moved_bytes: int) -> dict[float, float]:
    """Return by share of reads the fastest rate at the last measured size that is not larger, or at any above it."""
    found: dict[float, float] = {}
    for share in {peak.read_share for peak in peaks.memory}:
        points = [peak for peak in peaks.memory if peak.read_share == share]
        least = max((peak.moved_bytes for peak in points if peak.moved_bytes <= moved_bytes), default=0)
        found[share] = max(peak.gbps for peak in points if peak.moved_bytes >= least)
    return found


def matmul_tflops(peaks: Peaks, dtype: str | None) -> float | None:
    """Return the measured rate of a dtype, for float32 that of TF32 where torch rounds it; None where there is none."""
    names = ("float32", "tfloat32") if dtype == "float32" else (dtype or "",)
    return next((peaks.matmul_tflops[name] for name in names if name in peaks.matmul_tflops), None)


def peak_fraction(
    timing: Timing, peaks: Peaks, dtype: str | None = None, read_share: float | None = None
) -> Fraction | None:
    """Return the larger of the parts of memory's and of arithmetic's measured peak that the median reached.

    dtype: what is multiplied, a key of `matmul_tflops`; read_share: as in `memory_gbps`. None where neither the bytes
    nor the flops are known, or the peak for them is not. Memory is left out for a hot call, whose data need not come
    from there. Raises NotMeasured for a timing without samples.
    """
    found = []
    gbps, tflops = timing.gbps, timing.tflops
    if gbps is not None and timing.moved_bytes is not None and timing.cache in READS_MEMORY:
        peak = memory_gbps(peaks, timing.moved_bytes, read_share)
        if peak is not None:
            found.append(Fraction(value=gbps / peak, bound="memory", rate=gbps, peak=peak))
    peak = matmul_tflops(peaks, dtype)
    if tflops is not None and peak is not None:
        found.append(Fraction(value=tflops / peak, bound="matmul", rate=tflops, peak=peak, dtype=dtype))
    return max(found, key=lambda fraction: fraction.value, default=None)


# physical limits


def highest_gbps(peaks: Peaks) -> float | None:
    """Return the rate above which no memory of this GPU can be, in 10^9 bytes a second; None where it is not known."""
    measured = [rate for rate in (peaks.copy_gbps, peaks.read_gbps) if rate is not None]
    known = [OVER_MEASURED_MEMORY * rate for rate in measured]
    if peaks.datasheet_gbps is not None:
        known.append(OVER_DATASHEET * peaks.datasheet_gbps)
    return max(known, default=None)


def highest_tflops(peaks: Peaks, dtype: str | None) -> float | None:
    """Return the rate above which no matmul of this dtype can be; None where it is not known.

    A kernel may round float32 though torch does not, so the limit is what that allows.
    """
    names = ("float32", "tfloat32") if dtype in ("float32", "tfloat32") else (dtype or "",)
    stated = [peaks.datasheet_tflops[name] for name in names if name in peaks.datasheet_tflops]
    known = [OVER_DATASHEET * max(1.0, peaks.boost) * rate for rate in stated]
    if not stated and dtype == "float32":  # what rounding would allow was neither stated nor measured
        return None
    margin = OVER_MEASURED_MEMORY if stated else OVER_MEASURED_MATMUL
    known += [margin * peaks.matmul_tflops[name] for name in names if name in peaks.matmul_tflops]
    return max(known, default=None)


def too_fast(timing: Timing, peaks: Peaks, dtype: str | None = None, alpha: float = 0.001) -> str | None:
    """Return why a timing cannot be true, though it be as slow as its interval at alpha allows; None where it may be.

    What fits in the L2 cache may have been left there, so that it does not count; nor do the bytes of a hot call.
    """
    interval = median_interval(timing.samples_us, alpha)
    slowest_us = interval.high if interval else timing.max_us
    most_gbps, most_tflops = highest_gbps(peaks), highest_tflops(peaks, dtype)
    if timing.moved_bytes is not None and most_gbps is not None and timing.cache in READS_MEMORY:
        least_bytes = max(0, timing.moved_bytes - peaks.cache_bytes)
        if least_bytes / slowest_us / 1e3 > most_gbps:
            rate = grouped(least_bytes / slowest_us / 1e3)
            return (
                f"{timing.label} is faster than memory allows: {format_decimal(least_bytes, 'B')}, what the L2 cache "
                f"may keep not counted, in {format_time(slowest_us)} are {rate} GB/s, and this GPU's memory has at "
                f"most {grouped(most_gbps)}; does it compute everything in every call? If it has less to move, say how "
                "much with bytes="
            )
    if timing.flops is not None and most_tflops is not None and timing.flops / slowest_us / 1e6 > most_tflops:
        return (
            f"{timing.label} is faster than this GPU multiplies {dtype}: {format_decimal(timing.flops, 'FLOP')} "
            f"in {format_time(slowest_us)} are {grouped(timing.flops / slowest_us / 1e6)} TFLOP/s, and it has at most "
            f"{grouped(most_tflops)}; does it compute everything in every call? If it has less to compute (causal "
            "attention is counted in full), say how much with flops="
        )
    return None
