"""Verdicts on claimed and attested times: a PASS holds for both."""

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from pytest_gpubench.errors import BadRequest, InvalidResult
from pytest_gpubench.judge.judgement import Status, Time
from pytest_gpubench.limits import as_written, limit_for_device
from pytest_gpubench.results.model import Outcome, Verdict
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval, median_interval
from pytest_gpubench.units import format_time, ratio_text
from pytest_gpubench.verdict.decision import at_least, at_most
from pytest_gpubench.verdict.limits import Limits

__tracebackhide__ = True

WITNESS_SHARE = 0.05
"""A replayed call may take so much longer by the referee's clock, as clocks and power differ."""
GAP_US = 2.0
"""The longest time from one kernel of a call to the next."""
CPU_FACTOR = 2.0
"""The factor by which two processes that do the same on a CPU may differ."""


class ClocksDisagree(InvalidResult):
    """The referee's clock contradicts the records of a replayed call, or what it said itself before."""


def refuse_limits(limits: Limits) -> None:
    """Raise BadRequest for limits that cannot be judged from outside."""
    if others := [limit.name for limit in limits if limit.name not in ("min_speedup", "max_time_us")]:
        raise BadRequest(f"judge cannot judge {', '.join(others)}: it knows min_speedup and max_time_us")
    if isinstance(limits.min_speedup, Mapping):
        raise BadRequest(f"min_speedup={dict(limits.min_speedup)!r} is not valid here: give a number for the candidate")


def time_of(samples_us: Sequence[float], alpha: float = 0.05) -> Time:
    """Return the median of samples, with its interval."""
    rounded = tuple(round(each, 3) for each in samples_us)
    return Time(
        median_us=statistics.median(samples_us), interval=median_interval(samples_us, alpha), samples_us=rounded
    )


def is_below(time: Time, least_us: float) -> bool:
    """Tell whether a time is certainly less than this: by the upper end of its interval, if it has one."""
    return (time.interval.high if time.interval else time.median_us) < least_us


def longest_us(recorded: Time, kernels: int, slack_us: float) -> float:
    """Return the longest time of a replayed call by the referee's clock that its records explain.

    slack_us: by so much more a call of one kernel may take.
    """
    return recorded.median_us * (1 + WITNESS_SHARE) + slack_us + GAP_US * (kernels - 1)


def require_witness(recorded: Time, attested: Time, most_us: float) -> None:
    """Raise ClocksDisagree where a replayed call certainly took longer by the referee's clock than its records explain.

    A kernel may write wherever the GPU may, in the memory of its process too: its times are not believed alone.
    """
    if (attested.interval.low if attested.interval else attested.median_us) > most_us:
        raise ClocksDisagree(
            f"its records say {format_time(recorded.median_us)}, and the referee's clock "
            f"{format_time(attested.median_us)}"
        )


def require_cost(left_us: float, slack_us: float) -> None:
    """Raise ClocksDisagree where replays take less than a replay alone cost before.

    left_us: what is left of one without that cost. What is taken off would hide as much of a call.
    """
    if left_us < -slack_us:
        raise ClocksDisagree(
            f"a replayed call takes {format_time(-left_us)} less by the referee's clock than a replay alone cost before"
        )


def distrust(not_replayed: str) -> str:
    """Return why a call that was not replayed, for this reason, does not pass."""
    return f"not replayed ({not_replayed}), and the spec does not say trust_claims = True"


def distrusted(verdict: Verdict, not_replayed: str) -> Verdict:
    """Return a verdict that is INCONCLUSIVE where it was PASS, as the spec does not trust the candidate's timer."""
    if verdict.outcome is not Outcome.PASS:
        return verdict
    return msgspec.structs.replace(
        verdict, outcome=Outcome.INCONCLUSIVE, sentence=f"{distrust(not_replayed)}: {verdict.sentence}"
    )


def ratio_words(claimed: SpeedupEstimate, attested: SpeedupEstimate) -> str:
    """Return both speedups in words; they are one where the referee timed the call."""
    if attested is claimed:
        return f"{ratio_text(claimed.ratio, claimed.interval)} as fast as the reference"
    return (
        f"{ratio_text(claimed.ratio, claimed.interval)} as fast as the reference by its own timer, "
        f"{ratio_text(attested.ratio, attested.interval)} by the referee's clock"
    )


def fail_on_cpu(claimed: Interval, wanted: float) -> Outcome:
    """Return FAIL where a speedup is below the limit by more than two processes that do the same may differ."""
    return at_least(Interval(claimed.low, claimed.high * CPU_FACTOR), wanted)


def judge_speedup(claimed: Outcome, attested: Interval | None, wanted: float, words: str) -> Verdict:
    """Judge a speedup: PASS where both are at least this, FAIL where the claimed one already is below.

    claimed: the outcome of the claimed speedup. attested: the interval of the attested one.
    """
    words = f"{words}, wanted at least {wanted:g}x"
    if claimed is Outcome.PASS and at_least(attested, wanted) is not Outcome.PASS:
        return _verdict("min_speedup", wanted, Outcome.INCONCLUSIVE, f"claimed, but not attested: {words}")
    doubt = "too close to tell: " if claimed is Outcome.INCONCLUSIVE else ""
    return _verdict("min_speedup", wanted, claimed, f"{doubt}{words}")


def judge_time(claimed: Time, attested: Time, most: float | Mapping[str, float], device: str, alpha: float) -> Verdict:
    """Judge a time: PASS where both medians are at most this, FAIL where the claimed one already is above.

    attested: the claimed one itself where the referee timed the call.
    """
    wanted = limit_for_device(most, device)
    if wanted is None:
        return _verdict("max_time_us", most, Outcome.INCONCLUSIVE, f"there is no max_time_us for {device}")
    outcome, other = (at_most(median_interval(each.samples_us, alpha), wanted) for each in (claimed, attested))
    if outcome is Outcome.PASS:
        outcome = other if other is Outcome.PASS else Outcome.INCONCLUSIVE
    times = f"{format_time(claimed.median_us)} by its own timer, {format_time(attested.median_us)} by the referee's"
    if attested is claimed:
        times = format_time(claimed.median_us)
    return _verdict("max_time_us", most, outcome, f"a call takes {times}, wanted at most {wanted:g} us")


def _verdict(kind: str, asked: object, outcome: Outcome, sentence: str) -> Verdict:
    return Verdict(kind=kind, asked=as_written(asked), outcome=outcome, sentence=sentence)


def worst_of(verdicts: Sequence[Verdict], words: str) -> tuple[Status, str]:
    """Return what verdicts come to: a status and its reason. words: the reason where there are none."""
    statuses: tuple[Status, ...] = ("fail", "inconclusive")
    for status in statuses:
        if found := [each.sentence for each in verdicts if each.outcome.value == status]:
            return status, found[0]
    return "pass", "; ".join(each.sentence for each in verdicts) or words
