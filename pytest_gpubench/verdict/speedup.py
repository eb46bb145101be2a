"""Judge a speedup by its limit, look by look."""

from collections.abc import Mapping, Sequence

from pytest_gpubench.results.model import Outcome, Speedup, Verdict
from pytest_gpubench.stats.speedup import Quad, SpeedupEstimate, speedup_of
from pytest_gpubench.verdict.decision import at_least
from pytest_gpubench.verdict.limits.speedup import MinSpeedup, speedup_verdict


class SpeedupJudgement:
    """Judge a candidate's speedup while quads are added, look by look; the last look counts, which is of all quads.

    limits: the speedup asked of each candidate that has a limit; empty where no candidate has one. precision: how wide
    an interval may be, to either side, to end a comparison without limits. pass_alpha: the chance, at most, that a
    broken limit passes; None is alpha, the chance that a kept one fails.
    """

    def __init__(
        self,
        name: str,
        limits: Mapping[str, float],
        alpha: float,
        precision: float,
        enforced: bool = True,
        pass_alpha: float | None = None,
    ) -> None:
        self.name = name
        self.limits = limits
        self.alpha = alpha
        self.precision = precision
        self.enforced = enforced
        self.pass_alpha = pass_alpha
        self.outcome = Outcome.INCONCLUSIVE
        self.latest: SpeedupEstimate | None = None

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
            return (not_asked(self.name, self.limits, self.enforced),)
        return (speedup_verdict(self.name, speedup, candidate_us, self.limits[self.name], self.enforced),)


def not_asked(label: str, limits: Mapping[str, float], enforced: bool) -> Verdict:
    """Return the verdict that a candidate has no limit where others have one."""
    return Verdict(
        kind=MinSpeedup.name,
        asked=repr(dict(limits)),
        outcome=Outcome.NOT_JUDGED,
        sentence=f"{label}: no min_speedup for it, only for {', '.join(limits)}",
        enforced=enforced,
    )
