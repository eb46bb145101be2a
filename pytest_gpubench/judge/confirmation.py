"""A close FAIL is judged again in other processes, whose memory lies elsewhere.

On H200s the ratio of a layer norm with itself was 0.985 to 1.013 in 24 processes, each with an interval of 0.5 %.
"""

from collections.abc import Sequence

import msgspec

from pytest_gpubench.judge.conclusion import measured, worst_of
from pytest_gpubench.judge.judgement import CaseJudgement, Judgement
from pytest_gpubench.results.model import Outcome, Verdict
from pytest_gpubench.verdict.limits import limit_of

CLOSE = 0.05
"""The place of memory does not explain a limit that is missed by this part or more."""
PROCESSES = 3
"""The processes that fail before a close FAIL stands."""


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
