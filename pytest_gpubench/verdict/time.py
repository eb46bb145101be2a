"""Judge a timing by the limits on its time and its rates, look by look."""

from collections.abc import Callable
from dataclasses import replace

from pytest_gpubench.results.model import Outcome, Timing, Verdict
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.limits.base import Seen


def judge(seen: Seen, limits: Limits, enforced: bool = True) -> tuple[Verdict, ...]:
    """Judge a timing by each limit on its time and its rates."""
    return (*limits.judge("time", seen, enforced), *limits.judge("rate", seen, enforced))


class Judgement:
    """Judge a timing while it grows: each look at it spends a part of alpha, so that looking often costs nothing.

    The k-th look spends alpha / (k (k + 1)), which sums to alpha however many looks there are (Bonferroni); a
    `single` look spends all of it. A rate is work over time: a limit on it is judged at the same looks as one on time.
    The last look counts: it is of the reps that are reported.

    pass_alpha: the chance, at most, that a broken limit passes; None is alpha, the chance that a kept one fails.
    known: adds to a timing what is known of its call and its GPU.
    """

    def __init__(
        self,
        limits: Limits,
        alpha: float,
        enforced: bool = True,
        single: bool = False,
        pass_alpha: float | None = None,
        known: Callable[[Timing], Seen] = Seen,
    ) -> None:
        self.limits = limits
        self.alpha = alpha
        self.enforced = enforced
        self.single = single
        self.pass_alpha = pass_alpha
        self.known = known
        self.looks = 0
        self.verdicts: tuple[Verdict, ...] = ()

    def look(self, timing: Timing) -> bool:
        """Judge the timing as it is now; return whether every limit is decided, or the test fails anyhow."""
        self.looks += 1
        found = self._judged(timing, self.alpha)
        if self.pass_alpha is not None:
            found = tuple(map(_passed, found, self._judged(timing, self.pass_alpha)))
        self.verdicts = found
        return self.failed or all(verdict.outcome is not Outcome.INCONCLUSIVE for verdict in self.verdicts)

    def _judged(self, timing: Timing, alpha: float) -> tuple[Verdict, ...]:
        spent = alpha if self.single else alpha / (self.looks * (self.looks + 1))
        seen = replace(self.known(timing), alpha=alpha, spent=spent)
        return judge(seen, self.limits, self.enforced)

    @property
    def failed(self) -> bool:
        """True if a limit is broken, or there is no number for it: reps that settle the others change nothing."""
        return any(verdict.outcome in (Outcome.FAIL, Outcome.INVALID) for verdict in self.verdicts)


def _passed(verdict: Verdict, lenient: Verdict) -> Verdict:
    """Return the verdict at the larger alpha where it passes what the smaller one leaves undecided."""
    undecided = verdict.outcome is Outcome.INCONCLUSIVE
    return lenient if undecided and lenient.outcome is Outcome.PASS else verdict
