"""Limits and their judgement: numbers in, outcome and sentence out."""

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pytest_gpubench.limits import Limits, limit_for_device
from pytest_gpubench.results.model import Outcome, Speedup, Timing, Verdict
from pytest_gpubench.stats.speedup import compare
from pytest_gpubench.stats.summary import Interval, least_count, median_interval, std_interval
from pytest_gpubench.units import choose_time_unit, count, format_share, format_time, round_to_digits

Rates = Callable[[Timing, float], tuple[Verdict, ...]]
"""Told a timing and the part of alpha that this look at it takes; returns the verdicts on its rates."""


def no_rates(timing: Timing, spent: float) -> tuple[Verdict, ...]:
    """Return no verdicts: no limit is on a rate."""
    return ()


def judge(
    timing: Timing, limits: Limits, alpha: float, enforced: bool = True, spent: float | None = None
) -> tuple[Verdict, ...]:
    """Judge a timing by every limit; each is wrong to fail with probability at most alpha.

    spent: the part of alpha that this look at the timing takes; None is all of it.
    """
    spent = alpha if spent is None else spent
    verdicts = []
    if limits.max_rel_std is not None:
        verdicts.append(_judge_rel_std(timing, limits.max_rel_std, alpha, spent, enforced))
    if limits.max_time_us is not None:
        verdicts.append(_judge_time(timing, limits.max_time_us, alpha, spent, enforced))
    return tuple(verdicts)


class Judgement:
    """Judge a timing while it grows: each look at it spends a part of alpha, so that looking often costs nothing.

    The k-th look spends alpha / (k (k + 1)), which sums to alpha however many looks there are (Bonferroni); a
    `single` look spends all of it. A rate is work over time: a limit on it is judged at the same looks as one on time.
    What a look decides stands, whatever later ones find that others asked for.
    """

    def __init__(
        self, limits: Limits, alpha: float, enforced: bool = True, single: bool = False, rates: Rates = no_rates
    ) -> None:
        self.limits = limits
        self.alpha = alpha
        self.enforced = enforced
        self.single = single
        self.rates = rates
        self.looks = 0
        self.verdicts: tuple[Verdict, ...] = ()

    def look(self, timing: Timing) -> bool:
        """Judge the timing as it is now; return whether every limit is decided, or the test fails anyhow."""
        self.looks += 1
        spent = self.alpha if self.single else self.alpha / (self.looks * (self.looks + 1))
        on_time = judge(timing, self.limits, self.alpha, self.enforced, spent)
        before = {verdict.kind: verdict for verdict in self.verdicts}
        found = (*on_time, *self.rates(timing, spent))
        self.verdicts = tuple(_standing(before.get(verdict.kind), verdict) for verdict in found)
        return self.failed or all(verdict.outcome is not Outcome.INCONCLUSIVE for verdict in self.verdicts)

    @property
    def failed(self) -> bool:
        """Whether a limit is broken, or there is no number for it: reps that settle the others change nothing."""
        return any(verdict.outcome in (Outcome.FAIL, Outcome.INVALID) for verdict in self.verdicts)


def _standing(before: Verdict | None, now: Verdict) -> Verdict:
    """Return what was decided before; in the numbers of now where they decide the same."""
    if before is None or before.outcome in (Outcome.INCONCLUSIVE, now.outcome):
        return now
    return before


def distrust_throttled(verdicts: Sequence[Verdict], timings: Sequence[Timing], throttled: str) -> tuple[Verdict, ...]:
    """Return the verdicts, INVALID where throttling may have made them; as they are if `throttled` is "warn".

    A time that is within its limit though the GPU was throttled is within it.
    """
    reasons = sorted({reason for timing in timings for reason in timing.throttle_reasons})
    if not reasons or throttled == "warn":
        return tuple(verdicts)
    return tuple(verdict if holds_anyhow(verdict) else invalid(verdict, reasons) for verdict in verdicts)


def holds_anyhow(verdict: Verdict) -> bool:
    """Tell whether throttling cannot have changed a verdict."""
    kept_time = verdict.outcome is Outcome.PASS and verdict.kind in ("max_time_us", "min_gbps", "min_tflops")
    return kept_time or verdict.outcome is Outcome.NOT_JUDGED


def invalid(verdict: Verdict, reasons: Sequence[str]) -> Verdict:
    """Return a verdict as it is where the GPU was throttled."""
    return msgspec.structs.replace(
        verdict,
        outcome=Outcome.INVALID,
        sentence=f"the GPU was throttled while it was measured ({', '.join(reasons)}), so this says more about the GPU "
        f"than about the code: {verdict.sentence}; let the GPU cool or raise its power cap, give more "
        "--gpu-bench-max-time to wait for clean reps, or accept it with --gpu-bench-throttled=warn",
    )


def not_asked(label: str, asked: Mapping[str, float], enforced: bool) -> Verdict:
    """Return that a candidate has no limit where others have one."""
    return Verdict(
        kind="min_speedup",
        asked=repr(dict(asked)),
        outcome=Outcome.NOT_JUDGED,
        sentence=f"{label}: no min_speedup for it, only for {', '.join(asked)}",
        enforced=enforced,
    )


def judge_speedup(
    label: str, speedup: Speedup, candidate_us: float, wanted: float, asked: object, enforced: bool = True
) -> Verdict:
    """Judge a speedup by a limit: FAIL where its whole interval is below, PASS where none of it is."""
    decided = compare(speedup.interval, wanted)
    outcome = {"pass": Outcome.PASS, "fail": Outcome.FAIL, "open": Outcome.INCONCLUSIVE}[decided]
    ratio, *ends = (round_to_digits(number, 4) for number in (speedup.ratio, *(speedup.interval or ())))
    between = f" [{', '.join(ends)}]" if ends else ""
    unit = choose_time_unit([candidate_us])
    return Verdict(
        kind="min_speedup",
        asked=repr(asked),
        outcome=outcome,
        sentence=f"{label} is {_speedup_words(speedup.ratio, outcome)} {speedup.reference}: {ratio}x{between}, "
        f"wanted at least {wanted:g}x "
        f"({format_time(candidate_us, unit)} against {format_time(speedup.reference_us, unit)}, "
        f"{count(speedup.quads, 'quad')}{_too_few_quads(speedup)}, alpha {speedup.alpha:g})",
        enforced=enforced,
    )


def _speedup_words(ratio: float, outcome: Outcome) -> str:
    if outcome is Outcome.INCONCLUSIVE:
        return "too close to tell against"
    if round_to_digits(ratio, 4) == "1.000":
        return "as fast as"
    if ratio < 1:
        return "slower than"
    return "faster than" if outcome is Outcome.PASS else "not fast enough against"


def _too_few_quads(speedup: Speedup) -> str:
    least_quads = math.ceil(-math.log2(speedup.alpha))  # of so many, all on one side are as rare as alpha
    return "" if speedup.interval else f", too few to decide: take at least {2 * least_quads} reps"


def compare_with_limit(interval: Interval | None, most: float) -> Outcome:
    """Return PASS where the whole interval is at most the limit, FAIL where all of it is above."""
    if interval is None:
        return Outcome.INCONCLUSIVE
    if interval.high <= most:
        return Outcome.PASS
    return Outcome.FAIL if interval.low > most else Outcome.INCONCLUSIVE


def _judge_rel_std(timing: Timing, most: float, alpha: float, spent: float, enforced: bool) -> Verdict:
    std = std_interval(timing.samples_us, spent)
    interval = std and Interval(std.low / timing.mean_us, std.high / timing.mean_us)
    outcome = compare_with_limit(interval, most)
    found = format_share(timing.rel_std) if timing.reps > 1 else "unknown"
    between = f" [{format_share(interval.low)}, {format_share(interval.high)}]" if interval else ""
    words = {Outcome.PASS: "is steady", Outcome.FAIL: "is unsteady", Outcome.INCONCLUSIVE: open_words(interval)}
    return Verdict(
        kind="max_rel_std",
        asked=repr(most),
        outcome=outcome,
        sentence=f"{timing.label} {words[outcome]}: relative std {found}{between}, wanted at most {format_share(most)} "
        f"({_certainty(timing, alpha, 10)})",
        enforced=enforced,
    )


def _judge_time(
    timing: Timing, most: float | Mapping[str, float], alpha: float, spent: float, enforced: bool
) -> Verdict:
    wanted = limit_for_device(most, timing.device)
    if wanted is None:
        assert isinstance(most, Mapping)
        sentence = f"{timing.label}: no max_time_us for {timing.device}, only for {', '.join(most)}"
        return Verdict(
            kind="max_time_us", asked=repr(most), outcome=Outcome.NOT_JUDGED, sentence=sentence, enforced=enforced
        )
    interval = median_interval(timing.samples_us, spent)
    outcome = compare_with_limit(interval, wanted)
    unit = choose_time_unit([timing.median_us])
    between = f" [{format_time(interval.low, unit)}, {format_time(interval.high, unit)}]" if interval else ""
    words = {Outcome.PASS: "is fast enough", Outcome.FAIL: "is too slow", Outcome.INCONCLUSIVE: open_words(interval)}
    return Verdict(
        kind="max_time_us",
        asked=repr(most),
        outcome=outcome,
        sentence=f"{timing.label} {words[outcome]}: median {format_time(timing.median_us, unit)}{between}, "
        f"wanted at most {format_time(wanted, unit)} ({_certainty(timing, alpha, least_count(spent))})",
        enforced=enforced,
    )


def open_words(interval: Interval | None) -> str:
    """Return why nothing was decided."""
    return "cannot be judged" if interval is None else "is too close to tell"


def _certainty(timing: Timing, alpha: float, least: int) -> str:
    too_few = f", too few to decide: take at least {least}" if timing.reps < least else ""
    return f"{count(timing.reps, 'rep')}{too_few}, alpha {alpha:g}"
