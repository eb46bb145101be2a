"""The limit on the speedup over a reference, judged look by look."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_gpubench.bounds import positive_number
from pytest_gpubench.limits import number_by_name
from pytest_gpubench.results.model import Measurement, Outcome, Speedup, Timing, Verdict
from pytest_gpubench.stats.speedup import Quad, SpeedupEstimate, least_reps, speedup_of
from pytest_gpubench.units import choose_time_unit, count, format_time, ratio_text, round_to_digits
from pytest_gpubench.verdict.decision import Judged, at_least, judged_by, words_for
from pytest_gpubench.verdict.limits.base import Limit, RecordedTotals, Seen, only, share_missed


class MinSpeedup(Limit):
    """The reference's time over the candidate's is at least this; `verdict.speedup` judges it as quads are added."""

    name = "min_speedup"
    help = "the reference's time over the candidate's in gpu_bench.compare, at least: a number, or one per variant"
    stage = "speedup"
    needed = frozenset({"reference"})
    is_noisy = is_on_speed = True
    parse = staticmethod(number_by_name("variants", "{'triton': 1.5, 'compiled': 1.2}"))
    least_reps = staticmethod(least_reps)

    def number(self, timing: Timing) -> float | None:
        return self.asked.get(timing.label) if isinstance(self.asked, Mapping) else super().number(timing)

    def cell(self, item: Measurement) -> str:
        wanted = self.number(item.timing)
        return only(self.asked) if wanted is None else f">= {wanted:.10g}x"

    def missed_by(self, item: Measurement) -> float:
        return share_missed(self.number(item.timing), item.speedup.ratio if item.speedup else None)


class MinWeightedSpeedup(Limit):
    """The reference's total time over the candidate's, of all recorded calls, is at least this."""

    name = "min_weighted_speedup"
    help = "the reference's total time over the candidate's in gpu_bench.compare_recorded, at least"
    stage = "totals"
    needed = frozenset({"reference", "totals"})
    is_noisy = is_on_speed = True
    parse = staticmethod(positive_number)

    def judge(self, seen: Seen) -> Judged:
        totals, wanted = seen.totals, self.asked
        if totals is None:
            why = seen.timing.unmeasured or "nothing was timed"
            return Outcome.NOT_JUDGED, f"the total of the recorded calls was not judged: {why}"
        outcome, unit = at_least(totals.interval, wanted), choose_time_unit([totals.reference_us])
        few = " with too few reps of some" if totals.interval is None else ""
        return outcome, (
            f"the total of {count(totals.calls, 'recorded call')} {_speedup_words(totals, outcome)} the "
            f"reference: {self.found(seen)}, wanted at least {wanted:.10g}x "
            f"({format_time(totals.reference_us / totals.ratio, unit)} against "
            f"{format_time(totals.reference_us, unit)}, {judged_by(count(totals.shapes, 'shape') + few, seen.alpha)})"
        )

    def found(self, seen: Seen) -> str:
        return "" if seen.totals is None else ratio_text(seen.totals.ratio, seen.totals.interval, limit=self.asked)

    def cell(self, item: Measurement) -> str:
        return f"all shapes >= {self.asked:.10g}x"


LIMITS = (MinSpeedup, MinWeightedSpeedup)


def speedup_verdict(label: str, speedup: Speedup, candidate_us: float, wanted: float, enforced: bool = True) -> Verdict:
    """Judge a speedup by a limit: FAIL where its whole interval is below, PASS where none of it is."""
    outcome = at_least(speedup.interval, wanted)
    unit, found = choose_time_unit([candidate_us]), ratio_text(speedup.ratio, speedup.interval, limit=wanted)
    needed = "" if speedup.interval else f"{least_reps(speedup.alpha)} reps"
    told = (
        f"{label} {_speedup_words(speedup, outcome)} {speedup.reference}: {found}, wanted at least "
        f"{wanted:.10g}x ({format_time(candidate_us, unit)} against {format_time(speedup.reference_us, unit)}, "
        f"{judged_by(count(speedup.quads, 'quad'), speedup.alpha, needed)})"
    )
    return Verdict(kind=MinSpeedup.name, asked=repr(wanted), outcome=outcome, sentence=told, enforced=enforced)


def _speedup_words(found: Speedup | RecordedTotals, outcome: Outcome) -> str:
    if outcome is Outcome.INCONCLUSIVE:
        return f"{words_for(outcome, found.interval)} against"
    if outcome is Outcome.PASS and round_to_digits(found.ratio, 4) == "1.000":
        return "is as fast as"
    if found.ratio < 1:
        return "is slower than"
    return "is faster than" if outcome is Outcome.PASS else "is not fast enough against"


@dataclass
class SpeedupJudgement:
    """Judge a candidate's speedup while quads are added, look by look; the last look counts, which is of all quads.

    limits: the speedup asked of each candidate that has a limit; empty where no candidate has one. precision: how wide
    an interval may be, to either side, to end a comparison without limits. pass_alpha: the chance, at most, that a
    broken limit passes; None is alpha, the chance that a kept one fails.
    """

    name: str
    limits: Mapping[str, float]
    alpha: float
    precision: float
    enforced: bool = True
    pass_alpha: float | None = None
    outcome: Outcome = Outcome.INCONCLUSIVE
    latest: SpeedupEstimate | None = None

    def look(self, quads: Sequence[Quad], looks: tuple[int, ...], tick_us: float = 0.0) -> bool:
        """Return whether the limit is decided; where no candidate has a limit, whether the ratio is precise."""
        self.latest = found = speedup_of(quads, self.alpha, looks, tick_us)
        if not self.limits:
            return found.interval is not None and found.interval.width / found.ratio <= 2 * self.precision
        if self.name not in self.limits:
            return True
        outcome = at_least(found.interval, self.limits[self.name])
        if outcome is Outcome.INCONCLUSIVE and self.pass_alpha is not None:
            lenient = speedup_of(quads, self.pass_alpha, looks, tick_us)
            if at_least(lenient.interval, self.limits[self.name]) is Outcome.PASS:
                self.latest, outcome = lenient, Outcome.PASS
        self.outcome = outcome
        return outcome is not Outcome.INCONCLUSIVE

    @property
    def failed(self) -> bool:
        """True if the limit is broken: more quads, which would settle other limits, change nothing."""
        return self.outcome is Outcome.FAIL

    def verdicts(self, speedup: Speedup, candidate_us: float) -> tuple[Verdict, ...]:
        """Return the verdict on the candidate's limit; NOT_JUDGED where only other candidates have one.

        speedup: the latest.
        """
        if not self.limits:
            return ()
        if self.name not in self.limits:
            told = f"{self.name}: no min_speedup for it, only for {', '.join(self.limits)}"
            asked, outcome = repr(dict(self.limits)), Outcome.NOT_JUDGED
            return (Verdict(kind=MinSpeedup.name, asked=asked, outcome=outcome, sentence=told, enforced=self.enforced),)
        return (speedup_verdict(self.name, speedup, candidate_us, self.limits[self.name], self.enforced),)
