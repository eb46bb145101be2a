"""How near a call comes to what its GPU can do: rates, this GPU's measured peaks, and limits on both. Pure.

The traffic of a call is the least it can be: the bytes of the distinct memory of its inputs and outputs, each once.
That is too little where a call reads what it overwrites (in place), reads its inputs more than once, or passes data
through memory between kernels; it is too much where parts of the inputs do not matter (a gather, a mask, a slice of
what was passed). With `bytes=` the caller knows better.

A cold call may still leave what it wrote in the L2 cache and so be faster than memory, the more so the less it moves:
an addition of 3 x 64 MiB on an H200 (60 MiB of L2) shows 4620 GB/s, more than a copy of gigabytes. Peaks are therefore
measured at several sizes, and a call is held against the fastest at its own size or above.
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.limits import fraction_limit, positive_number
from pytest_gpubench.results.model import Outcome, Peaks, Timing, Verdict
from pytest_gpubench.stats.speedup import compare
from pytest_gpubench.stats.summary import Interval, least_count, median_interval
from pytest_gpubench.units import choose_time_unit, count, format_time, round_to_digits

__tracebackhide__ = True

OVER_DATASHEET = 1.02
"""No rate is above what the datasheet states by more than this, its clock considered."""
OVER_MEASURED_MEMORY = 1.1
OVER_MEASURED_MATMUL = 1.3
"""How far above the measured peak a rate may be where no datasheet is known: products of zeros, or of few different
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
        return f"{_percent(self.value)} of {self.of}"

    @property
    def of(self) -> str:
        """The peak in words."""
        what = "memory moves" if self.bound == "memory" else f"{self.dtype} matmuls reach"
        return f"the {grouped(self.peak)} {self.unit} that this GPU's {what}"


# what could be reached


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
    if not peaks.memory:
        known = {0.5: peaks.copy_gbps, 1.0: peaks.read_gbps}
        return {share: rate for share, rate in known.items() if rate is not None}
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


# what cannot be


def highest_gbps(peaks: Peaks) -> float | None:
    """Return the rate above which no memory of this GPU can be, in 10^9 bytes a second; None where it is not known."""
    measured = [rate for rate in (peaks.copy_gbps, peaks.read_gbps) if rate is not None]
    known = [OVER_MEASURED_MEMORY * rate for rate in measured]
    if peaks.datasheet_gbps is not None:
        known.append(OVER_DATASHEET * peaks.datasheet_gbps)
    return max(known, default=None)


def highest_tflops(peaks: Peaks, dtype: str | None) -> float | None:
    """Return the rate above which no matmul of this dtype can be; None where it is not known.

    A kernel may round float32 though torch does not, so that it is held against what that allows.
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
            return (
                f"{timing.label} is faster than memory allows: {_bytes(least_bytes)}, what the L2 cache may keep not "
                f"counted, in {format_time(slowest_us)} are {grouped(least_bytes / slowest_us / 1e3)} GB/s, and this "
                f"GPU's memory has at most {grouped(most_gbps)}; does it compute everything in every call? If it has "
                "less to move, say how much with bytes="
            )
    if timing.flops is not None and most_tflops is not None and timing.flops / slowest_us / 1e6 > most_tflops:
        return (
            f"{timing.label} is faster than this GPU multiplies {dtype}: {_flops(timing.flops)} in "
            f"{format_time(slowest_us)} are {grouped(timing.flops / slowest_us / 1e6)} TFLOP/s, and it has at most "
            f"{grouped(most_tflops)}; does it compute everything in every call? If it has less to compute (causal "
            "attention is counted in full), say how much with flops="
        )
    return None


# limits


LIMITS = {"min_gbps": positive_number, "min_tflops": positive_number, "min_peak_fraction": fraction_limit}


def judge_speed(
    timing: Timing,
    alpha: float,
    *,
    min_gbps: float | None = None,
    min_tflops: float | None = None,
    min_peak_fraction: float | None = None,
    peaks: Peaks | None = None,
    dtype: str | None = None,
    read_share: float | None = None,
    enforced: bool = True,
    spent: float | None = None,
    takes_work: bool = True,
) -> tuple[Verdict, ...]:
    """Judge a measured timing by each limit that is not None; each is wrong to fail with probability at most alpha.

    peaks: those of this GPU; None where they could not be measured, on the CPU for one. dtype, read_share: as in
    `peak_fraction`. spent: the part of alpha that this look takes; None is all of it. takes_work: whether what measures
    it takes bytes= and flops=. INVALID is what cannot be true, and what cannot be judged because the bytes or the flops
    are not known; NOT_JUDGED, what this device has no peak for, and the rate of what moves no byte. Raises BadRequest
    for limits that cannot be meant.
    """
    asked = {"min_gbps": min_gbps, "min_tflops": min_tflops, "min_peak_fraction": min_peak_fraction}
    limits = {name: _checked(name, value) for name, value in asked.items() if value is not None}
    spent = alpha if spent is None else spent
    impossible = too_fast(timing, peaks, dtype, spent) if peaks is not None and limits else None

    def verdict(name: str, outcome: Outcome, sentence: str) -> Verdict:
        return Verdict(kind=name, asked=repr(asked[name]), outcome=outcome, sentence=sentence, enforced=enforced)

    def judged(name: str, wanted: float) -> Verdict:
        if impossible is not None:
            return verdict(name, Outcome.INVALID, impossible)
        if name == "min_peak_fraction":
            return verdict(name, *_judge_fraction(timing, wanted, peaks, dtype, read_share, alpha, spent, takes_work))
        return verdict(name, *_judge_rate(timing, name, wanted, alpha, spent, takes_work))

    return tuple(judged(name, wanted) for name, wanted in limits.items())


def _checked(name: str, value: object) -> float:
    try:
        return LIMITS[name](value)
    except ValueError as error:
        raise BadRequest(f"perf({name}={value!r}): {error}") from None


def _judge_rate(
    timing: Timing, name: str, wanted: float, alpha: float, spent: float, takes_work: bool
) -> tuple[Outcome, str]:
    rate, unit, needed = (timing.gbps, "GB/s", "bytes") if name == "min_gbps" else (timing.tflops, "TFLOP/s", "flops")
    if rate is None:
        return Outcome.INVALID, _unknown(timing, f"{name}={wanted:g}", [needed], takes_work)
    if timing.moved_bytes == 0 and name == "min_gbps":
        return Outcome.NOT_JUDGED, f"{timing.label}: {name}={wanted:g} says nothing here, it moves 0 bytes"
    bound: Bound = "memory" if name == "min_gbps" else "matmul"
    interval = _rate_interval(timing, bound, spent)
    outcome = _outcome(interval, wanted)
    between = f" [{', '.join(map(grouped, interval))}]" if interval else ""
    return outcome, (
        f"{timing.label} {_words(outcome, interval)}: {grouped(rate)} {unit}{between}, wanted at least "
        f"{grouped(wanted)} {unit} ({_work(timing, bound)}; {_certainty(timing, alpha, spent)})"
    )


def _judge_fraction(
    timing: Timing,
    wanted: float,
    peaks: Peaks | None,
    dtype: str | None,
    read_share: float | None,
    alpha: float,
    spent: float,
    takes_work: bool,
) -> tuple[Outcome, str]:
    asked = f"min_peak_fraction={wanted:g}"
    if timing.moved_bytes is None and timing.flops is None:
        return Outcome.INVALID, _unknown(timing, asked, ["bytes", "flops"], takes_work)
    if timing.flops is None and timing.moved_bytes == 0:
        return Outcome.NOT_JUDGED, f"{timing.label}: {asked} says nothing here, it moves 0 bytes"
    if timing.flops is None and timing.cache not in READS_MEMORY:
        return Outcome.INVALID, (
            f"{timing.label}: {asked} cannot be judged with cache={timing.cache!r}, where data need not come from "
            "memory; measure it cold, or give flops="
        )
    if peaks is None:
        return Outcome.NOT_JUDGED, f"{timing.label}: {asked} says nothing here, no peak of {timing.device} is known"
    found = peak_fraction(timing, peaks, dtype, read_share)
    interval = _rate_interval(timing, found.bound, spent, found.peak) if found else None
    outcome = _outcome(interval, wanted)
    no_matmul = timing.flops is not None and matmul_tflops(peaks, dtype) is None
    if found is None or (no_matmul and outcome is Outcome.FAIL):  # of a matmul's peak it may be a larger part
        missing = f"{dtype or 'its'} matmuls" if no_matmul else "memory"
        said = f" ({'; '.join(peaks.remarks)})" if peaks.remarks else ""
        return Outcome.NOT_JUDGED, (
            f"{timing.label}: {asked} says nothing here, the peak of {timing.device} for {missing} is not known{said}"
        )
    between = f" [{', '.join(map(_percent, interval))}]" if interval else ""
    return outcome, (
        f"{timing.label} {_words(outcome, interval)}: {_percent(found.value)}{between} of {found.of}, wanted at least "
        f"{_percent(wanted)} ({grouped(found.rate)} {found.unit}, {_work(timing, found.bound)}; "
        f"{_certainty(timing, alpha, spent)})"
    )


def _rate_interval(timing: Timing, bound: Bound, spent: float, peak: float = 1.0) -> Interval | None:
    """Return the interval of the rate over the peak, which is as high as the median time is low.

    Each end is what `Timing` makes of such a median: a limit that was computed from a time is kept in that time.
    """
    times_us = median_interval(timing.samples_us, spent)
    if times_us is None:
        return None
    low, high = (msgspec.structs.replace(timing, samples_us=(end_us,)) for end_us in (times_us.high, times_us.low))
    ends = (low.gbps, high.gbps) if bound == "memory" else (low.tflops, high.tflops)
    return Interval(*(end / peak for end in ends if end is not None))


def _outcome(interval: Interval | None, wanted: float) -> Outcome:
    decided = compare(interval, wanted)
    return {"pass": Outcome.PASS, "fail": Outcome.FAIL, "open": Outcome.INCONCLUSIVE}[decided]


def _words(outcome: Outcome, interval: Interval | None) -> str:
    if interval is None:
        return "cannot be judged"
    words = {Outcome.PASS: "is fast enough", Outcome.FAIL: "is too slow"}
    return words.get(outcome, "is too close to tell")


def _unknown(timing: Timing, asked: str, needed: Sequence[str], takes_work: bool) -> str:
    keywords = " or ".join(f"{name}=" for name in needed)
    advice = f"give {keywords} where it is measured" if takes_work else f"measure it by itself, with {keywords}"
    return f"{timing.label}: {asked} cannot be judged, its {' and '.join(needed)} are not known: {advice}"


def _certainty(timing: Timing, alpha: float, spent: float) -> str:
    least = least_count(spent)
    too_few = f", too few to decide: take at least {least}" if timing.reps < least else ""
    return f"{count(timing.reps, 'rep')}{too_few}, alpha {alpha:g}"


# numbers as text


def grouped(value: float) -> str:
    """Write a number with four digits, its thousands apart: 2,310."""
    whole, point, decimals = round_to_digits(value, 4).partition(".")
    return f"{int(whole):,}{point}{decimals}"


def _work(timing: Timing, bound: str) -> str:
    amount = _bytes(timing.moved_bytes or 0) if bound == "memory" else _flops(timing.flops or 0)
    return f"{amount} in {format_time(timing.median_us, choose_time_unit([timing.median_us]))}"


def _bytes(size: float) -> str:
    return _scaled(size, ("B", "kB", "MB", "GB", "TB"))


def _flops(number: float) -> str:
    return _scaled(number, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"))


def _scaled(number: float, units: Sequence[str]) -> str:
    """Write a number with three digits in the largest decimal unit in which it is at least 1, as it is printed."""
    place = 0 if number < 1 else int(math.log10(float(f"{number:.2e}")) / 3 + 1e-9)
    place = min(place, len(units) - 1)
    return f"{round_to_digits(number / 1000**place, 3)} {units[place]}"


def _percent(fraction: float) -> str:
    return f"{round_to_digits(100 * fraction, 3)} %"
