"""Judge a timing by limits, as one look does."""

from typing import Any

from pytest_gpubench import Timing, Verdict
from pytest_gpubench.verdict import limits as judging
from pytest_gpubench.verdict.limits import Limits
from pytest_gpubench.verdict.limits.base import Seen


def judge(
    taken: Timing, limits: Limits, alpha: float, enforced: bool = True, spent: float | None = None, **known: Any
) -> tuple[Verdict, ...]:
    """Return the verdicts on time and rates; spent: the part of alpha that the look takes, None is all of it."""
    return judging.judge(Seen(taken, alpha, alpha if spent is None else spent, **known), limits, enforced)


def judge_structure(taken: Timing, limits: Limits, enforced: bool = True, **known: Any) -> tuple[Verdict, ...]:
    return limits.judge("structure", Seen(taken, **known), enforced)
