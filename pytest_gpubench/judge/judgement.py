"""The judgement of a candidate, as plain data: what a program reads as JSON."""

import statistics
import time
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from pytest_gpubench.judge.channel import LONGEST_TEXT
from pytest_gpubench.results.model import DeviceFacts, Verdict
from pytest_gpubench.stats.summary import Interval, median_interval
from pytest_gpubench.units import shortened

VERSION = 4
Status = Literal[
    "pass", "inconclusive", "fail", "invalid", "wrong", "crash", "timeout", "out_of_memory", "compile_error", "refused"
]
STATUSES: tuple[Status, ...] = get_args(Status)
"""From the best to the worst, which counts where there are several cases."""
TIMED = STATUSES[:3]
"""The statuses of a candidate that is right and was timed."""


class Ended(Exception):
    """Raised to end the judging of a candidate: with its status, and why."""

    def __init__(self, status: Status, reason: str, detail: str = "") -> None:
        self.status, self.reason, self.detail = status, shortened(reason, LONGEST_TEXT), shortened(detail, LONGEST_TEXT)
        super().__init__(self.reason)


class Stopwatch:
    """The seconds of phases that follow each other."""

    def __init__(self) -> None:
        self.laps_s: dict[str, float] = {}
        self._last_s = time.monotonic()

    def lap(self, phase: str) -> None:
        """End a phase, and begin the next."""
        now_s = time.monotonic()
        self.laps_s[phase], self._last_s = round(now_s - self._last_s, 4), now_s


class Time(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a median time in microseconds, with its 95 % interval."""

    median_us: float
    interval: Interval | None
    samples_us: tuple[float, ...]

    @property
    def ends(self) -> Interval:
        """The interval, or the median where there are too few samples for one."""
        return self.interval or Interval(self.median_us, self.median_us)


def time_of(samples_us: Sequence[float], alpha: float = 0.05) -> Time:
    """Return the median of samples, with its interval."""
    rounded = tuple(round(each, 3) for each in samples_us)
    return Time(
        median_us=statistics.median(samples_us), interval=median_interval(samples_us, alpha), samples_us=rounded
    )


class CaseJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the findings on one case of the spec; None for those that were not reached."""

    case: str
    status: Status
    reason: str
    detail: str = ""
    """The traceback of an error that the candidate raised."""
    verdicts: tuple[Verdict, ...] = ()
    """On each limit; empty where no time was found."""
    outputs: tuple[str, ...] = ()
    """A line for each output of the first call that was compared."""
    compared: int = 0
    """The calls whose outputs were compared with the reference's."""
    timed_by: Literal["candidate", "referee"] = "candidate"
    """Whose process times a call: the referee's replays it; the candidate's is believed where the spec says so."""
    not_replayed: str = ""
    """The reason why the call was not replayed."""
    ratio: float | None = None
    """The reference's time over the candidate's."""
    interval: Interval | None = None
    candidate_us: Time | None = None
    """One call, by the profiler in the process that times it."""
    reference_us: Time | None = None
    """One call of the reference, by the same timer in the referee's process."""
    clock_us: Time | None = None
    """One replayed call by the referee's clock, less what a replay costs."""
    floor_us: float | None = None
    """The least time in which this GPU's memory moves the inputs and outputs, less the size of its cache."""
    kernels: tuple[str, ...] = ()
    """Kernels of a call, as the process that times it says."""
    phases_s: dict[str, float] = {}
    """The seconds that each phase took: checking, warming up, timing, and by the referee's clock once more."""

    @property
    def score(self) -> float:
        """The lower end of the ratio's interval; 0 without a pass."""
        return self.interval.low if self.status == "pass" and self.interval else 0.0


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the judgement of a candidate."""

    version: int = VERSION
    status: Status
    reason: str
    """A sentence."""
    detail: str = ""
    """A traceback, or the end of what the candidate printed."""
    candidate: str
    candidate_digest: str = ""
    spec: str
    spec_digest: str
    limits: str = ""
    ratio: float | None = None
    """The smallest ratio of all cases; None where a case has none."""
    score: float = 0.0
    """A number to train by: the lower end of the ratio's interval, the smallest of all cases; 0 without a pass."""
    cases: tuple[CaseJudgement, ...] = ()
    device: DeviceFacts | None = None
    isolation: dict[str, str] = {}
    """Limits on the candidate's process by part, and which parts are not available."""
    seconds: float = 0.0
    phases_s: dict[str, float] = {}
    """The seconds that each phase took, in all processes: waiting for a warm one, loading, all cases, ending it."""

    @property
    def passed(self) -> bool:
        """True if the status is pass."""
        return self.status == "pass"

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return msgspec.json.encode(self).decode()
