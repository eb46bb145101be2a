"""Limits on rates: bytes and operations a second, and the part of the GPU's peak that they are."""

from typing import Any, ClassVar

import msgspec

from pytest_gpubench.bounds import positive_number
from pytest_gpubench.limits import meant
from pytest_gpubench.results.model import Measurement, Outcome, Peaks, Timing
from pytest_gpubench.results.roofline import READS_MEMORY, Bound, Fraction, matmul_tflops, peak_fraction, too_fast
from pytest_gpubench.stats.summary import Interval, least_count
from pytest_gpubench.units import bracketed, format_decimal, format_share, format_time, grouped, round_to_digits
from pytest_gpubench.verdict.decision import Judged, at_least, time_certainty, time_interval, words_for
from pytest_gpubench.verdict.limits.base import Limit, Need, Seen, share_missed


class MinRate(Limit):
    """A limit on work over time; what is faster than the GPU can be is INVALID, and so is unknown work."""

    stage = "rate"
    is_noisy = is_on_speed = True
    parse = staticmethod(positive_number)

    def judge(self, seen: Seen) -> Judged:
        impossible = too_fast(seen.timing, seen.peaks, seen.dtype, seen.spent) if seen.peaks is not None else None
        return self.judge_possible(seen) if impossible is None else (Outcome.INVALID, impossible)

    def judge_possible(self, seen: Seen) -> Judged:
        raise NotImplementedError

    @property
    def named(self) -> str:
        """The limit in a sentence: `min_gbps=3000`."""
        return f"{self.name}={self.asked:g}"

    @classmethod
    def least_reps(cls, alpha: float) -> int:
        return least_count(alpha)


class MinWork(MinRate):
    """A limit on bytes or operations a second."""

    bound: ClassVar[Bound]
    unit: ClassVar[str]
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
            return Outcome.NOT_JUDGED, f"{timing.label}: {self.named} says nothing here, it moves 0 bytes"
        interval = _rate_interval(timing, self.bound, seen.spent)
        outcome = at_least(interval, wanted)
        between = bracketed(map(grouped, interval or ()))
        told = time_certainty(timing, outcome, seen.alpha, seen.spent)
        return outcome, (
            f"{timing.label} {_rate_words(outcome, interval)}: {grouped(rate)} {self.unit}{between}, wanted at least "
            f"{grouped(wanted)} {self.unit} ({_work_words(timing, self.bound)}; {told})"
        )

    def cell(self, item: Measurement) -> str:
        """Return `3121 >= 3000 GB/s`."""
        found = self.rate(item.timing) if item.timing.measured else None
        return f"{'' if found is None else f'{round_to_digits(found, 4)} '}>= {self.asked:.10g} {self.unit}"

    def missed_by(self, item: Measurement) -> float:
        return share_missed(self.number(item.timing), self.rate(item.timing))


class MinGbps(MinWork):
    """It moves at least so many bytes a second."""

    name = "min_gbps"
    help = "10^9 bytes a second, at least: of bytes=, or of the bytes of inputs and outputs"
    needed = frozenset({"bytes"})
    bound, unit, work = "memory", "GB/s", "bytes"


class MinTflops(MinWork):
    """It makes at least so many operations a second."""

    name = "min_tflops"
    help = "10^12 operations a second, at least: of flops=, or as torch counts those of the reference"
    needed = frozenset({"flops"})
    bound, unit, work = "matmul", "TFLOP/s", "flops"


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
        if unknown := self._unknown(seen):
            return unknown
        timing, wanted, peaks = seen.timing, self.asked, seen.peaks
        assert peaks is not None, "it is known"
        found = _fraction_of(seen)
        interval = _rate_interval(timing, found.bound, seen.spent, found.peak) if found else None
        outcome = at_least(interval, wanted)
        no_matmul = timing.flops is not None and matmul_tflops(peaks, seen.dtype) is None
        if found is None or (no_matmul and outcome is Outcome.FAIL):  # of a matmul's peak it may be a larger part
            return self._peak_unknown(seen, peaks, no_matmul)
        between = bracketed(format_share(end, 3) for end in interval or ())
        told = time_certainty(timing, outcome, seen.alpha, seen.spent)
        return outcome, (
            f"{timing.label} {_rate_words(outcome, interval)}: {format_share(found.value, 3)}{between} of {found.of}, "
            f"wanted at least {format_share(wanted, 3)} ({grouped(found.rate)} {found.unit}, "
            f"{_work_words(timing, found.bound)}; {told})"
        )

    def _unknown(self, seen: Seen) -> Judged | None:
        """Return what is judged without the work or the peaks; None where both are known."""
        timing = seen.timing
        if timing.flops is None:
            if timing.moved_bytes is None:
                return _work_unknown(seen, self.named, "bytes", "flops")
            if timing.moved_bytes == 0:
                return Outcome.NOT_JUDGED, f"{timing.label}: {self.named} says nothing here, it moves 0 bytes"
            if timing.cache not in READS_MEMORY:
                return Outcome.INVALID, (
                    f"{timing.label}: {self.named} cannot be judged with cache={timing.cache!r}, where data need not "
                    "come from memory; measure it cold, or give flops="
                )
        if seen.peaks is None:
            sentence = f"{timing.label}: {self.named} says nothing here, no peak of {timing.device} is known"
            return Outcome.NOT_JUDGED, sentence
        return None

    def _peak_unknown(self, seen: Seen, peaks: Peaks, no_matmul: bool) -> Judged:
        missing = f"{seen.dtype or 'its'} matmuls" if no_matmul else "memory"
        said = f" ({'; '.join(peaks.remarks)})" if peaks.remarks else ""
        return Outcome.NOT_JUDGED, (
            f"{seen.timing.label}: {self.named} says nothing here, the peak of {seen.timing.device} for {missing} is "
            f"not known{said}"
        )

    def found(self, seen: Seen) -> str:
        fraction = _fraction_of(seen)
        return "" if fraction is None else format_share(fraction.value, 3)

    def cell(self, item: Measurement) -> str:
        """Return `>= 80 % of peak`."""
        return f">= {100 * self.asked:.4g} % of peak"


LIMITS = (MinGbps, MinTflops, MinPeakFraction)


def _fraction_of(seen: Seen) -> Fraction | None:
    return None if seen.peaks is None else peak_fraction(seen.timing, seen.peaks, seen.dtype, seen.read_share)


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


def _rate_words(outcome: Outcome, interval: Interval | None) -> str:
    return words_for(outcome, interval, "is fast enough", "is too slow")


def _work_words(timing: Timing, bound: Bound) -> str:
    amount, unit = (timing.moved_bytes, "B") if bound == "memory" else (timing.flops, "FLOP")
    return f"{format_decimal(amount or 0, unit)} in {format_time(timing.median_us)}"
