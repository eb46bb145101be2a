"""Limits on rates: bytes and operations a second, and the part of the GPU's peak that they are."""

from dataclasses import dataclass

import msgspec

from pytest_gpubench.limits import Limits
from pytest_gpubench.results.model import Outcome, Peaks, Timing, Verdict
from pytest_gpubench.results.roofline import READS_MEMORY, Bound, Fraction, matmul_tflops, peak_fraction, too_fast
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import bracketed, format_decimal, format_share, format_time, grouped
from pytest_gpubench.verdict.decision import Judged, at_least, time_certainty, time_interval, verdicts_of, words_for

__tracebackhide__ = True


@dataclass(frozen=True)
class RateRules:
    """Rules for judging the rates of one kind of call; each limit fails wrongly with probability at most alpha."""

    alpha: float
    enforced: bool = True
    peaks: Peaks | None = None
    """The peaks of this GPU; None if they could not be measured, as on a CPU."""
    dtype: str | None = None
    """The dtype that is multiplied, as in `peak_fraction`."""
    read_share: float | None = None
    """As in `peak_fraction`."""
    takes_work: bool = True
    """True if the measuring call takes bytes= and flops=."""

    def judge(self, timing: Timing, limits: Limits, spent: float | None = None) -> tuple[Verdict, ...]:
        """Judge a measured timing by each limit on a rate.

        spent: the part of alpha that this look takes; None is all of it. INVALID is a rate that cannot be true, and one
        of unknown bytes or flops; NOT_JUDGED, a part of a peak that is not known, and the rate of what moves no byte.
        """
        spent = self.alpha if spent is None else spent
        asked = {name: getattr(limits, name) for name in ("min_gbps", "min_tflops", "min_peak_fraction")}
        asked = {name: value for name, value in asked.items() if value is not None}
        impossible = too_fast(timing, self.peaks, self.dtype, spent) if self.peaks is not None and asked else None
        judged: list[tuple[str, object, Judged]] = []
        for name, value in asked.items():
            if impossible is not None:
                judged.append((name, value, (Outcome.INVALID, impossible)))
            elif name == "min_peak_fraction":
                judged.append((name, value, self._judge_fraction(timing, value, spent)))
            else:
                judged.append((name, value, self._judge_rate(timing, name, value, spent)))
        fraction = self._fraction(timing) if "min_peak_fraction" in asked else None
        found = {} if fraction is None else {"min_peak_fraction": format_share(fraction.value, 3)}
        return verdicts_of(judged, self.enforced, found)

    def _fraction(self, timing: Timing) -> Fraction | None:
        return None if self.peaks is None else peak_fraction(timing, self.peaks, self.dtype, self.read_share)

    def _judge_rate(self, timing: Timing, name: str, wanted: float, spent: float) -> Judged:
        in_bytes = name == "min_gbps"
        rate, unit = (timing.gbps, "GB/s") if in_bytes else (timing.tflops, "TFLOP/s")
        if rate is None:
            return self._work_unknown(timing, f"{name}={wanted:g}", "bytes" if in_bytes else "flops")
        if timing.moved_bytes == 0 and in_bytes:
            return Outcome.NOT_JUDGED, f"{timing.label}: {name}={wanted:g} says nothing here, it moves 0 bytes"
        bound: Bound = "memory" if in_bytes else "matmul"
        interval = _rate_interval(timing, bound, spent)
        outcome = at_least(interval, wanted)
        between = bracketed(map(grouped, interval or ()))
        return outcome, (
            f"{timing.label} {_words(outcome, interval)}: {grouped(rate)} {unit}{between}, wanted at least "
            f"{grouped(wanted)} {unit} ({_work(timing, bound)}; {time_certainty(timing, outcome, self.alpha, spent)})"
        )

    def _judge_fraction(self, timing: Timing, wanted: float, spent: float) -> Judged:
        asked = f"min_peak_fraction={wanted:g}"
        if timing.flops is None:
            if timing.moved_bytes is None:
                return self._work_unknown(timing, asked, "bytes", "flops")
            if timing.moved_bytes == 0:
                return Outcome.NOT_JUDGED, f"{timing.label}: {asked} says nothing here, it moves 0 bytes"
            if timing.cache not in READS_MEMORY:
                return Outcome.INVALID, (
                    f"{timing.label}: {asked} cannot be judged with cache={timing.cache!r}, where data need not come "
                    "from memory; measure it cold, or give flops="
                )
        if self.peaks is None:
            sentence = f"{timing.label}: {asked} says nothing here, no peak of {timing.device} is known"
            return Outcome.NOT_JUDGED, sentence
        found = self._fraction(timing)
        interval = _rate_interval(timing, found.bound, spent, found.peak) if found else None
        outcome = at_least(interval, wanted)
        no_matmul = timing.flops is not None and matmul_tflops(self.peaks, self.dtype) is None
        if found is None or (no_matmul and outcome is Outcome.FAIL):  # of a matmul's peak it may be a larger part
            return self._peak_unknown(timing, asked, self.peaks, no_matmul)
        between = bracketed(format_share(end, 3) for end in interval or ())
        return outcome, (
            f"{timing.label} {_words(outcome, interval)}: {format_share(found.value, 3)}{between} of {found.of}, "
            f"wanted at least {format_share(wanted, 3)} ({grouped(found.rate)} {found.unit}, "
            f"{_work(timing, found.bound)}; {time_certainty(timing, outcome, self.alpha, spent)})"
        )

    def _work_unknown(self, timing: Timing, asked: str, *needed: str) -> Judged:
        keywords, unknown = " or ".join(f"{name}=" for name in needed), " and ".join(needed)
        advice = (
            f"give {keywords} where it is measured" if self.takes_work else f"measure it by itself, with {keywords}"
        )
        return Outcome.INVALID, f"{timing.label}: {asked} cannot be judged, its {unknown} are not known: {advice}"

    def _peak_unknown(self, timing: Timing, asked: str, peaks: Peaks, no_matmul: bool) -> Judged:
        missing = f"{self.dtype or 'its'} matmuls" if no_matmul else "memory"
        said = f" ({'; '.join(peaks.remarks)})" if peaks.remarks else ""
        return Outcome.NOT_JUDGED, (
            f"{timing.label}: {asked} says nothing here, the peak of {timing.device} for {missing} is not known{said}"
        )


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


def _words(outcome: Outcome, interval: Interval | None) -> str:
    return words_for(outcome, interval, "is fast enough", "is too slow")


def _work(timing: Timing, bound: Bound) -> str:
    amount, unit = (timing.moved_bytes, "B") if bound == "memory" else (timing.flops, "FLOP")
    return f"{format_decimal(amount or 0, unit)} in {format_time(timing.median_us)}"
