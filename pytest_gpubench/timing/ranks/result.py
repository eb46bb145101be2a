"""The times of each rank, and of all together: in each rep the slowest counts."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pytest_gpubench.errors import MeasurementError, NotMeasured
from pytest_gpubench.results.model import Timing
from pytest_gpubench.timing.ranks.job import bus_bytes


@dataclass(frozen=True)
class Ranks:
    """The times of a call over several ranks."""

    timing: Timing
    """In each rep that of the slowest rank; its `gbps` is the bus bandwidth, where the collective is known."""
    ranks: tuple[Timing, ...] = ()
    """The timing of each rank; empty if nothing was measured."""
    message_bytes: int | None = None

    @property
    def medians_us(self) -> tuple[float, ...]:
        """The median of each rank."""
        return tuple(timing.median_us for timing in self.ranks)

    @property
    def skew_us(self) -> float:
        """The median, over the reps, of how much longer the slowest rank takes than the fastest."""
        if not self.ranks:
            raise NotMeasured(f"{self.timing.label!r} has no numbers: {self.timing.unmeasured}")
        columns = zip(*(timing.samples_us for timing in self.ranks), strict=True)
        gaps: list[float] = [max(column) - min(column) for column in columns]
        return statistics.median(gaps)

    @property
    def bus_gbps(self) -> float | None:
        """The bytes that each rank's link carries over the median time, in 10^9 a second; None where not known."""
        return self.timing.gbps

    @property
    def algorithm_gbps(self) -> float | None:
        """The bytes of the message over the median time, in 10^9 a second; None where not known."""
        return None if self.message_bytes is None else self.message_bytes / self.timing.median_us / 1e3

    def __str__(self) -> str:
        if not self.ranks:
            return str(self.timing)
        medians = ", ".join(f"{median_us:.2f}" for median_us in self.medians_us)
        bus = f", {self.bus_gbps:.1f} GB/s on the bus" if self.bus_gbps is not None else ""
        return f"{self.timing}; by rank {medians} us, skew {self.skew_us:.2f} us{bus}"


def combine(timings: Sequence[Timing], collective: str | None = None, message_bytes: int | None = None) -> Ranks:
    """Combine the timings of all ranks: in each rep the slowest counts.

    Kernels, and all else that is not known by rep, are those of the rank with the longest median. Raises
    MeasurementError unless all ranks took each rep.
    """
    reps = {timing.reps for timing in timings}
    if len(reps) != 1 or reps == {0}:
        found = ", ".join(str(timing.reps) for timing in timings)
        raise MeasurementError(f"the ranks of {timings[0].label!r} did not all take the same reps: they took {found}")
    samples = list(zip(*(timing.samples_us for timing in timings), strict=True))
    slowest = [max(range(len(timings)), key=column.__getitem__) for column in samples]

    def of_slowest(values: Sequence[Sequence[float]]) -> tuple[float, ...]:
        return tuple(values[rank][rep] for rep, rank in enumerate(slowest)) if all(values) else ()

    moved = None
    if collective is not None and message_bytes is not None:
        moved = bus_bytes(collective, message_bytes, len(timings))
    timing = msgspec.structs.replace(
        max(timings, key=lambda timing: timing.median_us),
        samples_us=tuple(map(max, samples)),
        busy_us=of_slowest([timing.busy_us for timing in timings]),
        span_us=of_slowest([timing.span_us for timing in timings]),
        sm_clock_mhz=of_slowest([timing.sm_clock_mhz for timing in timings]),
        throttle_reasons=tuple(sorted({reason for timing in timings for reason in timing.throttle_reasons})),
        flags=tuple(dict.fromkeys(flag for timing in timings for flag in timing.flags)),
        discarded=timings[0].discarded,  # a rep is thrown away by all of them
        remeasured=timings[0].remeasured,
        elapsed_s=max(timing.elapsed_s for timing in timings),
        moved_bytes=moved,
    )
    return Ranks(timing, tuple(timings), message_bytes)
