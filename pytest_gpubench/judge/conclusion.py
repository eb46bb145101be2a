"""Verdicts on a case that was timed, by the limits of the core, and the status that they come to."""

from collections.abc import Sequence

import msgspec

from pytest_gpubench.bench.comparison import Judges
from pytest_gpubench.judge.judgement import CaseJudgement, Judgement, Status
from pytest_gpubench.judge.runner import cache_of
from pytest_gpubench.results.model import DeviceFacts, Measurement, Outcome, Speedup, Timing, Verdict
from pytest_gpubench.stats.summary import Interval
from pytest_gpubench.units import ratio_text
from pytest_gpubench.verdict.limits import limit_of

CPU_FACTOR = 2.0
"""The factor by which two processes that do the same on a CPU may differ."""
CLOSE = 0.05
"""The place of memory does not explain a limit that is missed by this part or more."""
PROCESSES = 3
"""The processes that fail before a close FAIL stands."""


def timing_of(samples_us: Sequence[float], device: DeviceFacts, label: str = "candidate") -> Timing:
    """Return the times of an arm as a timing."""
    return Timing(
        label=label,
        timer="wall" if device.type == "cpu" else "profiler",
        cache=cache_of(device.type),
        device=device.name,
        samples_us=tuple(samples_us),
    )


def measured(
    case: CaseJudgement, device: DeviceFacts, alpha: float, labels: Sequence[str] = ("the reference", "candidate")
) -> tuple[Measurement, Measurement]:
    """Return the measurements of both arms of a case that was timed."""
    assert case.candidate_us, "it was timed"
    assert case.reference_us, "it was timed"
    assert case.ratio, "it was timed"
    times = (case.reference_us, case.candidate_us)
    timings = [timing_of(time.samples_us, device, label) for label, time in zip(labels, times, strict=True)]
    speedup = Speedup(
        ratio=case.ratio,
        interval=case.interval,
        quads=len(case.candidate_us.samples_us) // 2,
        alpha=alpha,
        reference=labels[0],
        reference_us=case.reference_us.median_us,
        seed=0,
    )
    return (
        Measurement(timing=timings[0], role="reference"),
        Measurement(
            timing=timings[1], verdicts=case.verdicts, speedup=speedup, differences=case.outputs, role="candidate"
        ),
    )


def concluded(case: CaseJudgement, judges: Judges, device: DeviceFacts) -> CaseJudgement:
    """Return a case that was timed with its verdicts and its status; judges: of its times, as they were last seen."""
    _, item = measured(case, device, judges.speedup.alpha)
    assert item.speedup, "it is a candidate's"
    interval = item.speedup.interval
    if device.type == "cpu" and interval is not None:
        interval = Interval(interval.low / CPU_FACTOR, interval.high * CPU_FACTOR)
    speedup = msgspec.structs.replace(item.speedup, interval=interval)
    verdicts = (*judges.speedup.verdicts(speedup, item.timing.median_us), *judges.time.verdicts)
    status, reason = worst_of(verdicts, f"{ratio_text(case.ratio or 0.0, case.interval)} as fast as the reference")
    return msgspec.structs.replace(case, verdicts=verdicts, status=status, reason=reason)


def worst_of(verdicts: Sequence[Verdict], words: str) -> tuple[Status, str]:
    """Return what verdicts come to: a status and its reason. words: the reason where there are none."""
    worst = max(verdicts, key=lambda each: each.outcome.badness, default=None)
    if worst is not None and worst.outcome is not Outcome.PASS:
        return "fail" if worst.outcome is Outcome.FAIL else "inconclusive", worst.sentence
    return "pass", "; ".join(each.sentence for each in verdicts) or words


# a close FAIL is judged again in other processes, whose memory lies elsewhere: on H200s the ratio of a layer norm with
# itself was 0.985 to 1.013 in 24 processes, each with an interval of 0.5 %


def fails_closely(judgement: Judgement) -> bool:
    """Tell whether a candidate fails, and misses each limit by little."""
    device = judgement.device
    return judgement.status == "fail" and all(
        limit.missed_by(measured(case, device, 0.0)[1]) < CLOSE
        for case in judgement.cases
        for verdict in case.verdicts
        if device and verdict.outcome is Outcome.FAIL and (limit := limit_of(verdict))
    )


def confirmed(cases: Sequence[CaseJudgement]) -> CaseJudgement:
    """Return the first process's findings on a case; a FAIL is INCONCLUSIVE unless all processes fail."""
    if untimed := [each for each in cases if not each.verdicts]:
        return untimed[0]
    verdicts = tuple(map(_confirmed, zip(*(each.verdicts for each in cases), strict=True)))
    status, reason = worst_of(verdicts, cases[0].reason)
    return msgspec.structs.replace(cases[0], verdicts=verdicts, status=status, reason=reason)


def _confirmed(verdicts: Sequence[Verdict]) -> Verdict:
    first = verdicts[0]
    if first.outcome is not Outcome.FAIL:
        return first
    if others := [each.sentence for each in verdicts if each.outcome is not Outcome.FAIL]:
        sentence = f"not confirmed: {first.sentence}; in another process {others[0]}"
        return msgspec.structs.replace(first, outcome=Outcome.INCONCLUSIVE, sentence=sentence)
    return msgspec.structs.replace(first, sentence=f"{first.sentence}; so in {len(verdicts)} processes")
