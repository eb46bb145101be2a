"""Judge a timing by limits, as one look does; alphas, and the numbers that a sentence shows."""

from typing import Any

import pytest
from hypothesis import strategies as st

from pytest_gpubench import Timing, Verdict
from pytest_gpubench.verdict.limits import WHILE_TIMED, Limits
from pytest_gpubench.verdict.limits.base import Seen

UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
alphas = st.sampled_from((0.05, 0.01, 0.001, 1e-4))


def judge(
    taken: Timing, limits: Limits, alpha: float, enforced: bool = True, spent: float | None = None, **known: Any
) -> tuple[Verdict, ...]:
    """Return the verdicts on time and rates; spent: the part of alpha that the look takes, None is all of it."""
    return limits.judge(WHILE_TIMED, Seen(taken, alpha, alpha if spent is None else spent, **known), enforced)


def judge_structure(taken: Timing, limits: Limits, enforced: bool = True, **known: Any) -> tuple[Verdict, ...]:
    return limits.judge("structure", Seen(taken, **known), enforced)


def check_printed(text: str | None, scale: float, stored: float | None, rel: float) -> None:
    assert (text is None) == (stored is None)
    if text is not None:
        assert float(text) * scale == pytest.approx(stored, rel=rel)
