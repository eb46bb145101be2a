"""The times of each rank, and of all together: in each rep the slowest counts."""

import statistics
from dataclasses import dataclass

from pytest_gpubench.errors import NotMeasured
from pytest_gpubench.results.model import Timing


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
