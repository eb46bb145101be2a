"""Verdicts on the time of a case, and the status that they come to."""

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from pytest_gpubench.errors import BadRequest
from pytest_gpubench.judge.judgement import CaseJudgement, Status, Time
from pytest_gpubench.limits import as_written, limit_for_device
from pytest_gpubench.results.model import Outcome, Verdict
from pytest_gpubench.stats.speedup import SpeedupEstimate
from pytest_gpubench.stats.summary import Interval, median_interval
from pytest_gpubench.units import format_time, ratio_text
from pytest_gpubench.verdict.decision import at_least, at_most
from pytest_gpubench.verdict.limits import Limits

CPU_FACTOR = 2.0
"""The factor by which two processes that do the same on a CPU may differ."""


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


def untimed(checked: CaseJudgement, why: str) -> CaseJudgement:
    """Return the judgement of a right call that nobody times, as only its own process could."""
    reason = f"not timed: its call is not replayed ({why}), and without trust_claims = True its process is not believed"
    return msgspec.structs.replace(checked, status="inconclusive", reason=reason, not_replayed=why)


def ratio_words(speedup: SpeedupEstimate) -> str:
    """Return a speedup in words."""
    return f"{ratio_text(speedup.ratio, speedup.interval)} as fast as the reference"


def on_cpu(claimed: Interval, wanted: float) -> Outcome:
    """Judge a speedup from which the true one may differ as two processes on a CPU do that do the same."""
    return at_least(Interval(claimed.low / CPU_FACTOR, claimed.high * CPU_FACTOR), wanted)


def judge_speedup(outcome: Outcome, wanted: float, words: str) -> Verdict:
    """Return the verdict on a speedup."""
    doubt = "too close to tell: " if outcome is Outcome.INCONCLUSIVE else ""
    return _verdict("min_speedup", wanted, outcome, f"{doubt}{words}, wanted at least {wanted:g}x")


def judge_time(time: Time, most: float | Mapping[str, float], device: str, alpha: float) -> Verdict:
    """Judge a time: PASS where its median is at most this."""
    wanted = limit_for_device(most, device)
    if wanted is None:
        return _verdict("max_time_us", most, Outcome.INCONCLUSIVE, f"there is no max_time_us for {device}")
    outcome = at_most(median_interval(time.samples_us, alpha), wanted)
    sentence = f"a call takes {format_time(time.median_us)}, wanted at most {wanted:g} us"
    return _verdict("max_time_us", most, outcome, sentence)


def _verdict(kind: str, asked: object, outcome: Outcome, sentence: str) -> Verdict:
    return Verdict(kind=kind, asked=as_written(asked), outcome=outcome, sentence=sentence)


def worst_of(verdicts: Sequence[Verdict], words: str) -> tuple[Status, str]:
    """Return what verdicts come to: a status and its reason. words: the reason where there are none."""
    statuses: tuple[Status, ...] = ("fail", "inconclusive")
    for status in statuses:
        if found := [each.sentence for each in verdicts if each.outcome.value == status]:
            return status, found[0]
    return "pass", "; ".join(each.sentence for each in verdicts) or words
