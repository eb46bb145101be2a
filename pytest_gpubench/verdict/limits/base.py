"""A limit of the `perf` mark: a class for each, with all that is particular to it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, Literal

from pytest_gpubench.results.model import Measurement, Outcome, Peaks, Timing
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.stats.autocorrelation import drift_of, independent_for
from pytest_gpubench.stats.summary import Interval, least_count
from pytest_gpubench.units import format_share, repr_of
from pytest_gpubench.verdict.decision import Judged, certainty, words_for

Need = Literal[
    "reference", "totals", "bytes", "flops", "peaks", "observation", "resources", "counters", "repeats", "baseline"
]
"""The facts by which a limit is judged beside a timing: the reference's time, the totals of recorded calls, the bytes
and operations of a call, the peaks of the GPU, what `structure.observe` finds, the resources of its kernels, what they
count, more calls, a saved run."""
Stage = Literal["time", "rate", "speedup", "totals", "structure", "counters", "baseline"]
"""The time of a limit's verdict: as reps are added (its time, its rates), as quads are added, over all recorded calls,
after the reps, once its counters are taken, after the test."""


@dataclass(frozen=True)
class RecordedTotals:
    """The total times of recorded calls."""

    ratio: float
    """The reference's over the candidate's."""
    interval: Interval | None
    """The ratio's interval; None where there are too few reps of some."""
    reference_us: float
    shapes: int
    calls: int


@dataclass(frozen=True)
class Seen:
    """The facts known of a call when its limits are judged."""

    timing: Timing
    alpha: float = 0.0
    """Each limit fails wrongly with probability at most this."""
    spent: float = 0.0
    """The part of alpha that this look takes."""
    peaks: Peaks | None = None
    """The peaks of this GPU; None if they could not be measured, as on a CPU."""
    dtype: str | None = None
    """The dtype that is multiplied, a key of `Peaks.matmul_tflops`."""
    read_share: float | None = None
    """The part of the bytes that are read, as in `memory_gbps`."""
    takes_work: bool = True
    """True if the measuring call takes bytes= and flops=."""
    observed: Observed | None = None
    """The result of `structure.observe`; None where nobody looked, or on a CPU."""
    differing: Sequence[str] | None = None
    """The result of `structure.is_deterministic`; None where nobody looked."""
    totals: RecordedTotals | None = None
    """Those of recorded calls; None where these were not timed."""


@dataclass(frozen=True)
class Limit:
    """One limit, with its value as it was asked for."""

    asked: Any

    name: ClassVar[str]
    """The keyword of the mark."""
    help: ClassVar[str] = ""
    """The line about it in `pytest --markers`; empty where it is an option, and no keyword of the mark."""
    stage: ClassVar[Stage] = "structure"
    needed: ClassVar[frozenset[Need]] = frozenset()
    is_noisy: ClassVar[bool] = False
    """True if noise can break it, each judgement with a probability of alpha; other limits are exact."""
    is_on_speed: ClassVar[bool] = False
    """True if it is missed by some part of a time, which the place of a call's memory may explain."""
    holds_throttled: ClassVar[bool] = False
    """True if a GPU keeps it that keeps it throttled, or beside other processes."""
    has_parts: ClassVar[bool] = False
    """True if it may have several verdicts, each on a part of it."""

    def __post_init__(self) -> None:
        self.parse(self.asked)

    @staticmethod
    def parse(asked: Any, /) -> Any:
        """Return the value that was asked for; raise ValueError saying what is wrong with it."""
        raise NotImplementedError

    @property
    def value(self) -> Any:
        """The value in the form in which it is judged."""
        return self.parse(self.asked)

    @property
    def named(self) -> str:
        """It in a sentence: `max_registers=64`."""
        return f"{self.name}={repr_of(self.asked)}"

    @property
    def needs(self) -> frozenset[Need]:
        """The condition that it is judged by, with this value."""
        return self.needed

    @property
    def counters(self) -> tuple[str, ...]:
        """The counters that it is judged by."""
        return ()

    def parts(self) -> Sequence["Limit"]:
        """Return the limits that have a verdict each."""
        return [self]

    def judge(self, seen: Seen) -> Judged:
        """Return the outcome and its sentence; of a speedup and a saved run others judge."""
        raise NotImplementedError

    def found(self, seen: Seen) -> str:
        """Return the measured value with its unit where the timing does not hold it; else empty."""
        return ""

    def cell(self, item: Measurement) -> str:
        """Return it as a table writes it: `<= 40 us (H200)`, with the measured value where no other column has it."""
        raise NotImplementedError

    def number(self, timing: Timing) -> float | None:
        """Return its value for a timing as a number; None where it has none."""
        value = self.asked
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def missed_by(self, item: Measurement) -> float:
        """Return by what part of a time it is missed, below 0 where it is kept; nan where that is not known."""
        return math.nan

    @staticmethod
    def least_reps(alpha: float, /) -> int:
        """Return the fewest reps that can decide it at this alpha; 0 where any number can."""
        return 0


ALMOST_A_GPU = 0.8
"""The likeness, by difflib, from which on a name is taken for a misspelling: that of H100 and H200 is 0.75."""

KINDS = frozenset({"cpu", "cuda", "gpu"})


def not_for_device(limit: Limit, timing: Timing) -> Judged:
    """Return what is judged by limits on GPUs of which this is none, with a word after a name that may be its own."""
    found = [(name, get_close_matches(name, timing.device.split(), 1, ALMOST_A_GPU)) for name in limit.asked]
    named = ", ".join(f"{name} (did you mean {alike[0]}?)" if alike else name for name, alike in found)
    remedy = ": give words of a device's name, not its kind" if KINDS & {name.lower() for name in limit.asked} else ""
    return Outcome.NOT_JUDGED, f"{timing.label}: no {limit.name} for {timing.device}, only for {named}{remedy}"


def judged_time(seen: Seen, interval: Interval | None, outcome: Outcome, found: str, work: str = "") -> Judged:
    """Return an outcome with its sentence: what was found by the interval of the time, and how sure that is."""
    timing, samples_us = seen.timing, seen.timing.samples_us
    told = certainty(timing.reps, independent_for("median", samples_us), least_count(seen.spent), seen.alpha)
    if outcome is Outcome.INCONCLUSIVE and (drift_us := drift_of(samples_us)):
        told += f"; the reps drift by {format_share(drift_us / timing.median_us)}"
    return outcome, f"{timing.label} {words_for(outcome, interval)}: {found} ({work}{told})"


def share_missed(wanted: float | None, found: float | None) -> float:
    """Return by what part something found is less than wanted; nan where either is not known."""
    return wanted / found - 1 if wanted and found else math.nan


def only(value: Mapping[str, float]) -> str:
    """Return the cell of a limit that says nothing here: the names it is for."""
    return f"only {', '.join(value)}"
