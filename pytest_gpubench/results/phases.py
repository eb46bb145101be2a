"""The times of a call's parts: regions marked inside of it, and phases called by themselves."""

import statistics

import msgspec

from pytest_gpubench.errors import BadRequest, NotMeasured
from pytest_gpubench.spelling import Spelled
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import format_share, format_time, ratio_text

OUTSIDE = "(outside)"
"""The path of what belongs to no region."""
CLOSE_SUM = 0.01
"""A sum this near to the whole, as far as can be told, is called equal."""

OVER_WHOLE = (
    "each phase alone starts with a cold cache, while in the whole it finds what the last one left there; "
    "and a whole may overlap or fuse what the phases launch one by one"
)
UNDER_WHOLE = (
    "the whole does work that no phase holds, or its phases are in each other's way: they share cache and clocks"
)


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what one region of a call took, each rep's time in whole nanoseconds.

    The own times of all regions, OUTSIDE among them, add up to the whole call exactly, in every rep.
    """

    path: str
    """Its name behind those of the regions around it: `forward/attention`."""
    calls: int
    """Its entries in one call; 0 for OUTSIDE."""
    total_ns: tuple[int, ...]
    """Per rep, with the regions nested in it."""
    own_ns: tuple[int, ...]
    """Per rep, without them."""
    share: float
    """Its total over the whole, of all reps together."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def depth(self) -> int:
        """The number of regions around it."""
        return self.path.count("/")

    @property
    def median_us(self) -> float:
        """The median of its totals, in microseconds."""
        return statistics.median(self.total_ns) / 1e3

    @property
    def own_median_us(self) -> float:
        """The median of its own times, in microseconds."""
        return statistics.median(self.own_ns) / 1e3


class Phase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what one phase took, called by itself; the samples are in the measurement of the same label."""

    name: str
    median_us: float
    interval: Interval | None
    """The 95 % interval of the median; None with fewer than six reps."""
    share: float
    """Its median over the sum of all phases' medians; 1 for the whole."""
    elements_per_s: float | None = None
    """None where the number of elements was not given."""
    flags: tuple[str, ...] = ()


class Phases(Spelled, msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what `gpu_bench.phases` found: each phase, their sum, and how that compares with the whole.

    Reading a number where nothing was measured raises `NotMeasured`.
    """

    title: str
    """The whole's label; that of the phases where there is no whole."""
    timer: str
    cache: str
    device: str
    phases: tuple[Phase, ...] = ()
    whole: Phase | None = None
    """The call of all phases in one piece; None if it was not given."""
    sum_us: float = 0.0
    """The median over the rounds of what all phases took together, in microseconds."""
    sum_interval: Interval | None = None
    sum_elements_per_s: float | None = None
    ratio: float | None = None
    """The sum of the phases over the whole: the median over the rounds; None without a whole."""
    ratio_interval: Interval | None = None
    """Its 95 % interval; None with fewer than six rounds."""
    rounds: int = 0
    """The rounds in which all were called in turn, each twice."""
    seed: int = 0
    """The seed of the order in which they were called."""
    elements: int | None = None
    """The elements that a call processes, as given by the test."""
    unmeasured: str | None = None
    """The reason why there are no numbers; None where there are."""

    @property
    def measured(self) -> bool:
        """True if there are numbers."""
        return bool(self.phases)

    def __getitem__(self, name: str) -> Phase:
        if not self.measured:
            raise NotMeasured(f"phases[{name!r}] has no numbers: {self.unmeasured}")
        for phase in self.phases:
            if phase.name == name:
                return phase
        known = ", ".join(phase.name for phase in self.phases)
        raise BadRequest(f"phases[{name!r}]: there is no such phase, only {known}")

    @property
    def adds_up(self) -> bool | None:
        """True if the phases' sum may be within 1 % of the whole, as far as can be told; None without a whole."""
        if self.ratio is None:
            return None
        low, high = self.ratio_interval or (self.ratio, self.ratio)
        return low <= 1 + CLOSE_SUM and high >= 1 - CLOSE_SUM

    @property
    def explanation(self) -> str:
        """The usual reason for a difference such as this one between sum and whole; empty if they agree."""
        if self.ratio is None or self.adds_up:
            return ""
        return OVER_WHOLE if self.ratio > 1 else UNDER_WHOLE

    @property
    def sentence(self) -> str:
        """The comparison of the phases' sum with the whole, in a sentence; empty without a whole."""
        if self.whole is None or self.ratio is None:
            return ""
        found = (
            f"the phases take {ratio_text(self.ratio, self.ratio_interval)} the time of {self.whole.name} "
            f"({format_time(self.sum_us)} against {format_time(self.whole.median_us)})"
        )
        return f"{found}: {self.explanation}" if self.explanation else found

    def __str__(self) -> str:
        if not self.measured:
            return f"{self.title}: not measured ({self.unmeasured})"
        parts = [f"{each.name} {format_time(each.median_us)} ({format_share(each.share, 3)})" for each in self.phases]
        return f"{self.title}: {', '.join(parts)}" + (f"; {self.sentence}" if self.sentence else "")


def ancestors_of(path: str) -> list[str]:
    """Return the paths of all regions around a region, outermost first, and its own."""
    parts = path.split("/")
    return ["/".join(parts[: length + 1]) for length in range(len(parts))]
