"""A timing and what is made of it: verdicts, speedups, the cost of its launches, its change since a saved run."""

from collections.abc import Iterable
from enum import Enum
from typing import Literal

import msgspec

from pytest_gpubench.errors import BadRequest, NotMeasured
from pytest_gpubench.results.model.timing import Timing
from pytest_gpubench.results.observed import Observed
from pytest_gpubench.spelling import Spelled
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import count


class Outcome(str, Enum):
    """The outcome of judging a limit."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    """There is no number to judge that is known to be right: the test fails, whatever the limit."""
    NOT_JUDGED = "not judged"
    """The limit says nothing about this device."""

    @property
    def badness(self) -> int:
        """1 for PASS, and more for what is worse."""
        return len(WORST_FIRST) - WORST_FIRST.index(self)


WORST_FIRST = (Outcome.INVALID, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.NOT_JUDGED, Outcome.PASS)
VALIDITY = "validity"
"""The kind of a verdict on the test as a whole: there is no number that is known to be right."""


def with_reasons(sentence: str, reasons: Iterable[str]) -> list[str]:
    """Return a sentence, and a line for each of its reasons."""
    return [sentence, *(f"with it: {each}" for each in reasons)]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold the judgement of one timing by one limit."""

    kind: str
    """The limit's name: `max_rel_std`; VALIDITY for the test as a whole."""
    asked: str
    """The limit's value as it was asked for: `0.02`; for VALIDITY, all limits of the test, or what else was wanted."""
    outcome: Outcome
    sentence: str
    enforced: bool = True
    """True if a FAIL fails the test: not on a CPU that nobody asked for by name, nor where it was expected to fail."""
    found: str = ""
    """The measured value with its unit, where the timing does not hold it; empty where it does, or nothing is known."""
    reasons: tuple[str, ...] = ()
    """Differences from what it was compared with, the most telling first: evidence, not a proof."""

    @property
    def lines(self) -> list[str]:
        """The sentence, and a line for each reason."""
        return with_reasons(self.sentence, self.reasons)

    @property
    def limit(self) -> str:
        """The limit as a marker states it: `max_rel_std=0.02`."""
        return self.asked if self.kind == VALIDITY else f"{self.kind}={self.asked}"

    @property
    def fails_test(self) -> bool:
        """True if it fails its test, whatever the settings say of other outcomes."""
        return self.enforced and self.outcome in (Outcome.FAIL, Outcome.INVALID)

    @property
    def is_of_past(self) -> bool:
        """True if the limit is on the change since a saved run."""
        return self.kind in ("max_regression", "compare_fail")


class Speedup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold how many times as fast as its reference a candidate is."""

    ratio: float
    """The reference's time over the candidate's, the median over all pairs of calls in a quad and the quads' means."""
    interval: Interval | None
    """The ratio's interval, right at all looks together; None if there are too few quads for alpha."""
    quads: int
    alpha: float
    reference: str
    reference_us: float
    seed: int
    log_ratios: tuple[float, ...] = ()
    """Per quad, the mean logarithm of the reference's time over the candidate's, of its fastest calls where the host's
    clock measures; empty in what kept none."""


class Overhead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold what the launching of one call costs; medians in microseconds."""

    label: str
    host_us: float | None
    """The host's time for a call whose launches are only queued; None for one that waits for the GPU."""
    busy_us: float
    """The time in which at least one of its kernels ran, by the profiler."""
    span_us: float
    """From its first kernel's start to its last one's end, by the profiler, launched on an idle GPU."""
    eager_us: float
    """The time until a call on an idle GPU has ended, by events."""
    graph_us: float | None
    """The same for the replay of a graph of it; None where it cannot be captured."""
    no_graph: str = ""
    """The reason why it cannot be captured; empty if it can."""

    @property
    def gap_us(self) -> float:
        """The GPU's waiting time inside the call, for the next launch or between its kernels."""
        return max(0.0, self.span_us - self.busy_us)

    @property
    def graph_speedup(self) -> float | None:
        """The call's time over its replay's, both by events on an idle GPU; None if it cannot be captured."""
        return self.eager_us / self.graph_us if self.graph_us else None


SAME_CODE = "same code"
"""The metric of a change where a saved call and today's launch the same code alike: nothing is timed."""


class PastChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold the change of a measurement since a saved run."""

    baseline: str
    """The saved run's name, or its file's."""
    metric: str
    """The statistic compared: "speedup", "median", "mean", "q1" or "q3"; "replayed time", or "same code"."""
    ratio: float
    """New over old, above 1 where it is slower; of a speedup, old over new; 1 of the same code, which is not timed."""
    interval: Interval | None
    """The ratio's interval; None if there are too few samples for alpha, and of the same code."""
    old_us: float
    """The median time in the saved run."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hold one timing and the verdicts on it."""

    timing: Timing
    verdicts: tuple[Verdict, ...] = ()
    speedup: Speedup | None = None
    """Against its reference, for a candidate of a comparison."""
    differences: tuple[str, ...] = ()
    """The check of each of a candidate's outputs against the reference's: `out PASS max_diff=1.2e-07`."""
    role: Literal["", "reference", "candidate"] = ""
    """Its role in a comparison, whose candidates follow their reference; empty outside of comparisons."""
    example: str = ""
    """The arguments that hypothesis called the test with, as keywords; empty for a test without @given."""
    overhead: Overhead | None = None
    """The cost of launching it; None without `timers=`."""
    change: PastChange | None = None
    """Against a saved run; None where it was compared with none."""
    observed: Observed | None = None
    """Its waits, memory and kernels in an untimed call; None where nothing asked for them."""
    call: str = ""
    """The name of its call in the storage, which can be replayed; empty where none was kept."""
    no_call: str = ""
    """The reason why it has no call, where one was to be kept."""

    @property
    def why_invalid(self) -> str:
        """The reason why there is no number for it that is known to be right; empty where no verdict says so."""
        return next((each.sentence for each in self.verdicts if each.outcome is Outcome.INVALID), "")


class Comparison(Spelled, msgspec.Struct, frozen=True, kw_only=True):
    """Hold what `gpu_bench.compare` found: the reference, and each candidate by name.

    With a single candidate its timing, speedup, verdicts and differences are attributes of the comparison itself.
    """

    reference: Timing
    candidates: dict[str, Measurement]
    reference_overhead: Overhead | None = None
    """The cost of launching the reference; None without `timers=`."""

    def __str__(self) -> str:
        lines = []
        for name, item in self.candidates.items():
            found = item.speedup
            ratio = item.timing.unmeasured if found is None else f"{found.ratio:.4g}x ({count(found.quads, 'quad')})"
            lines.append(f"{name} against {self.reference.label}: {ratio}")
        return "\n".join(lines)

    def __getitem__(self, name: str) -> Measurement:
        if name not in self.candidates:
            raise BadRequest(f"comparison[{name!r}]: there is no such candidate, only {', '.join(self.candidates)}")
        return self.candidates[name]

    @property
    def timing(self) -> Timing:
        """The only candidate's timing."""
        return self._only().timing

    @property
    def speedup(self) -> float:
        """The only candidate's speedup: the reference's time over its own."""
        return self._speedup().ratio

    @property
    def interval(self) -> Interval | None:
        """The interval of the only candidate's speedup; None where there are too few quads for alpha."""
        return self._speedup().interval

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The only candidate's verdicts."""
        return self._only().verdicts

    @property
    def differences(self) -> tuple[str, ...]:
        """The check of each output of the only candidate against the reference's."""
        return self._only().differences

    def _only(self) -> Measurement:
        if len(self.candidates) != 1:
            first, *others = self.candidates
            raise BadRequest(
                f"there are several candidates ({', '.join([first, *others])}): read comparison[{first!r}]"
            )
        return next(iter(self.candidates.values()))

    def _speedup(self) -> Speedup:
        found = self._only().speedup
        if found is None:
            raise NotMeasured(f"there is no speedup: {self._only().timing.unmeasured}")
        return found
