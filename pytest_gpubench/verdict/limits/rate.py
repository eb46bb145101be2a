"""Limits on rates: bytes and operations a second, and the part of the GPU's peak that they are."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from pytest_gpubench.bounds import positive_number
from pytest_gpubench.limits import meant
from pytest_gpubench.results.model import Measurement, Outcome, Peaks, Timing
from pytest_gpubench.results.roofline import READS_MEMORY, matmul_tflops, memory_gbps
from pytest_gpubench.stats.summary import Interval, least_count, median_interval
from pytest_gpubench.units import format_decimal, format_share, format_time, grouped, with_ends
from pytest_gpubench.verdict.decision import Judged, at_least, time_interval
from pytest_gpubench.verdict.limits.base import Limit, Need, Seen, judged_time, share_missed

OVER_DATASHEET = 1.02
"""No rate is above what the datasheet states by more than this, its clock considered."""
OVER_MEASURED_MEMORY = 1.1
OVER_MEASURED_MATMUL = 1.3
"""The highest rate over the measured peak where no datasheet is known: products of zeros, or of few different
numbers, take so little power that they run up to a fifth faster than those of random numbers."""
Bound = Literal["memory", "matmul"]
UNITS: Mapping[Bound, str] = {"memory": "GB/s", "matmul": "TFLOP/s"}


class Fraction(msgspec.Struct, frozen=True, kw_only=True):
    """Hold which part of the peak that bounds it a call reached."""

    value: float
    bound: Bound
    rate: float
    """In the unit of `bound`, as `peak`."""
    peak: float
    dtype: str | None = None

    @property
    def of(self) -> str:
        """The peak in words."""
        what = "memory moves" if self.bound == "memory" else f"{self.dtype} matmuls reach"
        return f"the {grouped(self.peak)} {UNITS[self.bound]} that this GPU's {what}"


class MinRate(Limit):
    """A limit on work over time; what is faster than the GPU can be is INVALID, and so is unknown work."""

    stage = "rate"
    is_noisy = is_on_speed = True
    parse = staticmethod(positive_number)
    least_reps = staticmethod(least_count)

    def judge(self, seen: Seen) -> Judged:
        impossible = too_fast(seen.timing, seen.peaks, seen.dtype, seen.spent) if seen.peaks is not None else None
        return self.judge_possible(seen) if impossible is None else (Outcome.INVALID, impossible)

    def judge_possible(self, seen: Seen) -> Judged:
        raise NotImplementedError

    def says_nothing(self, timing: Timing, why: str) -> Judged:
        return Outcome.NOT_JUDGED, f"{timing.label}: {self.named} says nothing here, {why}"


class MinWork(MinRate):
    """A limit on bytes or operations a second."""

    bound: ClassVar[Bound]
    work: ClassVar[Need]
    holds_throttled = True

    def rate(self, timing: Timing) -> float | None:
        """Return the rate; None where the work is not known."""
        return timing.gbps if self.bound == "memory" else timing.tflops

    def judge_possible(self, seen: Seen) -> Judged:
        timing, rate, wanted = seen.timing, self.rate(seen.timing), self.asked
        if rate is None:
            return _work_unknown(seen, self.named, self.work)
        if timing.moved_bytes == 0 and self.bound == "memory":
            return self.says_nothing(timing, "it moves 0 bytes")
        interval, unit = _rate_interval(timing, self.bound, seen.spent), UNITS[self.bound]
        found = f"{with_ends(rate, interval, wanted, grouped, unit=f' {unit}')}, wanted at least {wanted:,.10g} {unit}"
        return judged_time(seen, interval, at_least(interval, wanted), found, f"{_work_words(timing, self.bound)}; ")

    def cell(self, item: Measurement) -> str:
        found = self.rate(item.timing) if item.timing.measured else None
        text = "" if found is None else with_ends(found, None, self.asked, unit=" ")
        return f"{text}>= {self.asked:.10g} {UNITS[self.bound]}"

    def missed_by(self, item: Measurement) -> float:
        return share_missed(self.number(item.timing), self.rate(item.timing))


class MinGbps(MinWork):
    """It moves at least so many bytes a second."""

    name = "min_gbps"
    help = "10^9 bytes a second, at least: of bytes=, or of the bytes of inputs and outputs"
    needed = frozenset({"bytes"})
    bound, work = "memory", "bytes"


class MinTflops(MinWork):
    """It makes at least so many operations a second."""

    name = "min_tflops"
    help = "10^12 operations a second, at least: of flops=, or as torch counts those of the reference"
    needed = frozenset({"flops"})
    bound, work = "matmul", "flops"


class MinPeakFraction(MinRate):
    """It reaches at least this part of what this GPU was measured to reach."""

    name = "min_peak_fraction"
    help = "of what this GPU was measured to reach in moving memory or multiplying, at least: 0.8 is 80 %"
    needed = frozenset({"bytes", "flops", "peaks"})

    @staticmethod
    def parse(asked: Any) -> float:
        number = positive_number(asked)
        if number > 1:
            raise ValueError(f"that is {100 * number:g} %, and a part of the peak is at most 1: {meant(number, 80)}")
        return number

    def judge_possible(self, seen: Seen) -> Judged:
        timing, wanted, peaks = seen.timing, self.asked, seen.peaks
        if timing.flops is None:
            if timing.moved_bytes is None:
                return _work_unknown(seen, self.named, "bytes", "flops")
            if timing.moved_bytes == 0:
                return self.says_nothing(timing, "it moves 0 bytes")
            if timing.cache not in READS_MEMORY:
                return Outcome.INVALID, (
                    f"{timing.label}: {self.named} cannot be judged with cache={timing.cache!r}, where data need not "
                    "come from memory; measure it cold, or give flops="
                )
        if peaks is None:
            return self.says_nothing(timing, f"no peak of {timing.device} is known")
        found = peak_fraction(seen)
        interval = _rate_interval(timing, found.bound, seen.spent, found.peak) if found else None
        outcome = at_least(interval, wanted)
        no_matmul = timing.flops is not None and matmul_tflops(peaks, seen.dtype) is None
        if found is None or (no_matmul and outcome is Outcome.FAIL):  # of a matmul's peak it may be a larger part
            missing = f"{seen.dtype or 'its'} matmuls" if no_matmul else "memory"
            said = f" ({'; '.join(peaks.remarks)})" if peaks.remarks else ""
            return self.says_nothing(timing, f"the peak of {timing.device} for {missing} is not known{said}")
        share = with_ends(found.value, interval, wanted, format_share, 3)
        told = f"{share} of {found.of}, wanted at least {100 * wanted:.10g} %"
        rate = f"{grouped(found.rate)} {UNITS[found.bound]}, {_work_words(timing, found.bound)}; "
        return judged_time(seen, interval, outcome, told, rate)

    def found(self, seen: Seen) -> str:
        fraction = peak_fraction(seen)
        return "" if fraction is None else format_share(fraction.value, 3)

    def cell(self, item: Measurement) -> str:
        return f">= {100 * self.asked:.10g} % of peak"


LIMITS = (MinGbps, MinTflops, MinPeakFraction)


def peak_fraction(seen: Seen) -> Fraction | None:
    """Return the larger of the parts of memory's and of arithmetic's measured peak that the median reached.

    None where neither the bytes nor the flops are known, or the peak for them is not. Memory is left out for a hot
    call, whose data need not come from there. Raises NotMeasured for a timing without samples.
    """
    timing, peaks, found = seen.timing, seen.peaks, list[Fraction]()
    if peaks is None:
        return None
    gbps, tflops = timing.gbps, timing.tflops
    if gbps is not None and timing.moved_bytes is not None and timing.cache in READS_MEMORY:
        peak = memory_gbps(peaks, timing.moved_bytes, seen.read_share)
        if peak is not None:
            found.append(Fraction(value=gbps / peak, bound="memory", rate=gbps, peak=peak))
    peak = matmul_tflops(peaks, seen.dtype)
    if tflops is not None and peak is not None:
        found.append(Fraction(value=tflops / peak, bound="matmul", rate=tflops, peak=peak, dtype=seen.dtype))
    return max(found, key=lambda fraction: fraction.value, default=None)


def too_fast(timing: Timing, peaks: Peaks, dtype: str | None = None, alpha: float = 0.001) -> str | None:
    """Return why a timing cannot be true, though it be as slow as its interval at alpha allows; None where it may be.

    What fits in the L2 cache may have been left there, so that it does not count; nor do the bytes of a hot call.
    """
    interval = median_interval(timing.samples_us, alpha)
    slowest_us = interval.high if interval else timing.max_us
    margins = {OVER_MEASURED_MEMORY: (peaks.copy_gbps, peaks.read_gbps), OVER_DATASHEET: (peaks.datasheet_gbps,)}
    known = [margin * rate for margin, rates in margins.items() for rate in rates if rate is not None]
    most_gbps, most_tflops = max(known, default=None), _highest_tflops(peaks, dtype)
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


def _highest_tflops(peaks: Peaks, dtype: str | None) -> float | None:
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


def _work_unknown(seen: Seen, asked: str, *needed: str) -> Judged:
    keywords, unknown = " or ".join(f"{name}=" for name in needed), " and ".join(needed)
    advice = f"give {keywords} where it is measured" if seen.takes_work else f"measure it by itself, with {keywords}"
    return Outcome.INVALID, f"{seen.timing.label}: {asked} cannot be judged, its {unknown} are not known: {advice}"


def _rate_interval(timing: Timing, bound: Bound, spent: float, peak: float = 1.0) -> Interval | None:
    """Return the interval of the rate over the peak, which is as high as the median time is low.

    Each end is what `Timing` makes of such a median: a limit that was computed from a time is kept in that time.
    """
    times_us = time_interval(timing, spent)
    if times_us is None:
        return None
    low, high = (msgspec.structs.replace(timing, samples_us=(end_us,)) for end_us in (times_us.high, times_us.low))
    ends = (low.gbps, high.gbps) if bound == "memory" else (low.tflops, high.tflops)
    return Interval(*(end / peak for end in ends if end is not None))


def _work_words(timing: Timing, bound: Bound) -> str:
    amount, unit = (timing.moved_bytes, "B") if bound == "memory" else (timing.flops, "FLOP")
    return f"{format_decimal(amount or 0, unit)} in {format_time(timing.median_us)}"
