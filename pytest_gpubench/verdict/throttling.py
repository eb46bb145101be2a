"""Verdicts on a GPU that was throttled."""

from collections.abc import Sequence

import msgspec

from pytest_gpubench.results.model import Outcome, Timing, Verdict
from pytest_gpubench.verdict.limits import BY_NAME

__tracebackhide__ = True


def invalidate_throttled(verdicts: Sequence[Verdict], timings: Sequence[Timing], throttled: str) -> tuple[Verdict, ...]:
    """Return the verdicts, INVALID where throttling may have made them; as they are if `throttled` is "warn"."""
    reasons = sorted({reason for timing in timings for reason in timing.throttle_reasons})
    if not reasons or throttled == "warn":
        return tuple(verdicts)
    return tuple(verdict if _holds_anyhow(verdict) else _invalid(verdict, reasons) for verdict in verdicts)


def _holds_anyhow(verdict: Verdict) -> bool:
    """Tell whether throttling cannot have changed a verdict: it makes nothing faster."""
    limit = BY_NAME.get(verdict.kind)
    is_kept = verdict.outcome is Outcome.PASS and limit is not None and limit.holds_throttled
    return is_kept or verdict.outcome is Outcome.NOT_JUDGED


def _invalid(verdict: Verdict, reasons: Sequence[str]) -> Verdict:
    return msgspec.structs.replace(
        verdict,
        outcome=Outcome.INVALID,
        sentence=f"the GPU was throttled while it was measured ({', '.join(reasons)}), so this says more about the GPU "
        f"than about the code: {verdict.sentence}; let the GPU cool or raise its power cap, give more "
        "--gpu-bench-budget-s to wait for clean reps, or accept it with --gpu-bench-throttled=warn",
    )
