"""Limits on the time and its spread."""

from collections.abc import Callable, Mapping

from pytest_gpubench.limits import Limits, limit_for_device
from pytest_gpubench.results.model import Outcome, Timing, Verdict
from pytest_gpubench.stats.autocorrelation import independent_for_std
from pytest_gpubench.stats.summary import LEAST_FOR_STD, Interval, std_interval
from pytest_gpubench.units import bracketed, format_share, round_to_digits
from pytest_gpubench.verdict.decision import (
    Judged,
    at_most,
    certainty,
    time_certainty,
    time_interval,
    verdicts_of,
    words_for,
)

__tracebackhide__ = True

Rates = Callable[[Timing, float, float], tuple[Verdict, ...]]
"""Told a timing, alpha and the part of it that this look takes; returns the verdicts on its rates."""


def no_rates(timing: Timing, alpha: float, spent: float) -> tuple[Verdict, ...]:
    """Return no verdicts: no limit is on a rate."""
    return ()


def judge(
    timing: Timing, limits: Limits, alpha: float, enforced: bool = True, spent: float | None = None
) -> tuple[Verdict, ...]:
    """Judge a timing by every limit; each is wrong to fail with probability at most alpha.

    spent: the part of alpha that this look at the timing takes; None is all of it.
    """
    spent = alpha if spent is None else spent
    judged: list[tuple[str, object, Judged]] = []
    if limits.max_rel_std is not None:
        judged.append(("max_rel_std", limits.max_rel_std, _judge_rel_std(timing, limits.max_rel_std, alpha, spent)))
    if limits.max_time_us is not None:
        judged.append(("max_time_us", limits.max_time_us, _judge_time(timing, limits.max_time_us, alpha, spent)))
    return verdicts_of(judged, enforced, {})


class Judgement:
    """Judge a timing while it grows: each look at it spends a part of alpha, so that looking often costs nothing.

    The k-th look spends alpha / (k (k + 1)), which sums to alpha however many looks there are (Bonferroni); a
    `single` look spends all of it. A rate is work over time: a limit on it is judged at the same looks as one on time.
    A decision stands: later looks, which other limits need, do not change it.

    pass_alpha: the chance, at most, that a broken limit passes; None is alpha, the chance that a kept one fails.
    """

    def __init__(
        self,
        limits: Limits,
        alpha: float,
        enforced: bool = True,
        single: bool = False,
        rates: Rates = no_rates,
        pass_alpha: float | None = None,
    ) -> None:
        self.limits = limits
        self.alpha = alpha
        self.enforced = enforced
        self.single = single
        self.rates = rates
        self.pass_alpha = pass_alpha
        self.looks = 0
        self.verdicts: tuple[Verdict, ...] = ()

    def look(self, timing: Timing) -> bool:
        """Judge the timing as it is now; return whether every limit is decided, or the test fails anyhow."""
        self.looks += 1
        found = self._judged(timing, self.alpha)
        if self.pass_alpha is not None:
            found = tuple(map(_passed, found, self._judged(timing, self.pass_alpha)))
        before = {verdict.kind: verdict for verdict in self.verdicts}
        self.verdicts = tuple(_standing(before.get(verdict.kind), verdict) for verdict in found)
        return self.failed or all(verdict.outcome is not Outcome.INCONCLUSIVE for verdict in self.verdicts)

    def _judged(self, timing: Timing, alpha: float) -> tuple[Verdict, ...]:
        spent = alpha if self.single else alpha / (self.looks * (self.looks + 1))
        on_time = judge(timing, self.limits, alpha, self.enforced, spent)
        return (*on_time, *self.rates(timing, alpha, spent))

    @property
    def failed(self) -> bool:
        """True if a limit is broken, or there is no number for it: reps that settle the others change nothing."""
        return any(verdict.outcome in (Outcome.FAIL, Outcome.INVALID) for verdict in self.verdicts)


def _passed(verdict: Verdict, lenient: Verdict) -> Verdict:
    """Return the verdict at the larger alpha where it passes what the smaller one leaves undecided."""
    undecided = verdict.outcome is Outcome.INCONCLUSIVE
    return lenient if undecided and lenient.outcome is Outcome.PASS else verdict


def _standing(before: Verdict | None, now: Verdict) -> Verdict:
    """Return the earlier decision, with the present numbers if they decide the same."""
    if before is None or before.outcome in (Outcome.INCONCLUSIVE, now.outcome):
        return now
    return before


def _judge_rel_std(timing: Timing, most: float, alpha: float, spent: float) -> Judged:
    independent = independent_for_std(timing.samples_us)
    std = std_interval(timing.samples_us, spent, independent)
    interval = std and Interval(std.low / timing.mean_us, std.high / timing.mean_us)
    outcome = at_most(interval, most)
    words = words_for(outcome, interval, "is steady", "is unsteady")
    found = format_share(timing.rel_std) if timing.reps > 1 else "unknown"
    between = bracketed(map(format_share, interval or ()))
    return outcome, (
        f"{timing.label} {words}: relative std {found}{between}, wanted at most {format_share(most)} "
        f"({certainty(timing.reps, independent, LEAST_FOR_STD, alpha)})"
    )


def _judge_time(timing: Timing, most: float | Mapping[str, float], alpha: float, spent: float) -> Judged:
    wanted = limit_for_device(most, timing.device)
    if wanted is None:
        assert isinstance(most, Mapping)
        return Outcome.NOT_JUDGED, f"{timing.label}: no max_time_us for {timing.device}, only for {', '.join(most)}"
    interval = time_interval(timing, spent)
    outcome = at_most(interval, wanted)
    words = words_for(outcome, interval, "is fast enough", "is too slow")
    median, *ends = (round_to_digits(time_us, 4) for time_us in (timing.median_us, *(interval or ())))
    return outcome, (
        f"{timing.label} {words}: median {median} us{bracketed(ends)}, wanted at most {wanted:.10g} us "
        f"({time_certainty(timing, outcome, alpha, spent)})"
    )
